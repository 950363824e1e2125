"""Which models a caller may use, under which names."""

import openai
import pytest
from starlette.exceptions import HTTPException

from callsmith.core.errors import UnknownName
from callsmith.core.ports import Model
from callsmith.models.router import Aliases
from callsmith.server.app import create_app
from callsmith.server.http.request_context import act_for
from callsmith.server.served_models import ServedModels
from callsmith.server.settings import Key
from tests.fakes import FakeModel
from tests.server.asking import HI, client, http, says

ONE, TWO = FakeModel(says("1")), FakeModel(says("2"))


def served(**aliases: str) -> ServedModels:
    models: dict[str, Model] = {"one": ONE, "two": TWO}
    return ServedModels(models, Aliases(aliases, models))


def test_a_model_is_found_by_its_name_by_an_alias_and_as_the_default():
    models = served(fast="two")
    assert [models.resolve(name) for name in ("one", "fast", "", "default", "three")] == ["one", "two", "one", "one", "three"]
    assert models.get("two") is TWO
    assert [models.name_of(model) for model in (TWO, FakeModel(says("3")))] == ["two", ""]


def test_an_alias_may_say_which_model_is_the_default():
    assert served(default="two").resolve("") == "two"


def test_an_unknown_name_is_an_error_that_names_models_and_aliases():
    with pytest.raises(UnknownName, match="fast, one, two"):
        served(fast="two").get("three")


async def test_a_key_opens_its_own_models_and_their_aliases_only():
    models = served(fast="two", slow="one")
    act_for("ada", Key("0" * 64, models=("tw*",)))
    assert (models.visible(), models.visible_aliases()) == (["two"], {"fast": "two"})
    assert [models.resolve(name) for name in ("", "slow")] == ["two", "slow"]
    assert [(model.name, model.alias_of) for model in models.list_visible()] == [("two", ""), ("fast", "two")]
    with pytest.raises(HTTPException) as caught:
        models.get("one")
    assert caught.value.status_code == 403


# Asked by a client


async def test_an_unknown_model_is_answered_with_those_that_are_known():
    with pytest.raises(openai.NotFoundError, match="known: m") as caught:
        await client(FakeModel(says("a"))).chat.completions.create(model="gpt-9", messages=HI)
    assert caught.value.code == "model_not_found"


async def test_where_one_model_is_served_a_name_of_the_hub_means_it() -> None:
    answer = await client(FakeModel(says("a"))).chat.completions.create(model="Qwen/Qwen3-0.6B", messages=HI)
    assert (answer.model, answer.choices[0].message.content) == ("m", "a")


async def test_models_are_listed_and_found():
    asking = client(FakeModel(says("a")))
    assert [model.id async for model in asking.models.list()] == ["m"]
    assert (await asking.models.retrieve("m")).owned_by == "callsmith"
    with pytest.raises(openai.NotFoundError):
        await asking.models.retrieve("n")


async def test_a_model_may_have_a_slash_in_its_name():
    app = create_app({"org/model": FakeModel(says("a"))})
    async with http(app) as asking:
        assert (await asking.get("/v1/models/org/model")).json()["id"] == "org/model"

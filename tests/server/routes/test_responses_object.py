"""The response object: every field that Open Responses asks for, with the values that were in effect."""

from typing import Any

import pytest

from callsmith.core.events import Stopped, Text
from callsmith.core.ports import ModelInfo
from callsmith.core.values import Sampling, Usage
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel, Traits
from callsmith.server.app import create_app
from tests.fakes import FakeModel
from tests.server.asking import http, says


class Known(FakeModel):
    """A model of which it is known how it samples."""

    info = ModelInfo(sampling=Sampling(temperature=0.3, top_p=0.8))


async def asked(model: Any, **body: Any) -> Any:
    async with http(create_app({"m": model})) as asking:
        response = await asking.post("/v1/responses", json={"model": "m", "input": "hi", **body})
    assert response.status_code == 200, response.text
    return response.json()


def sampling_of(response: Any) -> tuple[float, float]:
    return response["temperature"], response["top_p"]


async def test_the_sampling_in_effect_is_the_requests_else_the_models_else_neutral():
    assert sampling_of(await asked(Known(says("one")))) == (0.3, 0.8)
    assert sampling_of(await asked(Known(says("one")), temperature=0, top_p=0.5)) == (0, 0.5)
    assert sampling_of(await asked(FakeModel(says("one")))) == (1.0, 1.0)


async def test_a_models_own_settings_are_in_effect_before_those_of_its_engine():
    model = LocalModel(Scripted(["one"]), format_named("hermes"), Template(CHATML), Traits(sampling=Sampling(temperature=0.2)))
    assert sampling_of(await asked(model)) == (0.2, 1.0)


async def test_penalties_are_numbers():
    response = await asked(FakeModel(says("one")), presence_penalty=0)
    assert (response["presence_penalty"], response["frequency_penalty"]) == (0, 0)


@pytest.mark.parametrize(
    ("answer", "status", "is_set"),
    [(says("one"), "completed", True), ([Text("one"), Stopped("length", Usage(1, 1))], "incomplete", False)],
)
async def test_only_a_response_that_is_complete_says_when_it_was(answer: Any, status: str, is_set: bool):
    response = await asked(FakeModel(answer))
    assert response["status"] == status
    assert (response["completed_at"] is not None) == is_set
    if is_set:
        assert response["completed_at"] >= response["created_at"]


async def test_functions_are_repeated_with_all_their_fields():
    nested = {"type": "function", "function": {"name": "b", "strict": True, "description": "B"}}
    response = await asked(FakeModel(says("one")), tools=[{"type": "function", "name": "a", "parameters": {}}, nested])
    assert response["tools"] == [
        {"type": "function", "name": "a", "description": None, "parameters": {}, "strict": False},
        {"type": "function", "name": "b", "description": "B", "parameters": None, "strict": True},
    ]

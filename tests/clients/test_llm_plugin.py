"""The plugin of `llm`, over a model that writes what it is told."""

import json

import pytest

pytest.importorskip("llm", reason="llm is not installed: make test-clients installs it")

import llm
from pydantic import BaseModel

from callsmith.adapters.frameworks.asking import AskedModel
from callsmith.adapters.llm_plugin import AsyncCallsmithModel, CallsmithModel, register_models
from callsmith.core.errors import UsageError
from callsmith.engines.scripted import Scripted
from callsmith.models.weights.catalogue import catalogue
from tests.adapters.scripted import calling_all, scripted_model

pytestmark = pytest.mark.clients


def model_of(*replies: str) -> tuple[CallsmithModel, Scripted]:
    model, engine = scripted_model(*replies)
    return CallsmithModel("callsmith/told", AskedModel(model)), engine


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


class Dog(BaseModel):
    name: str
    age: int


def test_the_catalogue_is_registered_and_nothing_is_loaded():
    registered = []
    register_models(lambda model, other: registered.append((model.model_id, other.model_id)))
    assert registered == [(f"callsmith/{name}", f"callsmith/{name}") for name in catalogue()]


def test_an_answer_is_streamed_with_its_options_and_usage():
    model, engine = model_of("Hello there.")
    response = model.prompt("Hi", system="Be brief.", temperature=0.5, max_tokens=20)
    assert len(list(response)) > 1
    assert response.text() == "Hello there."
    usage = response.usage()
    assert usage.input > 0 and usage.output > 0
    request = engine.asked[0]
    assert "Be brief." in request.prompt.text and "Hi" in request.prompt.text
    assert (request.sampling.temperature, request.sampling.max_tokens) == (0.5, 20)


def test_a_conversation_has_what_was_said_before():
    model, engine = model_of("One.", "Two.")
    conversation = model.conversation()
    assert conversation.prompt("first").text() == "One."
    assert conversation.prompt("second").text() == "Two."
    text = engine.asked[1].prompt.text
    assert text.index("first") < text.index("One.") < text.index("second")


def test_tools_of_llm_are_called_and_their_results_come_back():
    model, engine = model_of(calling_all(("multiply", {"a": 6, "b": 7}), ("multiply", {"a": 2, "b": 3})), "42 and 6.")
    chain = model.chain("What is 6 times 7, and 2 times 3?", tools=[multiply])
    assert chain.text() == "42 and 6."
    assert "Multiply two numbers." in engine.asked[0].prompt.text
    assert "42" in engine.asked[1].prompt.text and "6" in engine.asked[1].prompt.text


def test_a_call_that_broke_off_is_shown_as_the_model_wrote_it():
    cut = '<tool_call>\n{"name": "multiply", "arguments": {"a": 6'
    model, _ = model_of(cut, cut)  # it is asked for once more
    response = model.prompt("What is 6 times 7?", tools=[multiply])
    assert response.text() == cut
    assert response.tool_calls() == []


def test_a_schema_holds_the_answer():
    model, engine = model_of('{"name": "Rex", "age": 3}')
    assert json.loads(model.prompt("A dog.", schema=Dog).text()) == {"name": "Rex", "age": 3}
    assert engine.asked[0].grammar is not None


def test_what_is_wrong_is_told():
    model, _ = model_of("Hi")
    with pytest.raises(UsageError, match="temperature"):
        model.prompt("Hi", temperature=-1).text()


async def test_the_async_model_answers_and_calls_too():
    model, _ = scripted_model(calling_all(("multiply", {"a": 6, "b": 7})), "42.")
    lazy_model = AsyncCallsmithModel("callsmith/told", AskedModel(model))
    chain = lazy_model.chain("What is 6 times 7?", tools=[multiply])
    assert await chain.text() == "42."


def test_llm_finds_the_plugin_by_its_entry_point():
    from importlib.metadata import entry_points

    names = [entry_point.value for entry_point in entry_points(group="llm")]
    assert "callsmith.adapters.llm_plugin" in names
    assert llm.get_model(f"callsmith/{next(iter(catalogue()))}").supports_tools

"""The LlamaIndex adapter in process: tools both ways, and CallsmithLLM over a model that writes what it is told."""

from copy import deepcopy
from typing import Any

import pytest

pytest.importorskip("llama_index.core", reason="llama-index-core is not installed: make test-clients installs it")

from llama_index.core.agent.workflow import AgentStream, FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import AudioBlock, ChatMessage, ImageBlock, TextBlock, ThinkingBlock
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.core.tools.tool_spec.base import BaseToolSpec
from llama_index.core.workflow import Context as WorkflowContext
from pydantic import BaseModel

from callsmith import Approved, Confirmed, Denied, Functions, run_sync
from callsmith.adapters.llamaindex import CallsmithLLM, ToolsetSpec, from_llamaindex, to_llamaindex
from callsmith.core.errors import UsageError
from callsmith.engines.scripted import Scripted
from tests.adapters.scripted import add, get_weather, pay, scripted_model
from tests.adapters.scripted import calling_all as calling

pytestmark = pytest.mark.clients

BOTH = (("get_weather", {"city": "Köln"}), ("add", {"a": 17, "b": 25}))


def llm(*replies: str, **more: Any) -> tuple[CallsmithLLM, Scripted]:
    model, engine = scripted_model(*replies)
    return CallsmithLLM(model=model, **more), engine


# --- tools of ours, for LlamaIndex ----------------------------------------------------------------------------------------------


async def test_a_toolset_becomes_tools_with_its_schemas() -> None:
    toolset = Functions(get_weather, add)
    weather, adding = to_llamaindex(toolset, await toolset.tools())
    function = weather.metadata.to_openai_tool()["function"]
    assert (function["name"], function["description"]) == ("get_weather", "The weather in a city.")
    assert function["parameters"]["properties"]["city"]["description"] == "Which city."
    assert function["parameters"]["required"] == ["city"]
    output = await weather.acall(city="Bonn")
    assert (output.content, output.raw_output) == ('{"city": "Bonn", "sky": "snow"}', {"city": "Bonn", "sky": "snow"})
    assert (await adding.acall(a=17, b=25)).content == "42"


@pytest.mark.req("R146")
def test_the_same_works_without_an_event_loop_and_as_a_tool_spec() -> None:
    weather, adding = ToolsetSpec(Functions(get_weather, add)).to_tool_list()
    assert weather(city="Bonn").raw_output == {"city": "Bonn", "sky": "snow"}
    assert adding.call(a=17).content == "18"
    wrong = weather.call(town="Bonn")
    assert wrong.is_error
    assert "invalid_arguments" in wrong.content


@pytest.mark.parametrize(
    ("decide", "content", "is_error"),
    [
        (None, "denied: pay has side effects", True),
        (lambda needed: Approved(), "paid 5 to Ada", False),
        (lambda needed: Approved({**needed.call.arguments, "amount": 4}), "paid 4 to Ada", False),
        (lambda needed: Denied("too much"), "denied: too much", True),
    ],
)
async def test_calls_that_need_approval_are_decided_on_or_not_run(decide: Any, content: str, is_error: bool) -> None:
    (paying,) = to_llamaindex(Confirmed(Functions(pay)), decide=decide)
    output = await paying.acall(to="Ada", amount=5)
    assert output.content.startswith(content)
    assert output.is_error == is_error


# --- tools of LlamaIndex, for us ------------------------------------------------------------------------------------------------


class Library(BaseToolSpec):
    spec_functions = ["look_up", ("count", "acount")]  # noqa: RUF012

    def look_up(self, word: str) -> str:
        """Look a word up."""
        return f"{word}: a word"

    def count(self, words: list[str]) -> int:
        """Count words."""
        return len(words)

    async def acount(self, words: list[str]) -> int:
        return len(words)


def divide(a: int, b: int) -> float:
    """Divide two numbers."""
    return a / b


@pytest.mark.req("R146")
def test_tools_and_tool_specs_become_a_toolset() -> None:
    toolset = from_llamaindex(Library(), FunctionTool.from_defaults(divide))
    model, _ = scripted_model(
        calling(("look_up", {"word": "forge"}), ("count", {"words": ["a", "b"]}), ("divide", {"a": 1, "b": 0})), "Done."
    )
    ended = run_sync(model, toolset, "?")
    assert [message.content for message in ended.messages if message.role == "tool"] == [
        "forge: a word",
        "2",
        "internal_error: division by zero",
    ]


def test_what_only_an_agent_of_llamaindex_can_run_is_refused() -> None:
    async def remember(ctx: WorkflowContext, word: str) -> str:
        """Remember."""
        return word

    with pytest.raises(UsageError, match="wants the context of a workflow"):
        from_llamaindex(FunctionTool.from_defaults(async_fn=remember))
    with pytest.raises(UsageError, match="expected a LlamaIndex tool"):
        from_llamaindex(divide)  # pyright: ignore


# --- the model ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [True, False])
async def test_an_agent_ends_in_an_answer(streaming: bool) -> None:
    model, engine = llm(calling(*BOTH, text="Let me see."), "Snow, and 42.")
    agent = FunctionAgent(tools=to_llamaindex(Functions(get_weather, add)), llm=model, streaming=streaming)
    running = agent.run("How is the weather in Köln, and what is 17 + 25?")
    results = [event.tool_output.content async for event in running.stream_events() if isinstance(event, ToolCallResult)]
    assert str(await running) == "Snow, and 42."
    assert sorted(results) == ["42", '{"city": "Köln", "sky": "snow"}']
    assert '"sky": "snow"' in engine.asked[1].prompt.text
    assert "<tool_call>" in engine.asked[1].prompt.text


def test_whole_and_streamed_answers_are_the_same_and_know_what_they_cost() -> None:
    reply = "<think>\nHm.\n</think>\n\n" + calling(*BOTH, text="Let me see.")
    model, _ = llm(reply, reply)
    tools = to_llamaindex(Functions(get_weather, add))
    whole = model.chat_with_tools(tools, "?", allow_parallel_tool_calls=True)
    pieces = list(model.stream_chat_with_tools(tools, "?", allow_parallel_tool_calls=True))
    assert len(pieces) > 3
    assert "".join(piece.delta or "" for piece in pieces) == (whole.message.content or "")
    for response in (whole, pieces[-1]):
        calls = model.get_tool_calls_from_response(response)
        assert [(call.tool_name, call.tool_kwargs) for call in calls] == list(BOTH)
        assert len({call.tool_id for call in calls} - {""}) == 2
        assert response.additional_kwargs["completion_tokens"] > 0
        assert isinstance(response.message.blocks[0], ThinkingBlock)


async def test_completions_come_whole_and_in_pieces() -> None:
    model, _ = llm("One two.", "One two.", "One two.", "One two.")
    assert model.complete("?").text == (await model.acomplete("?")).text == "One two."
    assert [piece.delta for piece in model.stream_complete("?")][:2] == ["One", " tw"]
    assert [piece async for piece in await model.astream_complete("?")][-1].text == "One two."


def test_a_required_call_is_constrained_and_one_by_one() -> None:
    model, engine = llm(calling(("add", {"a": 1})), "No.", calling(("add", {"a": 1})))
    tools = to_llamaindex(Functions(add))
    assert model.chat_with_tools(tools, "?", tool_required=True)
    model.chat_with_tools(tools, "?")
    assert [bool(request.grammar) for request in engine.asked] == [True, False]
    assert model.predict_and_call(tools, "?").response == "2"


async def test_an_agent_may_begin_with_a_tool_that_is_named() -> None:
    model, engine = llm(calling(("add", {"a": 1})), "Two.")
    agent = FunctionAgent(tools=to_llamaindex([get_weather, add]), llm=model, initial_tool_choice="add")
    assert str(await agent.run("One more than 1?")) == "Two."
    assert [bool(request.grammar) for request in engine.asked] == [True, False]
    assert "get_weather" not in engine.asked[0].prompt.text


class City(BaseModel):
    name: str
    people: int


def test_structured_prediction_is_a_required_call() -> None:
    model, engine = llm(calling(("City", {"name": "Bonn", "people": 330000})))
    assert model.as_structured_llm(City).chat([ChatMessage("Bonn?")]).raw == City(name="Bonn", people=330000)
    assert engine.asked[0].grammar


async def test_a_structured_prediction_that_is_streamed_ends_in_the_value() -> None:
    reply = calling(("City", {"name": "Bonn", "people": 330000}))
    model, _ = llm(reply, reply, reply)
    question, bonn = PromptTemplate("Bonn?"), City(name="Bonn", people=330000)
    assert list(model.stream_structured_predict(City, question))[-1] == bonn
    assert [value async for value in await model.astream_structured_predict(City, question)][-1] == bonn
    assert list(model.as_structured_llm(City).stream_chat([ChatMessage("Bonn?")]))[-1].raw == bonn


def test_calls_of_another_llm_stay_in_a_history_that_was_stored() -> None:
    model, engine = llm("42.")
    stored = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 17, "b": 25}'}}
    history = [
        ChatMessage("What is 17 + 25?"),
        ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [stored]}),
        ChatMessage(role="tool", content="42", additional_kwargs={"tool_call_id": "c1"}),
    ]
    model.chat(history)
    assert '{"name": "add", "arguments": {"a": 17, "b": 25}}' in engine.asked[0].prompt.text


async def test_an_agent_streams_the_reasoning_as_such() -> None:
    model, _ = llm("<think>\nHm, hm.\n</think>\n\nYes.")
    running = FunctionAgent(tools=[], llm=model).run("?")
    pieces = [event async for event in running.stream_events() if isinstance(event, AgentStream)]
    assert "".join(piece.thinking_delta or "" for piece in pieces).strip() == "Hm, hm."
    assert "".join(piece.delta for piece in pieces) == str(await running) == "Yes."


def test_settings_and_messages_are_passed_on() -> None:
    model, engine = llm("Yes.", temperature=0.5, max_tokens=7, additional_kwargs={"top_k": 3})
    history = [
        ChatMessage(role="system", content="Be brief."),
        ChatMessage(role="user", blocks=[TextBlock(text="a"), TextBlock(text="b")]),
    ]
    model.chat(history, seed=1)
    request = engine.asked[0]
    assert (request.sampling.temperature, request.sampling.max_tokens, request.sampling.top_k, request.sampling.seed) == (
        0.5,
        7,
        3,
        1,
    )
    assert "Be brief." in request.prompt.text
    assert "a\nb" in request.prompt.text
    with pytest.raises(UsageError, match="'audio' are not supported"):
        model.chat([ChatMessage(role="user", blocks=[TextBlock(text="a"), AudioBlock(audio=b"x")])])
    with pytest.raises(UsageError, match="image"):
        model.chat([ChatMessage(role="user", blocks=[ImageBlock(url="https://example.org/x.png")])])


def test_what_is_known_of_a_model_needs_no_opening() -> None:
    known = CallsmithLLM(model="scripted:Hi.").metadata
    assert (known.is_chat_model, known.is_function_calling_model, known.model_name) == (True, True, "scripted:Hi.")
    assert CallsmithLLM(model="scripted:Hi.").complete("?").text == "Hi."


def test_another_model_put_in_place_of_the_first_is_asked_from_then_on() -> None:
    model = CallsmithLLM(model="scripted:Hi.")
    copied = deepcopy(model)
    assert model.complete("?").text == "Hi."
    model.model = "scripted:Bye."
    assert (model.complete("?").text, model.metadata.model_name) == ("Bye.", "scripted:Bye.")
    assert copied.complete("?").text == "Hi."

"""The LangChain adapter in process: tools both ways, and ChatCallsmith over a model that writes what it is told."""

from typing import Any, Literal

import pytest

pytest.importorskip("langchain_core", reason="langchain-core is not installed: make test-clients installs it")

from typing import Annotated

from langchain.agents import create_agent
from langchain_core.caches import InMemoryCache
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.runnables import ConfigurableField, RunnableConfig
from langchain_core.tools import InjectedToolCallId, ToolException
from langchain_core.tools import tool as langchain_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel, Field

from callsmith import (
    Approved,
    Call,
    ConfirmationNeeded,
    Confirmed,
    Denied,
    Functions,
    TurnEnded,
    open_model,
    run,
    run_sync,
)
from callsmith.adapters.frameworks import asking
from callsmith.adapters.frameworks.blocking import wait_for
from callsmith.adapters.langchain import (
    ChatCallsmith,
    from_langchain,
    read_decisions,
    read_interrupt_on,
    to_langchain,
    write_decision,
)
from callsmith.core.approval import ConfirmationRequired
from callsmith.core.errors import UsageError
from callsmith.engines.scripted import Scripted
from callsmith.tools.mcp import McpHost
from tests.adapters.scripted import add, get_weather, pay, scripted_model
from tests.adapters.scripted import calling_all as calling
from tests.tools.mcp.trying import plain

pytestmark = pytest.mark.clients

BOTH = (("get_weather", {"city": "Köln"}), ("add", {"a": 17, "b": 25}))


def chat(*replies: str, **more: Any) -> tuple[ChatCallsmith, Scripted]:
    model, engine = scripted_model(*replies)
    return ChatCallsmith(model=model, **more), engine


class Verdict(BaseModel):
    """What is to be thought of it."""

    mood: Literal["good", "bad"]
    points: int = Field(ge=0, le=10)


# --- tools of ours, for LangChain -----------------------------------------------------------------------------------------------


@pytest.mark.req("R145")
async def test_a_toolset_becomes_tools_with_its_schemas_content_and_artifact() -> None:
    weather, adding = to_langchain(Functions(get_weather, add), await Functions(get_weather, add).tools())
    assert weather.args["city"]["description"] == "Which city."
    assert weather.description == "The weather in a city."
    message = await weather.ainvoke({"type": "tool_call", "name": "get_weather", "args": {"city": "Bonn"}, "id": "c1"})
    assert (message.content, message.artifact) == ('{"city": "Bonn", "sky": "snow"}', {"city": "Bonn", "sky": "snow"})
    assert (message.tool_call_id, message.status) == ("c1", "success")
    assert await adding.ainvoke({"a": 17, "b": 25}) == "42"


def test_the_same_works_without_an_event_loop() -> None:
    weather, adding = to_langchain(Functions(get_weather, add))
    assert weather.invoke({"city": "Bonn"}) == '{"city": "Bonn", "sky": "snow"}'
    assert adding.invoke({"a": 17}) == "18"


async def test_sync_calls_work_inside_a_running_loop_too() -> None:
    (adding,) = to_langchain(Functions(add))
    assert adding.invoke({"a": 17, "b": 25}) == "42"


async def test_arguments_that_do_not_fit_and_tools_that_fail_are_messages_with_the_status_error() -> None:
    weather, paying = to_langchain(Functions(get_weather, pay))
    message = await weather.ainvoke({"type": "tool_call", "name": "get_weather", "args": {"town": "Bonn"}, "id": "c1"})
    assert message.status == "error"
    assert "invalid_arguments" in message.content
    failing = {"type": "tool_call", "name": "pay", "args": {"to": "Ada", "amount": 1000}, "id": "c2"}
    assert paying.invoke(failing).content == "internal_error: not that much"
    paying.handle_tool_error = False
    with pytest.raises(ToolException, match="not that much"):
        paying.invoke(failing)


async def test_progress_becomes_a_custom_event() -> None:
    (adding,) = to_langchain(Functions(add))
    seen = [
        astream_event
        async for astream_event in adding.astream_events({"a": 1, "b": 2}, version="v2")
        if astream_event["event"] == "on_custom_event"
    ]
    assert [(item["name"], item["data"]["text"], item["data"]["total"]) for item in seen] == [("tool_progress", "adding", 2)]


def test_tools_of_mcp_servers_work_without_an_event_loop() -> None:
    host = McpHost([plain()])
    try:
        by_name = {listed_tool.name: listed_tool for listed_tool in to_langchain(host)}
        assert "hello" in by_name["echo"].invoke({"text": "hello"})
        assert "again" in by_name["echo"].invoke({"text": "again"})
    finally:
        wait_for(host.close())


async def test_tools_of_mcp_servers_work_in_the_loop_they_are_opened_in() -> None:
    async with McpHost([plain()]) as host:
        by_name = {listed_tool.name: listed_tool for listed_tool in to_langchain(host, await host.tools())}
        assert "hello" in await by_name["echo"].ainvoke({"text": "hello"})


# --- tools of LangChain, for us -------------------------------------------------------------------------------------------------


@langchain_tool(response_format="content_and_artifact")
async def look_up(word: str, call_id: Annotated[str, InjectedToolCallId], config: RunnableConfig) -> tuple[str, Any]:
    """Look a word up."""
    assert call_id
    return f"{word}: a word", {"word": word}


@langchain_tool
def divide(a: int, b: int) -> float:
    """Divide two numbers."""
    if b == 0:
        raise ToolException("not by zero")
    return a / b


@pytest.mark.req("R145")
async def test_tools_of_langchain_become_a_toolset_without_what_is_injected() -> None:
    artifacts: list[Any] = []
    toolset = from_langchain(look_up, divide, on_artifact=lambda name, artifact: artifacts.append((name, artifact)))
    searching, divided = await toolset.tools()
    assert (searching.name, searching.description, list(searching.parameters["properties"])) == (
        "look_up",
        "Look a word up.",
        ["word"],
    )
    assert divided.parameters["required"] == ["a", "b"]
    model, _ = scripted_model(
        calling(("look_up", {"word": "forge"}), ("divide", {"a": 1, "b": 0}), ("divide", {"a": 1, "b": 4})), "Done."
    )
    ended = await _run(model, toolset)
    assert [message.content for message in ended.messages if message.role == "tool"] == [
        "forge: a word",
        "internal_error: not by zero",
        "0.25",
    ]
    assert artifacts == [("look_up", {"word": "forge"})]


async def _run(model: Any, toolset: Any) -> Any:
    (ended,) = [event async for event in run(model, toolset, "?") if isinstance(event, TurnEnded)]
    return ended


PIXEL = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}
SHOT: Any = {
    "texts": ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "one\ntwo"),
    "image": ([{"type": "text", "text": "So it looks:"}, PIXEL], "So it looks:\n[image, image/png, 9 bytes]"),
    "address": ([{"type": "image", "url": "https://example.org/x.png"}], "[image, https://example.org/x.png]"),
    "openai": ([{"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}}], "[image, image/png, 3 bytes]"),
    "data": (["a", "b"], '["a", "b"]'),
}


@pytest.mark.parametrize(("content", "read"), SHOT.values(), ids=SHOT)
async def test_a_model_reads_the_text_in_blocks_of_content_and_never_the_bytes_of_an_image(content: Any, read: str) -> None:
    @langchain_tool
    def shoot() -> Any:
        """Take a picture."""
        return content

    ended = await _run(scripted_model(calling(("shoot", {})), "Done.")[0], from_langchain(shoot))
    assert [message.content for message in ended.messages if message.role == "tool"] == [read]


def test_a_tool_may_have_parameters_of_any_name_and_go_both_ways() -> None:
    @langchain_tool
    def odd(context: str, self_: int, config_: str = "x") -> str:
        """Odd names."""
        return f"{context} {self_} {config_}"

    (back,) = to_langchain(from_langchain(odd))
    assert back.invoke({"context": "a", "self_": 1}) == "a 1 x"


def test_what_is_no_tool_is_refused() -> None:
    with pytest.raises(UsageError, match="expected a LangChain tool"):
        from_langchain(get_weather)  # pyright: ignore


# --- the model ------------------------------------------------------------------------------------------------------------------


async def test_a_loop_of_tools_ends_in_an_answer() -> None:
    model, engine = chat(calling(*BOTH, text="Let me see."), "Snow, and 42.")
    tools = to_langchain(Functions(get_weather, add))
    bound = model.bind_tools(tools)
    question = HumanMessage("How is the weather in Köln, and what is 17 + 25?")
    first = await bound.ainvoke([question])
    assert [(call["name"], call["args"]) for call in first.tool_calls] == list(BOTH)
    assert first.text.strip() == "Let me see."
    assert first.response_metadata["finish_reason"] == "tool_calls"
    by_name = {item.name: item for item in tools}
    last = await bound.ainvoke([question, first, *[by_name[call["name"]].invoke(call) for call in first.tool_calls]])
    assert (last.text, last.tool_calls) == ("Snow, and 42.", [])
    assert "snow" in engine.asked[1].prompt.text
    assert last.usage_metadata
    assert last.usage_metadata["output_tokens"] > 0


@pytest.mark.parametrize("sync", [True, False])
async def test_streamed_pieces_add_up_to_the_same_calls(sync: bool) -> None:
    model, _ = chat("<think>\nHm.\n</think>\n\n" + calling(*BOTH, text="Let me see."))
    bound = model.bind_tools(to_langchain(Functions(get_weather, add)))
    pieces: list[AIMessageChunk] = [*bound.stream("?")] if sync else [piece async for piece in bound.astream("?")]  # pyright: ignore
    assert len(pieces) > 10
    assert {piece["index"] for item in pieces for piece in item.tool_call_chunks} == {0, 1}
    whole = sum(pieces[1:], pieces[0])
    assert [(call["name"], call["args"]) for call in whole.tool_calls] == list(BOTH)
    assert len({call["id"] for call in whole.tool_calls}) == 2
    assert whole.text.strip() == "Let me see."
    assert whole.additional_kwargs["reasoning_content"].strip() == "Hm."
    assert whole.content_blocks[0]["type"] == "reasoning"
    assert [piece.usage_metadata is not None for piece in pieces].count(True) == 1


@pytest.mark.parametrize("version", ["v0", "v1"])
def test_what_the_model_said_is_the_same_in_later_prompts_however_it_is_written(version: str) -> None:
    model, engine = chat("<think>\nHm.\n</think>\n\n" + calling(BOTH[1], text="Let me see."), "42.", output_version=version)
    first = model.bind_tools(to_langchain(Functions(add))).invoke("?")
    assert isinstance(first.content, str) == (version == "v0")
    model.invoke([HumanMessage("?"), first, ToolMessage("42", tool_call_id=first.tool_calls[0]["id"])])
    turn = engine.asked[1].prompt.text.split("assistant\n")[1]
    assert turn.count('"name": "add"') == 1
    assert "Let me see." in turn


def test_messages_written_for_anthropic_are_taken() -> None:
    model, engine = chat("Snow.")
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
    calls = {"type": "tool_use", "id": "c1", "name": "get_weather", "input": {"city": "Bonn"}}
    answer = {"type": "tool_result", "tool_use_id": "c1", "content": "snow"}
    model.invoke([HumanMessage("?"), AIMessage([thinking, {"type": "text", "text": "So."}, calls]), HumanMessage([answer])])
    assert "snow" in engine.asked[0].prompt.text
    assert "signature" not in engine.asked[0].prompt.text


@pytest.mark.parametrize(
    ("choice", "forced"),
    [("auto", False), ("none", False), (None, False), ("any", True), ("required", True), (True, True), ("add", True)],
)
def test_every_tool_choice_constrains_what_it_must(choice: Any, forced: bool) -> None:
    model, engine = chat(calling(("add", {"a": 1})) if forced else "No call.")
    bound = model.bind_tools(to_langchain(Functions(get_weather, add)), tool_choice=choice, parallel_tool_calls=False)
    answer = bound.invoke("?")
    assert bool(engine.asked[0].grammar) == forced
    assert [call["name"] for call in answer.tool_calls] == (["add"] if forced else [])
    assert ("get_weather" in engine.asked[0].prompt.text) == (choice not in ("none", "add"))


def test_strict_tools_are_constrained_where_the_model_may_choose_too() -> None:
    model, engine = chat("No call.")
    model.bind_tools(to_langchain(Functions(add)), strict=True).invoke("?")
    assert engine.asked[0].grammar


def test_a_choice_of_a_tool_that_is_not_there_is_refused() -> None:
    model, _ = chat("")
    with pytest.raises(UsageError, match="unknown tool 'subtract'"):
        model.bind_tools(to_langchain(Functions(add)), tool_choice="subtract").invoke("?")


@pytest.mark.parametrize(
    "cut", ['{"name": "get_weather", "arguments": {"city": "Köl', '{"name": "get_weather", "arguments": {"city"']
)
def test_a_call_that_broke_off_is_invalid_and_never_completed(cut: str) -> None:
    model, _ = chat(*[f"<tool_call>\n{cut}"] * 4)  # each answer is asked for once more
    bound = model.bind_tools(to_langchain(Functions(get_weather)))
    whole = bound.invoke("?")
    assert whole.tool_calls == []
    (invalid,) = whole.invalid_tool_calls
    assert invalid["name"] == "get_weather"
    assert invalid["error"]
    pieces: Any = list(bound.stream("?"))
    streamed = sum(pieces[1:], pieces[0])
    assert streamed.tool_calls == []
    assert [call["name"] for call in streamed.invalid_tool_calls] == ["get_weather"]


def test_a_call_that_broke_off_stands_before_the_message_about_it() -> None:
    cut = '{"name": "get_weather", "arguments": {"city": "Köl'
    model, engine = chat(*[f"<tool_call>\n{cut}"] * 2, "Snow.")
    agent: Any = create_agent(model, to_langchain(Functions(get_weather)), checkpointer=InMemorySaver())
    agent.invoke({"messages": [HumanMessage("How is it in Köln?")]}, CONFIG)
    state = agent.invoke({"messages": [HumanMessage("Try again.")]}, CONFIG)
    assert state["messages"][-1].text == "Snow."
    turns = engine.asked[-1].prompt.text.split("assistant\n")
    assert '"name": "get_weather"' in turns[1].partition("<tool_response>")[0]
    assert "malformed or truncated" in turns[1]


@pytest.mark.parametrize("include_raw", [False, True])
@pytest.mark.parametrize("schema", [Verdict, Verdict.model_json_schema()], ids=["type", "schema"])
@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
async def test_an_answer_of_a_schema_is_a_value_of_it(method: Any, schema: Any, include_raw: bool) -> None:
    text = '{"mood": "good", "points": 7}'
    model, engine = chat(calling(("Verdict", {"mood": "good", "points": 7})) if method == "function_calling" else text)
    answer: Any = await model.with_structured_output(schema, method=method, include_raw=include_raw).ainvoke("?")
    value = answer["parsed"] if include_raw else answer
    assert value == (Verdict(mood="good", points=7) if schema is Verdict else {"mood": "good", "points": 7})
    assert engine.asked[0].grammar
    if include_raw:
        assert isinstance(answer["raw"], AIMessage)
        assert answer["parsing_error"] is None


@pytest.mark.parametrize("schema", [Verdict, Verdict.model_json_schema()], ids=["type", "schema"])
def test_an_answer_that_broke_off_is_no_value(schema: Any) -> None:
    cut = '{"mood": "good", "points": 1'  # of 10
    model, _ = chat(cut, cut)
    with pytest.raises(OutputParserException, match="broke off"):
        model.with_structured_output(schema).invoke("?")
    answer: Any = model.with_structured_output(schema, include_raw=True).invoke("?")
    assert (answer["parsed"], answer["raw"].text) == (None, cut)
    assert isinstance(answer["parsing_error"], OutputParserException)


def test_values_are_streamed_as_they_grow_and_read_in_a_fence_too() -> None:
    text = '{"mood": "good", "points": 7}'
    model, _ = chat(text, f"```json\n{text}\n```")
    values = list(model.with_structured_output(Verdict.model_json_schema()).stream("?"))
    assert values[-1] == {"mood": "good", "points": 7}
    assert len(values) > 2
    assert model.with_structured_output(Verdict).invoke("?") == Verdict(mood="good", points=7)


def test_a_schema_may_come_wrapped_as_openai_takes_it() -> None:
    named = {"name": "Verdict", "schema": Verdict.model_json_schema(), "strict": True}
    for wrapped in (named, {"type": "json_schema", "json_schema": named}):
        model, engine = chat('{"mood": "good", "points": 7}')
        assert model.with_structured_output(wrapped).invoke("?") == {"mood": "good", "points": 7}
        assert "mood" in str(engine.asked[0].grammar)


def test_an_agent_answers_with_a_value_over_a_model_that_is_open() -> None:
    model, _ = chat(calling(BOTH[1]), calling(("Verdict", {"mood": "good", "points": 7})))
    agent: Any = create_agent(model, to_langchain(Functions(add)), response_format=Verdict)
    assert agent.invoke({"messages": [HumanMessage("?")]})["structured_response"] == Verdict(mood="good", points=7)


def test_a_method_that_does_not_exist_is_refused() -> None:
    model, _ = chat("")
    with pytest.raises(UsageError, match="expected one of json_schema, function_calling, json_mode"):
        model.with_structured_output(Verdict, method="magic")  # pyright: ignore


def test_settings_come_from_the_model_and_from_the_call() -> None:
    model, engine = chat("one two three", "four", temperature=0.5, max_tokens=100, model_kwargs={"top_k": 7})
    assert model.invoke("?", stop=["three"]).text == "one two "
    model.invoke("?", temperature=0.25, seed=3)
    first, second = (request.sampling for request in engine.asked)
    assert (first.temperature, first.max_tokens, first.top_k, first.stop) == (0.5, 100, 7, ("three",))
    assert (second.temperature, second.seed) == (0.25, 3)


def test_a_spec_is_opened_when_it_is_first_asked_and_another_can_be_named() -> None:
    model = ChatCallsmith(model="scripted:Hello there.")
    assert model.invoke("?").text == "Hello there."
    other = model.invoke("?", model="scripted:Bye.")
    assert (other.text, other.response_metadata["model_name"]) == ("Bye.", "scripted:Bye.")
    model.close()


def test_a_model_whose_fields_are_configured_is_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(asking, "open_model", lambda spec, options: opened.append(spec) or open_model(spec, options))
    fields = {"temperature": ConfigurableField("heat"), "model": ConfigurableField("which")}
    model = ChatCallsmith(model="scripted:Hello.").configurable_fields(**fields)  # pyright: ignore
    answers = [model.invoke("?", {"configurable": {"heat": 0.5}}).text for _ in range(2)]
    answers += [model.invoke("?", {"configurable": {"which": "scripted:Bye."}}).text for _ in range(2)]
    assert answers == ["Hello.", "Hello.", "Bye.", "Bye."]
    assert opened == ["scripted:Hello.", "scripted:Bye."]


def test_a_copy_with_another_model_asks_that_one() -> None:
    model = ChatCallsmith(model="scripted:Hello.")
    assert model.invoke("?").text == "Hello."
    other = model.model_copy(update={"model": "scripted:Bye."})
    assert (other.invoke("?").text, model.invoke("?").text) == ("Bye.", "Hello.")


def test_answers_in_a_cache_are_those_of_a_model_of_the_same_settings() -> None:
    cache = InMemoryCache()
    model, engine = chat("one two three", "one two three", cache=cache)
    brief = ChatCallsmith(model=model.model, stop=["two"], cache=cache)
    assert [asked.invoke("?").text for asked in (model, brief, model, brief)] == ["one two three", "one "] * 2
    assert len(engine.asked) == 2


def test_a_setting_with_a_wrong_name_is_refused() -> None:
    with pytest.raises(ValueError, match="temprature"):
        ChatCallsmith(model="scripted:x", temprature=1)  # pyright: ignore


# --- human in the loop ----------------------------------------------------------------------------------------------------------

ASKED = {"messages": [HumanMessage("Pay Ada 5.")]}
CONFIG: Any = {"configurable": {"thread_id": "1"}}


def paused(*last: str) -> tuple[Any, Any]:
    """An agent that was asked to pay, and what it was interrupted with."""
    model, _ = chat(calling(("pay", {"to": "Ada", "amount": 5})), *last)
    agent = create_agent(model, to_langchain(Confirmed(Functions(pay))), checkpointer=InMemorySaver())
    state = agent.invoke(ASKED, CONFIG)
    return agent, state["__interrupt__"][0].value


def tool_message(state: Any) -> ToolMessage:
    (message,) = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    return message


@pytest.mark.parametrize(
    ("decision", "content", "status"),
    [
        (Approved(), "paid 5 to Ada", "success"),
        (Approved({"to": "Ada", "amount": 4}), "paid 4 to Ada", "success"),
        (Denied("too much"), "denied: too much", "error"),
    ],
)
def test_a_call_that_needs_approval_interrupts_a_graph_and_goes_on_with_the_decision(decision, content: str, status: str) -> None:
    agent, question = paused("Done.")
    (action,) = question["action_requests"]
    assert (action["name"], action["args"]) == ("pay", {"to": "Ada", "amount": 5})
    assert question["review_configs"] == [{"action_name": "pay", "allowed_decisions": ["approve", "edit", "reject"]}]
    state = agent.invoke(Command(resume={"decisions": [write_decision(decision, "pay")]}), CONFIG)
    message = tool_message(state)
    assert message.content.startswith(content)
    assert message.status == status
    assert state["messages"][-1].content == "Done."


async def test_the_same_in_an_async_graph() -> None:
    model, _ = chat(calling(("pay", {"to": "Ada", "amount": 5})), "Done.")
    agent = create_agent(model, to_langchain(Confirmed(Functions(pay))), checkpointer=InMemorySaver())
    assert (await agent.ainvoke(ASKED, CONFIG))["__interrupt__"]
    state = await agent.ainvoke(Command(resume={"decisions": [{"type": "approve"}]}), CONFIG)
    assert tool_message(state).content == "paid 5 to Ada"


def test_without_a_graph_nobody_can_be_asked_and_nothing_runs() -> None:
    (paying,) = to_langchain(Confirmed(Functions(pay)))
    with pytest.raises(ConfirmationRequired, match="pay has side effects"):
        paying.invoke({"to": "Ada", "amount": 5})


def test_an_edit_that_changes_the_tool_or_does_not_fit_runs_nothing() -> None:
    agent, _ = paused("Done.")
    with pytest.raises(UsageError, match="cannot become one of steal"):
        edit = {"type": "edit", "edited_action": {"name": "steal", "args": {}}}
        agent.invoke(Command(resume={"decisions": [edit]}), CONFIG)
    agent, _ = paused("Done.")
    edit = {"type": "edit", "edited_action": {"name": "pay", "args": {"to": 5}}}
    assert "do not fit" in tool_message(agent.invoke(Command(resume={"decisions": [edit]}), CONFIG)).content


def test_langchains_own_settings_become_a_policy() -> None:
    policy = read_interrupt_on({"get_weather": True, "pay": False, "add": {"allowed_decisions": ["approve"]}})
    model, _ = scripted_model(calling(("get_weather", {"city": "Bonn"}), ("pay", {"to": "Ada", "amount": 5})))
    ended = run_sync(model, Confirmed(Functions(get_weather, pay, add), policy), "?")
    assert ended.reason == "confirmation"
    assert [message.content for message in ended.messages if message.role == "tool"] == ["paid 5 to Ada"]
    with pytest.raises(UsageError, match="Rule"):
        read_interrupt_on({"pay": {"allowed_decisions": ["approve"], "when": lambda request: True}})


def test_a_wrong_number_of_decisions_is_refused() -> None:
    with pytest.raises(UsageError, match="1 calls wait for a decision, and 2 decisions came"):
        read_decisions({"decisions": [{"type": "approve"}] * 2}, [ConfirmationNeeded("q", Call("pay"))])

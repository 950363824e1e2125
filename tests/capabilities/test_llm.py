"""llm.chat and llm.tools.call as capabilities: versions, choices, tools of the caller and of the node, one end."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.port import CapabilityCall
from callsmith.capabilities.llm import LlmService, _WithIds
from callsmith.core.capability.authority import Authority
from callsmith.core.capability.execution import Execution
from callsmith.core.events import CallReady, CallStarted, ModelEvent, Stopped, Text
from callsmith.core.values import Call, Request
from callsmith.tools.functions import Functions
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame
from tests.capabilities.chatting import called, chat, chat_bus
from tests.fakes import FakeModel

SEARCH = {
    "name": "search",
    "description": "Search.",
    "parameters_schema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
CALL = called(("search", {"query": "hall"}))


class Client:
    """What a caller sends while a call runs."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    async def receive(self) -> dict[str, Any] | None:
        return await self.sent.get()


async def frames_of(bus: CapabilityBus, body: dict[str, Any], version: tuple[int, int] = (2, 0), **options: Any) -> list[Frame]:
    return [frame async for frame in bus.stream("llm.chat", version, body, **options)]


def text_of(frames: list[Frame]) -> str:
    return "".join(frame.data["text"] for frame in frames if frame.event == "token")


@pytest.mark.req("R122")
@pytest.mark.parametrize("version", [(2, 0), (1, 0)])
async def test_both_versions_answer_alike_streamed_and_whole(version: tuple[int, int]) -> None:
    bus, _ = chat_bus("It opens at 17:42.", "It opens at 17:42.")
    frames = await frames_of(bus, chat("When?"), version)
    assert (text_of(frames), frames[-1].event, frames[-1].data["stop_reason"]) == ("It opens at 17:42.", "done", "end")
    answer = await bus.call("llm.chat", version, chat("When?"))
    assert answer["output"] == {"message": {"role": "assistant", "content": "It opens at 17:42."}}
    assert {"model", "tokens_in", "tokens_out", "stop_reason", "ms"} <= set(answer["meta"])
    assert answer["meta"]["tokens_out"] > 0


@pytest.mark.req("R27")
@pytest.mark.req("R122")
@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("choice", ["auto", "required", {"name": "search"}])
async def test_tools_are_read_flat_and_wrapped_and_their_calls_come_back(wrapped: bool, choice: Any) -> None:
    bus, _ = chat_bus(CALL)
    inner = {"name": "search", "parameters": SEARCH["parameters_schema"]}
    tool = {"type": "function", "function": inner} if wrapped else SEARCH
    frames = await frames_of(bus, chat(tools=[tool], tool_choice=choice))
    (call,) = [frame.data for frame in frames if frame.event == "tool_call"]
    assert (call["name"], call["arguments"]) == ("search", {"query": "hall"})
    assert frames[-1].data["stop_reason"] == "tool_calls"
    whole = await chat_bus(CALL)[0].call("llm.chat", (2, 0), chat(tools=[tool], tool_choice=choice))
    assert [tool_call["arguments"] for tool_call in whole["output"]["tool_calls"]] == [{"query": "hall"}]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (chat(tools=[SEARCH], tool_choice={"name": "other"}), "bad_request"),
        (chat(tool_choice="required"), "bad_request"),
        (chat(tool_choice="sometimes"), "bad_request"),
        ({"params": {"model": "other"}, "input": chat()["input"]}, "not_found"),
        ({"params": {}, "input": {"messages": []}}, "schema_mismatch"),
        ({"params": {}, "input": {"messages": [{"role": "system", "content": "x"}]}}, "bad_request"),
        ({"params": {}, "input": {"messages": [{"role": "judge", "content": "x"}]}}, "bad_request"),
        ({"params": {}}, "schema_mismatch"),
        (chat(tools=[{"name": "x", "parameters_schema": {"type": "strnig"}}]), "bad_request"),
        (chat(tools=[{**SEARCH, "bound_capability": "rag.query"}]), "bad_request"),
        (chat(tools=[SEARCH] * 65), "schema_mismatch"),
    ],
)
async def test_what_is_wrong_is_one_error_with_its_code(body: dict[str, Any], code: str) -> None:
    bus, _ = chat_bus("Hi")
    frames = await frames_of(bus, body)
    assert [(frame.event, frame.data.get("error")) for frame in frames] == [("error", code)]
    with pytest.raises(BusError) as failed:
        await bus.call("llm.chat", (2, 0), body)
    assert failed.value.code == code


@pytest.mark.req("R108")
@pytest.mark.req("R110")
async def test_results_on_the_same_connection_and_in_the_next_call_lead_to_the_same_answer() -> None:
    inline, engine = chat_bus(CALL, "It opens at 17:42.")
    client, frames = Client(), list[Frame]()
    stream = inline.stream("llm.chat", (2, 0), chat("When?", tools=[SEARCH]), receive=client.receive)
    async for frame in stream:
        frames.append(frame)
        if frame.event == "tool_call":
            client.sent.put_nowait({"type": "tool_result", "tool_call_id": frame.data["id"], "body": {"chunks": ["17:42"]}})
    assert (text_of(frames), frames[-1].event, frames[-1].data["stop_reason"]) == ("It opens at 17:42.", "done", "end")

    again, other = chat_bus(CALL, "It opens at 17:42.")
    first = await frames_of(again, chat("When?", tools=[SEARCH]))
    (call,) = [{key: frame.data[key] for key in ("id", "name", "arguments")} for frame in first if frame.event == "tool_call"]
    messages = [
        {"role": "user", "content": "When?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": '{"chunks": ["17:42"]}'},
    ]
    second = await frames_of(again, {"params": {}, "input": {"messages": messages, "tools": [SEARCH]}})
    assert (text_of(second), second[-1].event) == ("It opens at 17:42.", "done")
    assert other.asked[1].prompt.text == engine.asked[1].prompt.text


async def test_a_loop_on_one_connection_is_limited_too() -> None:
    replies = [called(("search", {"query": f"q{number}"})) for number in range(6)]
    bus, engine = chat_bus(*replies, "Enough.")
    client, frames = Client(), list[Frame]()
    async for frame in bus.stream("llm.chat", (2, 0), chat(tools=[SEARCH]), receive=client.receive):
        frames.append(frame)
        if frame.event == "tool_call":
            client.sent.put_nowait({"type": "tool_result", "tool_call_id": frame.data["id"], "body": "nothing"})
    ids = [frame.data["id"] for frame in frames if frame.event == "tool_call"]
    assert (len(ids), len(set(ids)), text_of(frames)) == (6, 6, "Enough.")
    assert "iteration limit reached" in engine.asked[-1].prompt.text


@pytest.mark.parametrize(
    "message",
    [
        {"type": "tool_result", "tool_call_id": "other", "body": {}},
        {"type": "tool_result", "body": {}},
        {"type": "shout", "tool_call_id": "x"},
        {"type": "confirmation", "tool_call_id": "x", "approve": True},
        {"type": "tool_result", "tool_call_id": 5},
    ],
)
async def test_a_result_that_nobody_waits_for_ends_the_call_with_an_error(message: dict[str, Any]) -> None:
    bus, _ = chat_bus(CALL, "never")
    client = Client()
    client.sent.put_nowait(message)
    frames = await frames_of(bus, chat(tools=[SEARCH]), receive=client.receive)
    assert (frames[-1].event, frames[-1].data["error"]) == ("error", "bad_request")


async def test_a_failed_tool_of_the_caller_is_told_to_the_model() -> None:
    bus, engine = chat_bus(CALL, "It failed.")
    client = Client()
    async for frame in bus.stream("llm.chat", (2, 0), chat(tools=[SEARCH]), receive=client.receive):
        if frame.event == "tool_call":
            client.sent.put_nowait(
                {"type": "tool_result", "tool_call_id": frame.data["id"], "body": "no such file", "is_error": True}
            )
    assert "tool_error: no such file" in engine.asked[1].prompt.text


# --- tools that run where the model is ----------------------------------------------------------------------------------------


def bound(**more: Any) -> dict[str, Any]:
    return {**SEARCH, "bound_capability": "rag.query@1.0", "side_effects": False, **more}


def offer(bus: CapabilityBus, **options: Any) -> list[CapabilityCall]:
    calls: list[CapabilityCall] = []

    async def handle(call: CapabilityCall) -> dict[str, Any]:
        calls.append(call)
        return {"output": {"chunks": ["17:42"]}, "meta": {}}

    bus.register(Descriptor("rag.query", **options), handle)
    return calls


@pytest.mark.req("R219")
async def test_a_bound_tool_runs_at_the_model_with_the_authority_of_the_caller() -> None:
    bus, engine = chat_bus(CALL, "At 17:42.")
    calls = offer(bus, trust_required="member")
    ann = Authority("ann", ("node-b",), trust="member")
    frames = await frames_of(bus, chat(tools=[bound()]), authority=ann)
    assert (text_of(frames), frames[-1].data["stop_reason"]) == ("At 17:42.", "end")
    assert [frame.event for frame in frames if frame.event.startswith("tool_")][-2:] == ["tool_call", "tool_result"]
    assert (calls[0].authority.subject, calls[0].authority.via, calls[0].authority.trust) == ("ann", ("node-b",), "member")
    assert "17:42" in engine.asked[1].prompt.text


@pytest.mark.req("R13")
@pytest.mark.parametrize("version", ["1.0", [1, 0]])
async def test_the_capability_of_a_tool_and_its_version_are_read_as_two_fields(version: Any) -> None:
    bus, _ = chat_bus(called(("search", {"query": "hall"})), "It opens at 17:42.")
    calls = offer(bus)
    frames = await frames_of(bus, chat(tools=[bound(bound_capability="rag.query", bound_version=version)]))
    assert (text_of(frames), len(calls)) == ("It opens at 17:42.", 1)


async def test_a_bound_tool_cannot_do_more_than_the_caller() -> None:
    bus, engine = chat_bus(CALL, "I may not.")
    calls = offer(bus, trust_required="trusted")
    await frames_of(bus, chat(tools=[bound()]), authority=Authority("ann", trust="member"))
    assert calls == []
    assert "unauthorized" in engine.asked[1].prompt.text


@pytest.mark.req("R94")
@pytest.mark.parametrize(("approve", "ran"), [(True, 1), (False, 0)])
async def test_a_bound_tool_with_side_effects_waits_for_a_word_on_the_same_connection(approve: bool, ran: int) -> None:
    bus, _ = chat_bus(CALL, "So it is.")
    calls = offer(bus)
    client, frames = Client(), list[Frame]()
    async for frame in bus.stream("llm.chat", (2, 0), chat(tools=[bound(side_effects=True)]), receive=client.receive):
        frames.append(frame)
        if frame.event == "confirmation_required":
            assert calls == []
            client.sent.put_nowait({"type": "confirmation", "tool_call_id": frame.data["id"], "approve": approve})
    assert (len(calls), text_of(frames), frames[-1].event) == (ran, "So it is.", "done")


async def test_without_a_connection_the_decision_comes_with_the_next_call() -> None:
    bus, _ = chat_bus(CALL, "Posted.")
    calls = offer(bus)
    tools = [bound(side_effects=True)]
    first = await frames_of(bus, chat(tools=tools))
    assert (first[-1].data["stop_reason"], calls) == ("confirmation_required", [])
    (question,) = [frame.data for frame in first if frame.event == "confirmation_required"]
    call = {key: question[key] for key in ("id", "name", "arguments")}
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "tool_calls": [call]}]
    body = {"messages": messages, "tools": tools, "confirmations": {question["id"]: {"approve": True}}}
    second = await frames_of(bus, {"params": {}, "input": body})
    assert (text_of(second), len(calls)) == ("Posted.", 1)


async def test_a_request_without_tools_is_offered_those_of_the_node() -> None:
    def clock() -> str:
        """What time is it?"""
        return "17:42"

    bus, engine = chat_bus(called(("clock", {})), "17:42.", tools=Functions(clock))
    frames = await frames_of(bus, chat("What time is it?"))
    assert text_of(frames) == "17:42."
    assert "17:42" in engine.asked[1].prompt.text


async def test_cancelling_a_chat_stops_the_model() -> None:
    bus, _ = chat_bus("word " * 10_000)
    stream = bus.stream("llm.chat", (2, 0), chat())
    await anext(stream)
    async with asyncio.timeout(1):
        await stream.aclose()
    assert bus.trace.recent()[-1].result == "cancelled"


class SlowToEnd:
    """A model that says one word, and takes a moment to end when it is cancelled."""

    def __init__(self) -> None:
        self.log = list[str]()

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        try:
            yield Text("Well")
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.02)
            self.log.append("the model has ended")

    @asynccontextmanager
    async def admission(self, call: CapabilityCall) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self.log.append("its place is free")


@pytest.mark.parametrize("by", ["its reader", "its deadline"])
async def test_a_chat_that_is_cut_off_keeps_its_place_until_the_model_has_ended_and_is_recorded_as_cancelled(by: str) -> None:
    model, outcomes = SlowToEnd(), list[str]()

    async def audit(execution: Execution) -> None:
        outcomes.append(execution.outcome)

    bus = CapabilityBus()
    bus.audit = audit
    LlmService(bus, {"m": model}, admission=model.admission).register()
    if by == "its reader":
        stream = bus.stream("llm.chat", (2, 0), chat())
        await anext(stream)
        await stream.aclose()
    else:
        with pytest.raises(BusError) as failed:
            await bus.call("llm.chat", (2, 0), chat(), timeout=1)
        assert failed.value.code == "timeout"
    assert model.log == ["the model has ended", "its place is free"]
    assert outcomes == ["", "cancelled"]


# --- llm.tools.call -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("R123")
@pytest.mark.req("R124")
async def test_a_capability_is_called_as_a_tool_and_its_answer_is_the_answer() -> None:
    bus, _ = chat_bus()
    calls = offer(bus)
    body = {
        "tool_call_id": "tc_1",
        "target_capability": "rag.query@1.0",
        "target_body": {"params": {}, "input": {"query": "hall"}},
    }
    answer = await bus.call("llm.tools.call", (1, 0), {"params": {}, "input": body}, authority=Authority("ann", trust="member"))
    assert answer == {"output": {"chunks": ["17:42"]}, "meta": {}}
    assert (calls[0].authority.subject, calls[0].input) == ("ann", {"query": "hall"})


@pytest.mark.req("R123")
@pytest.mark.parametrize(
    ("target", "code"),
    [
        ({"target_capability": "rag.query", "target_body": {}}, "bad_request"),
        ({"target_capability": "rag.other@1.0", "target_body": {}}, "not_found"),
        ({"target_capability": "rag.query@2.0", "target_body": {}}, "schema_mismatch"),
        ({"target_capability": "rag.query@1.0", "target_body": {"input": {}}}, "schema_mismatch"),
        ({"target_capability": "rag.query@1.0"}, "schema_mismatch"),
    ],
)
async def test_the_body_is_held_to_the_schema_of_the_target(target: dict[str, Any], code: str) -> None:
    bus, _ = chat_bus()
    needs_query = {"type": "object", "properties": {"input": {"type": "object", "required": ["query"]}}}
    calls = offer(bus, request_schema=needs_query)
    with pytest.raises(BusError) as failed:
        await bus.call("llm.tools.call", (1, 0), {"input": target})
    assert (failed.value.code, calls) == (code, [])


@pytest.mark.req("R123")
@pytest.mark.parametrize(
    "target",
    [
        {"target_capability": "rag.query@1.0"},
        {"target_capability": "rag.query", "target_version": "1.0"},
        {"target_capability": "rag.query", "target_version": [1, 0]},
        {"target_capability": "rag.query@1.0", "target_version": "1.0"},
    ],
)
async def test_the_version_of_a_target_is_a_field_of_its_own_or_stands_in_its_name_and_the_audit_log_has_both(
    target: Any,
) -> None:
    bus, _ = chat_bus()
    records: list[Execution] = []

    async def audit(execution: Execution) -> None:
        records.append(execution)

    bus.audit = audit
    offer(bus)
    await bus.call("llm.tools.call", (1, 0), {"input": {**target, "target_body": {"input": {"query": "hall"}}}})
    last = records[-1]
    assert (last.name, last.target_capability, last.target_version, last.outcome) == ("llm.tools.call", "rag.query", "1.0", "ok")


@pytest.mark.parametrize(
    "target",
    [
        {"target_capability": "rag.query@1.0", "target_version": "1.1"},
        {"target_capability": "rag.query", "target_version": "one"},
        {"target_capability": "rag.query", "target_version": [1]},
        {"target_capability": "rag.query", "target_version": [True, 0]},
    ],
)
async def test_a_version_that_is_none_or_another_than_the_one_in_the_name_is_refused(target: Any) -> None:
    bus, _ = chat_bus()
    calls = offer(bus)
    with pytest.raises(BusError) as failed:
        await bus.call("llm.tools.call", (1, 0), {"input": {**target, "target_body": {"input": {"query": "hall"}}}})
    assert (failed.value.code in ("bad_request", "schema_mismatch"), calls) == (True, [])


async def test_a_model_that_says_nothing_for_long_gives_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callsmith.capabilities.llm.SIGN_OF_LIFE_SECONDS", 0.02)
    bus = CapabilityBus()
    silent = FakeModel([0.1, Text("At last."), Stopped("stop")])
    LlmService(bus, {"m": silent}).register()
    frames = await frames_of(bus, chat())
    assert {"progress", "token", "done"} == {frame.event for frame in frames}
    assert text_of(frames) == "At last."


async def test_calls_have_their_ids_from_their_first_event_on() -> None:
    writer: Any = SimpleNamespace(new_id=lambda index: f"new_{index}")
    calls = [CallStarted(0, "a", "own"), CallReady(0, Call("a", {}, "own")), CallStarted(1, "b"), CallReady(1, Call("b", {}))]
    events = [event async for event in _WithIds(FakeModel([*calls, Stopped("calls")]), writer).stream(Request(()))]
    assert [event.id for event in events if isinstance(event, CallStarted)] == ["own", "new_1"]
    assert [event.call.id for event in events if isinstance(event, CallReady)] == ["own", "new_1"]

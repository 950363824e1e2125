"""ToolExecutor: chats with tools over a bus; the tests that its description names, under their names."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.port import CapabilityCall
from callsmith.bus.reach import CapabilityTools, bound_tool
from callsmith.capabilities.executor import ToolExecutor
from callsmith.core.approval import Approved, ConfirmationRequired, Denied
from callsmith.core.capability.authority import Authority
from callsmith.core.errors import UsageError
from callsmith.core.events import ConfirmationNeeded
from callsmith.core.values import Call, Tool
from callsmith.tools.define import integer, object_, string
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame
from tests.capabilities.chatting import called, chat, chat_bus

SEARCH = bound_tool(
    "search_corpus",
    "Search a corpus.",
    object_({"corpus": string(), "query": string(), "k": integer()}, required=["corpus", "query"]),
    "rag.query@1.0",
    params=["corpus"],
)
POST = bound_tool("market_post", "Post an offer.", object_({"title": string()}), "market.post@1.0", side_effects=True)
FOUND = {"corpus": "village", "query": "hall"}


def offer(bus: CapabilityBus, name: str, answer: Any = None, **options: Any) -> list[CapabilityCall]:
    """Offer a capability; the list has the calls of it."""
    calls: list[CapabilityCall] = []

    async def handle(call: CapabilityCall) -> dict[str, Any]:
        calls.append(call)
        result = answer(call) if callable(answer) else answer
        return {"output": await result if asyncio.iscoroutine(result) else result, "meta": {}}

    bus.register(Descriptor(name, **options), handle)
    return calls


async def frames_of(executor: ToolExecutor, body: dict[str, Any], **options: Any) -> tuple[dict[str, Any], list[Frame]]:
    frames: list[Frame] = []

    async def take(frame: dict[str, Any]) -> None:
        frames.append(Frame(**frame))

    return await executor.run_chat_with_tools(body, stream_to=take, **options), frames


@pytest.mark.req("R13")
@pytest.mark.req("R88")
def test_tool_definition_to_native_format() -> None:
    executor = ToolExecutor(CapabilityBus(), [SEARCH])
    assert executor.native_definitions == [
        {"name": "search_corpus", "description": "Search a corpus.", "parameters_schema": SEARCH.parameters}
    ]
    assert (SEARCH.bound_capability, SEARCH.bound_version, SEARCH.side_effects) == ("rag.query", (1, 0), False)


@pytest.mark.req("R89")
@pytest.mark.req("R99")
@pytest.mark.req("R165")
@pytest.mark.parametrize(
    ("call", "code", "text"),
    [
        (Call("search_corpus", {"corpus": "village"}, "c1"), "bad_request", "invalid_arguments: "),
        (Call("search_corpus", {**FOUND, "k": "many"}, "c1"), "bad_request", "invalid_arguments: "),
        (Call("search_korpus", FOUND, "c1"), "bad_request", "search_corpus"),
    ],
)
async def test_dispatch_validates_arguments(call: Call, code: str, text: str) -> None:
    bus = CapabilityBus()
    calls = offer(bus, "rag.query", {"chunks": []})
    result = await ToolExecutor(bus, [SEARCH]).dispatch(call)
    assert (result.ok, result.code, text in result.text, calls) == (False, code, True, [])


@pytest.mark.req("R89")
async def test_arguments_go_where_the_binding_says() -> None:
    bus = CapabilityBus()
    calls = offer(bus, "rag.query", {"chunks": ["17:42"]})
    result = await ToolExecutor(bus, [SEARCH]).dispatch(Call("search_corpus", {**FOUND, "k": 3}, "c1"))
    assert (result.ok, result.content) == (True, {"chunks": ["17:42"]})
    assert calls[0].body == {"params": {"corpus": "village"}, "input": {"query": "hall", "k": 3}}


async def test_constants_are_the_bindings_and_not_the_models() -> None:
    bus = CapabilityBus()
    calls = offer(bus, "img.describe", {"caption": "a hall"})
    tool = bound_tool(
        "describe",
        "",
        {"type": "object"},
        "img.describe@1.0",
        params=["backend"],
        constants={"params.backend": "small", "input.task": "caption"},
    )
    await ToolExecutor(bus, [tool]).dispatch(Call("describe", {"backend": "large", "task": "ocr", "image_cid": "x"}, "c1"))
    assert calls[0].body == {"params": {"backend": "small"}, "input": {"image_cid": "x", "task": "caption"}}


@pytest.mark.req("R167")
@pytest.mark.req("R168")
@pytest.mark.req("R170")
@pytest.mark.parametrize(
    "code", ["timeout", "internal_error", "token_scope_insufficient", "not_found", "partition", "rate_limited"]
)
async def test_what_the_capability_fails_with_is_the_code_of_the_result(code: str) -> None:
    bus = CapabilityBus()

    def fail(call: CapabilityCall) -> Any:
        raise BusError(code, "because")

    offer(bus, "rag.query", fail)
    result = await ToolExecutor(bus, [SEARCH]).dispatch(Call("search_corpus", FOUND, "c1"))
    assert (result.ok, result.code, result.text) == (False, code, f"{code}: because")


async def test_a_capability_that_nobody_offers_is_a_result_too() -> None:
    result = await ToolExecutor(CapabilityBus(), [SEARCH]).dispatch(Call("search_corpus", FOUND, "c1"))
    assert (result.ok, result.code) == (False, "not_found")


async def test_a_tool_has_the_time_that_the_executor_gives_it() -> None:
    bus = CapabilityBus()
    offer(bus, "rag.query", lambda call: asyncio.sleep(30))
    executor = ToolExecutor(bus, [SEARCH], per_tool_timeout_seconds=0.05)
    assert (await executor.dispatch(Call("search_corpus", FOUND, "c1"))).code == "timeout"


@pytest.mark.req("R93")
async def test_side_effect_tool_requires_confirmation() -> None:
    bus = CapabilityBus()
    calls = offer(bus, "market.post", {"id": 7})
    executor, call = ToolExecutor(bus, [POST]), Call("market_post", {"title": "bicycle"}, "c1")
    with pytest.raises(ConfirmationRequired, match="requires_confirmation"):
        await executor.dispatch(call)
    assert calls == []
    assert (await executor.dispatch_confirmed(call)).content == {"id": 7}
    assert len(calls) == 1
    assert (await ToolExecutor(bus, [POST], confirm_side_effects=False).dispatch(call)).ok


async def test_a_provider_that_has_side_effects_makes_its_tool_have_some() -> None:
    bus = CapabilityBus()
    offer(bus, "market.post", {"id": 7}, side_effects=True)
    harmless = bound_tool("market_post", "", {"type": "object"}, "market.post@1.0")
    with pytest.raises(ConfirmationRequired):
        await ToolExecutor(bus, [harmless]).dispatch(Call("market_post", {}, "c1"))


# --- chats --------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("R87")
@pytest.mark.req("R90")
@pytest.mark.req("R125")
async def test_a_chat_runs_what_the_model_calls_and_returns_its_last_message() -> None:
    bus, engine = chat_bus(called(("search_corpus", FOUND)), "It opens at 17:42.")
    calls = offer(bus, "rag.query", {"chunks": [{"text": "The hall opens at 17:42."}]})
    message, frames = await frames_of(ToolExecutor(bus, [SEARCH]), chat("When?"))
    assert message == {"role": "assistant", "content": "It opens at 17:42."}
    assert calls[0].input == {"query": "hall"}
    assert "opens at 17:42" in engine.asked[1].prompt.text
    assert [frame.event for frame in frames if frame.event not in ("token", "tool_call_delta")] == [
        "tool_call",
        "tool_result",
        "done",
    ]
    assert [frame.seq for frame in frames] == list(range(1, len(frames) + 1))


@pytest.mark.req("R104")
@pytest.mark.req("R105")
@pytest.mark.req("R106")
@pytest.mark.req("R107")
async def test_frames_have_the_shape_that_is_described() -> None:
    bus, _ = chat_bus(f"I'll search. {called(('search_corpus', FOUND))}", "Done.")
    offer(bus, "rag.query", {"chunks": []})
    _, frames = await frames_of(ToolExecutor(bus, [SEARCH]), chat())
    assert frames[0].event == "token"
    assert "".join(frame.data["text"] for frame in frames if frame.event == "token").startswith("I'll search. ")
    deltas = [frame.data for frame in frames if frame.event == "tool_call_delta"]
    assert set(deltas[0]) == {"id", "name", "arguments_delta", "index"}
    assert all(set(delta) == {"id", "arguments_delta", "index"} for delta in deltas[1:])
    assert json.loads("".join(delta["arguments_delta"] for delta in deltas)) == FOUND
    (call,) = [frame.data for frame in frames if frame.event == "tool_call"]
    assert (call["id"], call["name"], call["arguments"]) == (deltas[0]["id"], "search_corpus", FOUND)
    assert [frame.event for frame in frames].count("done") == 1
    assert (frames[-1].event, frames[-1].data["stop_reason"]) == ("done", "end")


@pytest.mark.req("R92")
@pytest.mark.req("R169")
async def test_iteration_limit_forces_finalisation() -> None:
    bus, engine = chat_bus(*[called(("search_corpus", {**FOUND, "k": number})) for number in range(3)], "This is all I know.")
    calls = offer(bus, "rag.query", {"chunks": []})
    message, frames = await frames_of(ToolExecutor(bus, [SEARCH], max_iterations=2), chat())
    assert (len(calls), message["content"]) == (2, "This is all I know.")
    assert "iteration limit reached; finalise your answer" in engine.asked[-1].prompt.text
    assert frames[-1].event == "done"


@pytest.mark.req("R95")
async def test_parallel_tool_calls_collected() -> None:
    questions = [{**FOUND, "query": f"q{number}"} for number in range(6)]
    bus, engine = chat_bus(called(*[("search_corpus", question) for question in questions]), "All found.")
    running = most = 0

    async def slowly(call: CapabilityCall) -> dict[str, Any]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1
        return {"found": call.input["query"]}

    offer(bus, "rag.query", slowly)
    message, frames = await frames_of(ToolExecutor(bus, [SEARCH]), chat())
    assert (most, message["content"]) == (4, "All found.")
    results = [frame.data["content"]["found"] for frame in frames if frame.event == "tool_result"]
    assert sorted(results) == [f"q{number}" for number in range(6)]
    prompt_text = engine.asked[1].prompt.text
    assert [prompt_text.index(f'"q{number}"', prompt_text.index("tool_response")) for number in range(6)] == sorted(
        prompt_text.index(f'"q{number}"', prompt_text.index("tool_response")) for number in range(6)
    )


@pytest.mark.req("R94")
@pytest.mark.req("R111")
@pytest.mark.req("R192")
@pytest.mark.parametrize(
    ("decision", "posted"),
    [(Approved(), ["bicycle"]), (Approved({"title": "red bicycle"}), ["red bicycle"]), (Denied("not now"), [])],
)
async def test_market_post_requires_confirmation(decision: Any, posted: list[str]) -> None:
    bus, engine = chat_bus(called(("market_post", {"title": "bicycle"})), "So it is.")
    calls = offer(bus, "market.post", {"id": 7})
    seen: list[ConfirmationNeeded] = []

    async def decide(needed: ConfirmationNeeded) -> Any:
        assert calls == []
        seen.append(needed)
        return decision

    message, frames = await frames_of(ToolExecutor(bus, [POST]), chat(), decide=decide)
    (question,) = [frame.data for frame in frames if frame.event == "confirmation_required"]
    assert {"id", "name", "arguments", "reason"} <= set(question)
    assert (question["name"], question["arguments"]) == ("market_post", {"title": "bicycle"})
    assert ([call.input["title"] for call in calls], len(seen), message["content"]) == (posted, 1, "So it is.")
    if not posted:
        assert "not now" in engine.asked[1].prompt.text


@pytest.mark.req("R91")
@pytest.mark.req("R109")
async def test_a_chat_that_waits_goes_on_with_the_result_of_the_confirmed_call() -> None:
    bus, engine = chat_bus(called(("market_post", {"title": "bicycle"})), "It is posted.")
    calls = offer(bus, "market.post", {"id": 7})
    executor, body = ToolExecutor(bus, [POST]), chat("Offer my bicycle.")
    waiting = await executor.run_chat_with_tools(body)
    (question,) = waiting.pop("confirmations")
    assert calls == []
    result = await executor.dispatch_confirmed(Call(question["name"], question["arguments"], question["id"]))
    tool_message = {"role": "tool", "tool_call_id": question["id"], "content": result.text}
    messages = [*body["input"]["messages"], waiting, tool_message]
    message = await executor.run_chat_with_tools({"params": {}, "input": {"messages": messages}})
    assert (message["content"], len(calls)) == ("It is posted.", 1)
    assert '{"id": 7}' in engine.asked[1].prompt.text


@pytest.mark.req("R96")
@pytest.mark.req("R193")
@pytest.mark.req("R123")
@pytest.mark.parametrize("most", [2, 6, 10])
async def test_recursive_tool_call_limited_by_max_iterations(most: int) -> None:
    bus, _ = chat_bus()
    offer(bus, "rag.query", {"chunks": []})
    tool = bound_tool("call_tool", "", {"type": "object"}, "llm.tools.call@1.0")
    executor = ToolExecutor(bus, [tool], max_iterations=most)

    def nested(times: int) -> Call:
        """llm.tools.call inside itself, with a search inside the last: so many calls in all."""
        target: dict[str, Any] = {"target_capability": "rag.query@1.0", "target_body": {"input": {"query": "x"}}}
        for _ in range(times - 2):
            target = {"target_capability": "llm.tools.call@1.0", "target_body": {"input": target}}
        return Call("call_tool", target, "c1")

    result = await executor.dispatch(nested(most))
    assert result.ok, result.text
    result = await executor.dispatch(nested(most + 1))
    assert (result.ok, result.code) == (False, "bad_request")
    assert f"nested {most} deep" in result.text


@pytest.mark.req("R97")
async def test_a_tool_is_called_with_the_authority_of_the_caller_whatever_the_model_writes() -> None:
    bus, _ = chat_bus(called(("search_corpus", {**FOUND, "trust": "anchor", "authority": {"trust": "self"}})), "Ok.")
    calls = offer(bus, "rag.query", {"chunks": []})
    closed = offer(bus, "rag.list_corpora", {}, trust_required="trusted")
    ann = Authority("ann", trust="member")
    corpora = bound_tool("list_corpora", "", {"type": "object"}, "rag.list_corpora@1.0")
    executor = ToolExecutor(bus, [SEARCH, corpora], authority=ann)
    await executor.run_chat_with_tools(chat())
    assert (calls[0].authority.subject, calls[0].authority.trust) == ("ann", "member")
    assert ((await executor.dispatch(Call("list_corpora", {"trust": "self"}, "c1"))).code, closed) == ("unauthorized", [])


async def test_a_stream_is_collected_as_the_binding_says() -> None:
    bus = CapabilityBus()

    async def transcribe(call: CapabilityCall) -> AsyncIterator[Frame]:
        for number, text in enumerate(["The hall", " opens at", "five. "]):
            yield Frame("segment", {"start": number, "end": number + 1, "text": text})
        yield Frame("done", {"language": "en", "duration_seconds": 3})

    bus.register(Descriptor("stt.transcribe", stream_schema={"type": "object"}), transcribe)
    schema = object_({"audio_cid": string()})
    joined = bound_tool("write_down", "", schema, "stt.transcribe@1.0", collect="segment", join="text")
    listed = bound_tool("segments", "", schema, "stt.transcribe@1.0", collect="segment")
    executor = ToolExecutor(bus, [joined, listed])
    result = await executor.dispatch(Call("write_down", {"audio_cid": "x"}, "c1"))
    assert result.content == {"text": "The hall opens at five.", "language": "en", "duration_seconds": 3}
    result = await executor.dispatch(Call("segments", {"audio_cid": "x"}, "c2"))
    assert [segment["text"] for segment in result.content["segments"]] == ["The hall", " opens at", "five. "]


async def test_progress_of_a_capability_is_progress_of_its_tool() -> None:
    bus, _ = chat_bus(called(("paint", {"prompt": "hall"})), "Painted.")

    async def paint(call: CapabilityCall) -> AsyncIterator[Frame]:
        for step in (1, 2):
            yield Frame("progress", {"step": step, "total": 2})
        yield Frame("done", {"image_cid": "i1"})

    bus.register(Descriptor("img.generate", stream_schema={"type": "object"}), paint)
    tool = bound_tool("paint", "", object_({"prompt": string()}), "img.generate@1.0")
    _, frames = await frames_of(ToolExecutor(bus, [tool]), chat())
    assert [frame.data["current"] for frame in frames if frame.event == "tool_progress"] == [1, 2]
    assert [frame.data["content"] for frame in frames if frame.event == "tool_result"] == [{"image_cid": "i1"}]


async def test_a_model_that_is_away_ends_the_stream_with_an_error() -> None:
    frames: list[dict[str, Any]] = []

    async def take(frame: dict[str, Any]) -> None:
        frames.append(frame)

    with pytest.raises(BusError, match=r"nobody offers llm\.chat"):
        await ToolExecutor(CapabilityBus(), [SEARCH]).run_chat_with_tools(chat(), stream_to=take)
    assert [(frame["event"], frame["data"]["error"]) for frame in frames] == [("error", "not_found")]


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: CapabilityTools(CapabilityBus(), [Tool("add")]), "bound to no capability"),
        (lambda: bound_tool("x", "", {}, "rag.query"), "with its version"),
        (lambda: bound_tool("x", "", {}, "rag.query@1.0", constants={"task": 1}), r"params\.NAME or input\.NAME"),
    ],
)
def test_what_makes_no_sense_is_said_when_it_is_built(make: Any, complaint: str) -> None:
    with pytest.raises((UsageError, BusError), match=complaint):
        make()

"""A bus over HTTP does what the bus of the server does in process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from callsmith.bus import flow
from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.http import HttpTransport
from callsmith.bus.opening import open_bus
from callsmith.bus.port import CapabilityCall
from callsmith.capabilities.executor import ToolExecutor
from callsmith.core.capability.authority import Authority
from callsmith.core.errors import UsageError
from callsmith.server.app import create_app
from callsmith.server.http.keys import hash_key
from callsmith.server.parts.bus.part import BusPart
from callsmith.server.settings import Key, Settings
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame
from tests.capabilities.chatting import called, chat, chat_bus
from tests.fakes import FakeModel
from tests.server.asking import says
from tests.server.routes.bus.calling import BODY, Scripted, scripted_bus
from tests.serving import served
from tests.waiting import until


class Places:
    """A bus in process, and the same over HTTP."""

    def __init__(self, local: CapabilityBus, remote: CapabilityBus, scripted: Scripted) -> None:
        self.local, self.remote, self.scripted = local, remote, scripted


def app_of(bus: CapabilityBus, **settings: Any) -> Starlette:
    return create_app({"m": FakeModel(says("hi"))}, parts=[BusPart(bus)], settings=Settings(**settings))


@asynccontextmanager
async def reached(bus: CapabilityBus, key: str = "", **settings: Any) -> AsyncIterator[CapabilityBus]:
    """A bus whose capabilities are those of another one, over HTTP."""
    async with served(app_of(bus, **settings)) as url, open_bus(url, key=key) as remote:
        yield remote


@pytest.fixture
async def places() -> AsyncIterator[Places]:
    bus, scripted = scripted_bus()
    async with reached(bus) as remote:
        yield Places(bus, remote, scripted)


async def outcome(bus: CapabilityBus, *call: Any, **options: Any) -> Any:
    try:
        return await bus.call(*call, **options)
    except BusError as error:
        return error.code, error.message, error.seconds


async def frames_of(bus: CapabilityBus, body: Any, **options: Any) -> list[Frame]:
    return [frame async for frame in bus.stream("llm.chat", (2, 0), body, **options)]


@pytest.mark.parametrize(
    "call",
    [
        ("rag.query", (1, 0), BODY),
        ("rag.query", (1, 1), BODY),
        ("rag.query", (2, 0), BODY),
        ("rag.query", (1, 0), {"input": {}}),
        ("rag.query", (1, 0), {"params": {"corpus": "moon"}, "input": {"query": "x"}}),
        ("rag.nothing", (1, 0), BODY),
        ("No Name", (1, 0), BODY),
        ("llm.chat", (2, 0), {"input": {"tokens": 3}}),
        ("llm.chat", (2, 0), {"input": {"fail": "first"}}),
        ("llm.chat", (2, 0), {"input": {"fail": "late"}}),
        ("rag.query", (1, 0), {"input": {"query": "ünï 𝔘 \u0000"}}),
    ],
)
async def test_a_call_comes_to_the_same(places: Places, call: tuple[Any, ...]) -> None:
    assert await outcome(places.remote, *call) == await outcome(places.local, *call)


async def test_half_a_character_arrives_as_a_question_mark(places: Places) -> None:
    answer = await places.remote.call("rag.query", (1, 0), {"input": {"query": "a\ud800b"}})
    assert answer["output"]["found"] == "a?b"


@pytest.mark.parametrize("by", ["socket", "events"])
@pytest.mark.parametrize(
    "fields",
    [{}, {"tokens": 3}, {"tokens": 100}, {"tokens": 5, "fail": "late"}, {"fail": "first"}, {"tokens": 2, "pad": 300_000}],
)
async def test_a_stream_comes_to_the_same_over_a_socket_and_as_events(by: str, fields: dict[str, Any]) -> None:
    bus, _ = scripted_bus()
    async with reached(bus, websockets=32 if by == "socket" else 0) as remote:
        assert await frames_of(remote, {"input": fields}) == await frames_of(bus, {"input": fields})


async def test_results_of_tools_reach_the_handler_over_a_socket(places: Places) -> None:
    async def talk(bus: CapabilityBus) -> list[Frame]:
        replies: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        frames: list[Frame] = []
        async for frame in bus.stream("llm.chat", (2, 0), {"input": {"tool": True}}, receive=replies.get):
            frames.append(frame)
            if frame.event == "tool_call":
                replies.put_nowait({"type": "tool_result", "tool_call_id": frame.data["id"], "body": {"time": "12:00"}})
        return frames

    frames = await talk(places.remote)
    assert frames == await talk(places.local)
    assert frames[-2].data == {"text": "It is 12:00."}


@pytest.mark.parametrize("by", ["socket", "events"])
async def test_a_chat_whose_caller_has_nothing_to_send_ends_with_its_calls(by: str) -> None:
    async def search(query: str) -> str:
        """Search."""
        return f"{query}: 12 chairs"

    bus, _ = chat_bus(called(("search", {"query": "hall"})), "There are 12.")
    async with reached(bus, websockets=32 if by == "socket" else 0) as remote, asyncio.timeout(20):
        message = await ToolExecutor(remote, [search]).run_chat_with_tools(chat("How many chairs?"))
    assert message["content"] == "There are 12."


async def test_a_caller_who_fails_at_what_it_sends_ends_the_call(places: Places) -> None:
    async def broken() -> dict[str, Any]:
        raise ConnectionError

    async def unwritable() -> dict[str, Any]:
        return {"type": "tool_result", "tool_call_id": "tc_1", "body": object()}

    for receive in (broken, unwritable):
        async with asyncio.timeout(20):
            stream = places.remote.stream("llm.chat", (2, 0), {"input": {"tool": True}}, receive=receive)
            last = [frame async for frame in stream][-1]
        assert (last.event, last.data["error"]) == ("error", "internal_error")


async def test_what_is_offered_is_the_same_and_what_is_registered_here_is_called_here(places: Places) -> None:
    remote = places.remote
    assert [offer.descriptor for offer in remote.offers()] == [offer.descriptor for offer in places.local.offers()]

    async def here(call: CapabilityCall) -> dict[str, Any]:
        return {"output": {"here": True}}

    remote.register(Descriptor("experimental.here"), here)
    assert await remote.call("experimental.here", (1, 0), {}) == {"output": {"here": True}}
    assert not places.local.offers("experimental.here")


@pytest.mark.parametrize("by", ["socket", "events"])
async def test_a_stream_that_nobody_reads_any_more_is_cancelled(by: str) -> None:
    bus, scripted = scripted_bus()
    async with reached(bus, websockets=32 if by == "socket" else 0) as remote:
        stream = remote.stream("llm.chat", (2, 0), {"input": {"tokens": 2, "sleep": 30}})
        assert (await anext(stream)).event == "token"
        await stream.aclose()
        await until(lambda: not scripted.running)
        assert scripted.cancelled == 1


async def test_a_reader_that_is_cancelled_more_than_once_leaves_no_call_behind(places: Places) -> None:
    reading = asyncio.create_task(frames_of(places.remote, {"input": {"tokens": 2, "sleep": 60}}))
    await until(lambda: places.scripted.running == 1)
    await asyncio.sleep(0.1)
    for _ in range(5):
        reading.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await reading
    await until(lambda: places.scripted.running == 0)


async def test_a_call_that_is_cancelled_here_is_cancelled_there(places: Places) -> None:
    calling = asyncio.create_task(places.remote.call("rag.query", (1, 0), {"input": {"query": "x", "sleep": 30}}))
    await until(lambda: places.scripted.running)
    calling.cancel()
    await until(lambda: not places.scripted.running)
    assert places.scripted.cancelled == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_ends_by_its_deadline(places: Places, stream: bool) -> None:
    body = {"input": {"tokens": 1, "sleep": 30}}
    if stream:
        frames = await frames_of(places.remote, body, timeout=0.1)
        assert (frames[-1].event, frames[-1].data["error"]) == ("error", "timeout")
    else:
        assert (await outcome(places.remote, "llm.chat", (2, 0), body, timeout=0.1))[0] == "timeout"
    await until(lambda: not places.scripted.running)


async def test_a_reader_that_takes_its_time_gets_everything(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow.FlowControl.__init__, "__defaults__", (16, 0.1))
    frames: list[Frame] = []
    async for frame in places.remote.stream("llm.chat", (2, 0), {"input": {"tokens": 120}}):
        if not frames:
            await asyncio.sleep(0.5)
        frames.append(frame)
    assert len(frames) == 121 and frames[-1].event == "done"


async def test_a_server_that_goes_away_is_a_partition() -> None:
    bus, scripted = scripted_bus()
    async with served(app_of(bus), force=True) as url:
        transport = HttpTransport(url)
        remote = CapabilityBus(transport)
        await remote.__aenter__()
        reading = asyncio.create_task(frames_of(remote, {"input": {"tokens": 1, "sleep": 30}}))
        await until(lambda: scripted.running)
    frames = await reading
    assert (frames[-1].event, frames[-1].data["error"]) == ("error", "partition")
    with pytest.raises(BusError) as failed:
        await remote.call("rag.query", (1, 0), BODY)
    assert (failed.value.code, failed.value.sent) == ("partition", False)
    await remote.__aexit__(None, None, None)


async def test_keys_hold_and_what_they_do_not_open_is_not_offered() -> None:
    bus, scripted = scripted_bus()
    bus.register(Descriptor("experimental.secret", trust_required="trusted"), scripted.query)
    keys = {"alice": Key(hash_key("a"), capabilities=("rag.*", "experimental.*"))}
    async with reached(bus, "a", keys=keys) as remote:
        assert [offer.descriptor.name for offer in remote.offers()] == ["rag.query"]
        await remote.call("rag.query", (1, 0), BODY)
    assert scripted.calls[0].authority.subject == "alice"
    with pytest.raises(BusError) as refused:
        async with reached(bus, "wrong", keys=keys):
            pass
    assert refused.value.code == "unauthorized"


async def test_a_caller_of_this_node_cannot_use_the_key_for_more_than_it_may_itself(places: Places) -> None:
    stranger = Authority("mallory", trust="unknown")
    assert (await outcome(places.remote, "rag.query", (1, 0), BODY, authority=stranger))[0] == "unauthorized"
    narrow = Authority("alice", trust="member", capabilities=("llm.*",))
    assert (await outcome(places.remote, "rag.query", (1, 0), BODY, authority=narrow))[0] == "unauthorized"
    assert not places.scripted.calls


async def test_what_is_no_server_of_a_bus_is_said() -> None:
    with pytest.raises(UsageError):
        HttpTransport("nats://localhost")
    with pytest.raises(UsageError):
        await HttpTransport("http://localhost:1").refresh()
    with pytest.raises(BusError) as away:
        async with CapabilityBus(HttpTransport("http://127.0.0.1:1")):
            pass
    assert away.value.code == "partition"
    bus, _ = scripted_bus()
    async with served(app_of(bus)) as url:
        with pytest.raises(BusError) as wrong:
            async with CapabilityBus(HttpTransport(f"{url}/v1")):
                pass
    assert wrong.value.code == "not_found"


@pytest.mark.parametrize(("status", "listing"), [(200, {}), (200, {"capabilities": {}}), (500, {"capabilities": []})])
async def test_a_server_that_lists_no_capabilities_has_no_bus(status: int, listing: dict[str, Any]) -> None:
    def answer(request: Request) -> JSONResponse:
        return JSONResponse(listing, status)

    async with served(Starlette(routes=[Route("/bus/v1/capabilities", answer)])) as url:
        with pytest.raises(BusError, match="has no capability bus"):
            async with CapabilityBus(HttpTransport(url)):
                pass

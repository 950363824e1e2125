"""A call over WebSocket: its frames, what its caller sends meanwhile, and how it ends."""

import asyncio
import json
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from callsmith.bus import flow
from callsmith.server.http.keys import hash_key
from callsmith.server.http.shutdown import GracefulShutdown
from callsmith.server.settings import Key, Settings
from tests.server.asking import http
from tests.server.routes.bus.calling import (
    call,
    chat,
    envelope,
    frames_of,
    post,
    scripted_app,
    send,
    socket_to,
    sse_frames,
)
from tests.serving import served
from tests.waiting import until


async def close_code(socket: Any) -> int:
    with pytest.raises(ConnectionClosed):
        while True:
            await asyncio.wait_for(socket.recv(), 20)
    return socket.close_code


@pytest.mark.req("R104", "R107")
async def test_frames_have_the_shape_of_the_events_and_numbers() -> None:
    app, _ = scripted_app()
    async with served(app) as url, socket_to(url) as socket:
        assert socket.subprotocol == "hearthnet-bus.v2"
        await call(socket, tokens=40)
        frames = await frames_of(socket)
        assert await close_code(socket) == 1000
    async with http(app) as client:
        events = sse_frames((await post(client, chat(tokens=40))).text)
    assert [(frame["event"], frame["data"]) for frame in frames] == events
    assert [frame["seq"] for frame in frames] == list(range(1, 42))
    assert all(set(frame) == {"event", "data", "seq"} for frame in frames)


async def test_a_capability_that_does_not_stream_is_one_frame() -> None:
    app, _ = scripted_app()
    async with served(app) as url, socket_to(url) as socket:
        await send(socket, type="call", envelope=envelope("rag.query", "1.0", {"input": {"query": "hall"}}))
        assert await frames_of(socket) == [
            {"event": "done", "data": {"output": {"found": "hall", "corpus": None}, "meta": {}}, "seq": 1}
        ]


async def test_a_tool_loop_in_one_socket_goes_on_as_a_second_call_with_the_messages_does() -> None:
    app, _ = scripted_app()
    async with served(app) as url, socket_to(url) as socket:
        await call(socket, tokens=1, tool=True)
        first = [json.loads(await socket.recv()) for _ in range(4)]
        assert [item["event"] for item in first] == ["token", "tool_call_delta", "tool_call_delta", "tool_call"]
        question = first[-1]["data"]
        assert question == {"id": "tc_1", "name": "clock", "arguments": {"zone": "UTC"}}
        assert json.loads("".join(item["data"]["arguments_delta"] for item in first[1:3])) == question["arguments"]
        await send(socket, type="tool_result", tool_call_id=question["id"], body={"time": "12:00"})
        rest = await frames_of(socket)
    messages = [
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": "t0", "tool_calls": [question]},
        {"role": "tool", "tool_call_id": question["id"], "content": json.dumps({"time": "12:00"})},
    ]
    async with http(app) as client:
        again = sse_frames((await post(client, chat(tokens=1, tool=True, messages=messages))).text)
    assert [(item["event"], item["data"]) for item in rest] == again[1:]
    assert again[1] == ("token", {"text": "It is 12:00."})


async def test_binary_messages_are_answered_in_kind() -> None:
    app, _ = scripted_app()
    async with served(app) as url, socket_to(url) as socket:
        await socket.send(json.dumps({"type": "call", **chat(tokens=1)}).encode())
        answer = [await socket.recv(), await socket.recv()]
    assert all(isinstance(item, bytes) for item in answer)
    assert [json.loads(item)["event"] for item in answer] == ["token", "done"]


@pytest.mark.parametrize("fields", [{"sleep": 30}, {"tool": True}, {"tokens": 1000}])
async def test_a_call_that_is_cancelled_ends_with_an_error_and_stops_its_handler(fields: dict[str, Any]) -> None:
    app, scripted = scripted_app(settings=Settings(queue=1))
    async with served(app) as url:
        async with socket_to(url) as socket:
            await call(socket, **fields)
            await until(lambda: scripted.running)
            await send(socket, type="cancel")
            frames = await frames_of(socket)
            assert (frames[-1]["event"], frames[-1]["data"]["error"]) == ("error", "cancelled")
            assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1))
            assert await close_code(socket) == 1000
        assert (scripted.running, scripted.cancelled) == (0, 1)
        async with socket_to(url) as socket:  # there is a place again
            await call(socket)
            assert (await frames_of(socket))[-1]["event"] == "done"


async def test_a_handler_that_ignores_its_cancellation_does_not_hold_up_the_last_frame() -> None:
    app, scripted = scripted_app()
    async with served(app) as url, socket_to(url) as socket:
        await call(socket, tokens=1, stubborn=3.0)
        await socket.recv()
        await send(socket, type="cancel")
        (frame,) = await frames_of(socket)
        assert (frame["event"], frame["data"]["error"], frame["seq"]) == ("error", "cancelled", 2)
        assert scripted.running == 1  # still


@pytest.mark.parametrize(
    ("first", "code"),
    [
        ("nonsense", "bad_request"),
        ("[]", "bad_request"),
        ('{"type": "ack", "upto": 1}', "bad_request"),
        ('{"type": "call"}', "bad_request"),
        (json.dumps({"type": "call", "envelope": envelope("Bad Name")}), "bad_request"),
        (json.dumps({"type": "call", "envelope": envelope("rag.nothing", "1.0")}), "not_found"),
        (json.dumps({"type": "call", "envelope": envelope(), "signature": "ed25519:AAAA"}), "invalid_signature"),
        (json.dumps({"type": "call", **chat(fail="first")}), "rate_limited"),
    ],
)
async def test_a_call_that_cannot_be_answered_is_one_error_frame(first: str, code: str) -> None:
    app, _ = scripted_app()
    async with served(app) as url, socket_to(url) as socket:
        await socket.send(first)
        (frame,) = await frames_of(socket)
        assert (frame["event"], frame["data"]["error"], frame["seq"]) == ("error", code, 1)
        assert await close_code(socket) == 1000


@pytest.mark.parametrize(
    "message",
    [
        "nonsense",
        "[" * 10_000,
        "5",
        "{}",
        '{"type": "call", "envelope": {}}',
        '{"type": "ack"}',
        '{"type": "ack", "upto": 1.5}',
        '{"type": "ack", "upto": -1}',
        '{"type": "ack", "upto": 99999999999999999999999999}',
        '{"type": "ack", "upto": 2}',
        '{"type": "tool_result", "tool_call_id": "x"}',
        '{"type": "tool_result", "tool_call_id": "", "body": {}}',
        '{"type": "tool_result", "tool_call_id": "a\\u0000b", "body": {}}',
        '{"type": "confirmation", "decision": "approve"}',
        '{"type": ["cancel"]}',
    ],
)
async def test_a_message_that_should_not_have_come_ends_the_call_and_nothing_else(message: str) -> None:
    app, scripted = scripted_app()
    async with served(app) as url, socket_to(url) as socket, socket_to(url) as other:
        await call(other, tool=True)
        await call(socket, tokens=1, sleep=30)
        await socket.recv()
        await socket.send(message)
        (frame,) = await frames_of(socket)
        assert (frame["event"], frame["data"]["error"], frame["seq"]) == ("error", "bad_request", 2)
        await until(lambda: scripted.running == 1)
        await send(other, type="tool_result", tool_call_id="tc_1", body={"time": "1"})
        assert (await frames_of(other))[-1]["event"] == "done"


async def test_a_caller_that_acknowledges_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow.FlowControl.__init__, "__defaults__", (16, 0.1))
    app, scripted = scripted_app()
    async with served(app) as url, socket_to(url) as socket:
        await call(socket, tokens=1000)
        frames = await frames_of(socket, acks=False)
        assert (len(frames), frames[-1]["data"]["error"]) == (17, "timeout")
        await until(lambda: not scripted.running)


async def test_a_short_answer_needs_no_acknowledgement() -> None:
    app, _ = scripted_app()
    async with served(app) as url, socket_to(url) as socket:
        await call(socket, tokens=15)
        assert len(await frames_of(socket, acks=False)) == 16


async def test_a_connection_on_which_nothing_is_called_is_closed() -> None:
    app, _ = scripted_app(settings=Settings(websocket_idle_seconds=0.1))
    async with served(app) as url, socket_to(url) as socket:
        assert await close_code(socket) == 1000


async def test_a_caller_whose_result_never_comes_is_given_up() -> None:
    app, scripted = scripted_app(settings=Settings(websocket_idle_seconds=0.1))
    async with served(app) as url, socket_to(url) as socket:
        await call(socket, tool=True)
        frames = await frames_of(socket)
        assert (frames[-1]["event"], frames[-1]["data"]["error"]) == ("error", "timeout")
        assert await close_code(socket) == 1000
        assert not scripted.running


async def test_a_handler_that_works_for_long_is_not_idle() -> None:
    app, _ = scripted_app(settings=Settings(websocket_idle_seconds=0.1))
    async with served(app) as url, socket_to(url) as socket:
        await call(socket, sleep=0.5)
        assert (await frames_of(socket))[-1]["event"] == "done"


@pytest.mark.parametrize("protocol", [None, "hearthnet-bus.v1", "HEARTHNET-BUS.V2"])
async def test_another_subprotocol_is_refused_with_the_one_that_is_spoken(protocol: str | None) -> None:
    app, _ = scripted_app()
    async with served(app) as url:
        with pytest.raises(InvalidStatus) as refused:
            async with socket_to(url, protocol):
                pass
    response = refused.value.response
    assert (response.status_code, response.headers["sec-websocket-protocol"]) == (426, "hearthnet-bus.v2")
    assert json.loads(response.body or b"")["error"] == "upgrade_required"


@pytest.mark.parametrize("settings", [Settings(websockets=1), Settings(queue=1)])
async def test_a_server_that_is_full_refuses_connections_with_a_hint(settings: Settings) -> None:
    app, scripted = scripted_app(settings=settings)
    async with served(app) as url, socket_to(url) as socket:
        await call(socket, sleep=30)
        await until(lambda: scripted.running)
        with pytest.raises(InvalidStatus) as refused:
            async with socket_to(url):
                pass
        response = refused.value.response
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert json.loads(response.body or b"")["error"] == "partition"


async def test_a_connection_needs_a_key_where_others_do() -> None:
    app, scripted = scripted_app(settings=Settings(keys={"alice": Key(hash_key("a"), trust="trusted")}))
    async with served(app) as url:
        with pytest.raises(InvalidStatus) as refused:
            async with socket_to(url):
                pass
        assert refused.value.response.status_code == 401
        async with socket_to(url, additional_headers={"authorization": "Bearer a"}) as socket:
            await call(socket)
            assert (await frames_of(socket))[-1]["event"] == "done"
    assert (scripted.calls[0].authority.subject, scripted.calls[0].authority.trust) == ("alice", "trusted")


async def test_a_server_that_shuts_down_closes_what_waits_and_lets_calls_end() -> None:
    app, scripted = scripted_app()
    leaving = GracefulShutdown(app)
    async with served(leaving) as url, socket_to(url) as waiting, socket_to(url) as busy:
        await call(busy, sleep=0.3)
        await until(lambda: scripted.running)
        leaving.drain()
        assert await close_code(waiting) == 1012
        assert (await frames_of(busy))[-1]["event"] == "done"


async def test_a_stream_that_the_server_must_stop_ends_with_an_error_event() -> None:
    app, scripted = scripted_app()
    leaving = GracefulShutdown(app)
    async with http(leaving) as client:  # pyright: ignore[reportArgumentType]
        streaming = asyncio.create_task(post(client, chat(tokens=1, sleep=30)))
        await until(lambda: scripted.running)
        leaving.stop()
        events = sse_frames((await streaming).text)
    assert [event for event, _ in events] == ["token", "error"]
    assert events[-1][1]["error"] == "partition"

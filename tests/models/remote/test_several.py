"""One model at several servers: what has not begun is answered by another one, what has begun is not begun twice."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from callsmith.core.capability.origin import Origin
from callsmith.core.errors import ModelError, Rejected, TimedOut, Unavailable
from callsmith.core.events import Text
from callsmith.core.values import Message, Request
from callsmith.engines.upstream.replicas import affinity_id
from callsmith.models.remote.model import RemoteModel
from callsmith.server.app import create_app
from tests.models.remote.scripted import WEATHER, chat, chunks, refusal, remote, sse, text_of
from tests.scripted_server import Scripted, Speak, http, scripted
from tests.serving import served
from tests.waiting import until

HI = Request((Message.user("hi"),))
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
OK = chat({"content": "fine"})


async def dies(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


def breaks_off(*frames: bytes) -> Speak:
    async def speak(writer: asyncio.StreamWriter) -> None:
        for item in frames:
            writer.write(item)
            await writer.drain()
            await asyncio.sleep(0.02)
        writer.transport.abort()

    return speak


async def hangs(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(30)


def request_to(model: RemoteModel, server: Scripted) -> Request:
    """A request that goes to this server first."""
    for number in range(1000):
        request = replace(HI, origin=Origin(affinity=str(number)))
        replica = model.upstream.replicas.choose(affinity_id(request))
        if replica and replica.url == server.url:
            return request
    raise AssertionError("there is none")


async def said(model: RemoteModel, request: Request) -> str:
    return text_of([event async for event in model.stream(request)])


async def with_two(first: bytes | Speak, act: Callable[[RemoteModel, Request, Scripted, Scripted], Awaitable[Any]]) -> Any:
    """Do something with two servers, of which the first to be asked says this and the other one is well."""
    async with scripted(first) as one, scripted(OK) as other:
        model = remote([one, other])
        try:
            return await act(model, request_to(model, one), one, other)
        finally:
            await model.close()


@pytest.mark.parametrize(
    "trouble",
    [
        dies,
        breaks_off(HEAD),
        breaks_off(HEAD, b'data: {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}\n\n'),
        http(b"<html><title>Welcome to nginx</title>", kind="text/html"),
        http(b"<html>", "502 Bad Gateway", kind="text/html"),
        refusal("503 Busy", "loading the model"),
        refusal("429 Slow", "too many requests", retry_after="60"),
        refusal("500 Oh", "out of memory"),
    ],
)
async def test_what_has_not_begun_is_answered_by_another_server(trouble: bytes | Speak) -> None:
    async def act(model: RemoteModel, request: Request, first: Scripted, other: Scripted) -> None:
        assert await said(model, request) == "fine"
        assert (first.paths, other.paths) == (["/chat/completions"], ["/chat/completions"])

    await with_two(trouble, act)


async def test_a_server_that_is_down_costs_nothing_but_a_connection_and_is_asked_again_when_it_is_up() -> None:
    async with scripted(OK) as up, AsyncExitStack() as stack:
        down = await stack.enter_async_context(scripted(OK))
        model = remote([down, up])
        request = request_to(model, down)
        port = int(down.url.rpartition(":")[2])
        await stack.aclose()
        assert await said(model, request) == "fine"
        assert [replica.state for replica in model.upstream.replicas.status()] == ["down", "up"]
        assert await said(model, request) == "fine"
        assert [replica.requests for replica in model.upstream.replicas.status()] == [1, 2]
        async with await asyncio.start_server(down.answer, "127.0.0.1", port):
            await until(lambda: not model.upstream.replicas.all[0].is_down)
            assert down.paths == ["/models"]
            assert await said(model, request) == "fine"
        assert down.paths == ["/models", "/chat/completions"]
        await model.close()


async def test_an_answer_of_which_something_was_shown_is_not_asked_for_again() -> None:
    begun = sse(*chunks({"content": "half "}, finish=None), done=False).partition(b"\r\n\r\n")[2]

    async def act(model: RemoteModel, request: Request, first: Scripted, other: Scripted) -> list[str]:
        texts = list[str]()
        with pytest.raises(ModelError, match="broke off"):
            async for event in model.stream(request):
                texts += [event.text] if isinstance(event, Text) else []
        assert other.paths == []
        return texts

    assert await with_two(breaks_off(HEAD + begun), act) == ["half "]


async def test_a_server_that_takes_too_long_may_still_be_at_work_and_no_other_is_asked() -> None:
    async def act(model: RemoteModel, request: Request, first: Scripted, other: Scripted) -> None:
        model.upstream.retry_policy = replace(model.upstream.retry_policy, begin=0.2)
        with pytest.raises(TimedOut, match="did not begin"):
            await said(model, request)
        assert other.paths == []

    await with_two(hangs, act)


async def test_what_is_wrong_with_the_request_is_no_reason_to_ask_another_server() -> None:
    async def act(model: RemoteModel, request: Request, first: Scripted, other: Scripted) -> None:
        with pytest.raises(Rejected, match="404"):
            await said(model, request)
        assert other.paths == []

    await with_two(refusal("404 No", "no such path"), act)


async def test_a_request_in_another_form_goes_to_the_same_server() -> None:
    async with scripted(refusal("400 No", "this model does not support tools"), OK) as one, scripted(OK) as other:
        model = remote([one, other])
        request = replace(request_to(model, one), tools=(WEATHER,))
        assert await said(model, request) == "fine"
        assert [len(server.paths) for server in (one, other)] == [2, 0]
        await model.close()


async def test_a_request_that_brings_servers_down_does_not_bring_all_of_them_down() -> None:
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(scripted(dies)) for _ in range(6)]
        model = remote(servers)
        with pytest.raises(Unavailable):
            await said(model, HI)
        assert sum(len(server.paths) for server in servers) == 3
        await model.close()


async def test_however_many_servers_are_down_the_one_that_is_up_answers() -> None:
    async with scripted(OK) as up, AsyncExitStack() as stack:
        gone = [await stack.enter_async_context(scripted(OK)) for _ in range(6)]
        await stack.aclose()
        model = remote([*gone, up])
        assert await said(model, request_to(model, gone[0])) == "fine"
        await model.close()


async def test_a_conversation_stays_with_its_server() -> None:
    async with scripted(OK) as one, scripted(OK) as other:
        model = remote([one, other])
        for number in range(16):
            first = Request((Message.system("Be brief."), Message.user(f"question {number}")))
            before = len(one.paths)
            for _ in range(3):
                await said(model, first)
                first = replace(first, messages=(*first.messages, Message.assistant("fine"), Message.user("go on")))
            assert len(one.paths) - before in (0, 3)
        assert 0 < len(one.paths) < 48
        await model.close()


async def test_a_draining_server_finishes_what_it_has_begun() -> None:
    go_on = asyncio.Event()

    async def slowly(writer: asyncio.StreamWriter) -> None:
        head, _, body = OK.partition(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        await go_on.wait()
        writer.write(body)

    async def act(model: RemoteModel, request: Request, first: Scripted, other: Scripted) -> None:
        answer = asyncio.create_task(said(model, request))
        await until(lambda: first.paths)
        model.upstream.replicas.drain(first.url, True)
        assert await said(model, request) == "fine"
        assert len(other.paths) == 1
        go_on.set()
        assert await answer == "fine"
        assert len(first.paths) == 1

    await with_two(slowly, act)


async def test_with_all_servers_down_the_client_is_told_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callsmith.engines.upstream.replicas._PROBES", (0.25, 0.5))  # however long this takes, it is no longer
    async with AsyncExitStack() as stack:
        gone = [await stack.enter_async_context(scripted(OK)) for _ in range(2)]
        await stack.aclose()
        model = remote(gone)
        async with served(create_app({"m": model})) as url, httpx2.AsyncClient(base_url=url) as client:
            body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
            for _ in range(2):
                answer = await client.post("/v1/chat/completions", json=body)
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
                assert "no server can be asked now" in answer.json()["error"]["message"]
            ready = await client.get("/ready")
            assert (ready.status_code, ready.json()["why"]) == (503, "no server answers for: m")
        await model.close()

"""Raw completion at several servers: a conversation stays with one, and what has not begun is answered by another."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

pytest.importorskip("aiohttp")

from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse

from callsmith.core.capability.origin import Origin
from callsmith.core.errors import Unavailable
from callsmith.core.events import Text
from callsmith.core.values import Message, Request, Sampling
from callsmith.engines import open_engine
from callsmith.engines.completions import tokenizer
from callsmith.formats import format_named
from callsmith.formats.prompt.prompt import Prompt
from callsmith.formats.prompt.template import Template
from callsmith.models.local import LocalModel
from tests.engines.contract import say
from tests.serving import served

from .scripted_servers import QUICK, TEMPLATE, Kind, ScriptedServer, encode, frame, opened

PLAIN = Sampling(max_tokens=100)


@pytest.fixture(autouse=True)
def small_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "_STEP", 500)  # tokens that are asked for at once


def breaking_off(server: ScriptedServer, words: str) -> Callable[[HttpRequest], Awaitable[Response]]:
    """An answer that breaks off after these words."""

    async def answer(_: HttpRequest) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            for word in words.split():
                yield frame(server.event(encode(word), 0, None))
            raise ConnectionResetError

        return StreamingResponse(pieces(), media_type="text/event-stream")

    return answer


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_a_conversation_stays_with_one_server_and_is_named_to_it(kind: Kind) -> None:
    servers = ScriptedServer(kind, ["fine"]), ScriptedServer(kind, ["fine"])
    async with opened(*servers) as engine:
        model = LocalModel(engine, format_named("hermes"), Template(TEMPLATE))
        for number in range(10):
            request = Request((Message.user(f"question {number}"),), sampling=PLAIN)
            for _ in range(3):
                assert "".join([event.text async for event in model.stream(request) if isinstance(event, Text)]) == "fine"
                request = replace(request, messages=(*request.messages, Message.assistant("fine"), Message.user("go on")))
    first, second = (Counter(body["session_id"] for body in server.asked) for server in servers)
    assert first.keys().isdisjoint(second)
    assert sorted((first + second).values()) == [3] * 10


async def test_an_answer_that_breaks_off_before_it_has_begun_is_asked_for_elsewhere() -> None:
    first, second = ScriptedServer(), ScriptedServer(says=["fine"])
    first.says = [breaking_off(first, "")]
    async with opened(first, second) as engine:
        for number in range(30):
            text, _ = await say(engine, Prompt("Hi", origin=Origin(affinity=f"session {number}")), PLAIN)
            assert text == "fine"
    assert first.asked
    assert len(second.asked) == 30


async def test_an_answer_that_has_begun_is_not_asked_for_again() -> None:
    first, second = ScriptedServer(), ScriptedServer()
    first.says, second.says = [breaking_off(first, "so")], [breaking_off(second, "so")]
    async with opened(first, second) as engine:
        with pytest.raises(Unavailable, match="broke off"):
            await say(engine, Prompt("Hi", origin=Origin(affinity="session")), PLAIN)
    assert len(first.asked) + len(second.asked) == 1


async def test_a_server_that_is_down_does_not_keep_the_other_from_being_opened() -> None:
    server = ScriptedServer(says=["fine"])
    async with served(ScriptedServer().app, force=True) as gone:
        pass
    async with served(server.app, force=True) as url:
        engine = await asyncio.to_thread(open_engine, f"completions:{gone},{url}", retry_policy=QUICK)
        server.ignores_grammars = True
        text, _ = await say(engine, Prompt("Hi"), PLAIN)
        assert text == "fine"
        assert engine.info.upstreams is not None
        assert [replica.state for replica in engine.info.upstreams.status()] == ["down", "up"]
        await engine.close()

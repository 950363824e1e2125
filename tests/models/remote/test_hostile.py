"""Upstreams that are down, slow, in the way or out of their mind: what a client of our server sees, and that nothing is lost."""

import asyncio
import json
import socket
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from callsmith.models.remote.model import RemoteModel
from callsmith.server.app import create_app
from callsmith.server.settings import Settings
from tests.models.remote.scripted import call_delta, chat, chunks, refusal, remote, sse
from tests.scripted_server import Scripted, http, scripted
from tests.server.asking import http as asking

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
HI = chat({"content": "Hi "}, {"content": "there"})


async def ask(
    model: RemoteModel, *, stream: bool = False, path: str = "/v1/chat/completions", seconds: float = 20.0, **more: Any
) -> Any:
    app = create_app({"m": model}, settings=Settings(request_seconds=seconds))
    try:
        async with asyncio.timeout(30), asking(app) as client:
            return await client.post(path, json={**ASK, "stream": stream, **more})
    finally:
        await model.close()


def patient(server: Scripted | str, **retry_policy: float) -> RemoteModel:
    model = remote(server)
    model.upstream.retry_policy = replace(model.upstream.retry_policy, **retry_policy)  # type: ignore[arg-type]
    return model


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def sent(response: Any) -> list[Any]:
    """What a stream has sent, the mark of its end aside."""
    return [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ") and line[6:] != "[DONE]"]


def content(response: Any) -> str:
    deltas = [chunk["choices"][0]["delta"] for chunk in sent(response) if chunk.get("choices")]
    return "".join(delta.get("content") or "" for delta in deltas)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_upstream_that_is_down(stream: bool) -> None:
    answer = await ask(remote(f"http://127.0.0.1:{free_port()}"), stream=stream)
    assert answer.status_code == 503
    assert "cannot be reached" in answer.json()["error"]["message"]
    assert answer.json()["error"]["code"] == "model_unavailable"


REFUSALS: dict[str, tuple[bytes, int, str]] = {
    "busy": (refusal("503 Busy", "all slots are taken"), 503, "all slots are taken"),
    "broken": (refusal("500 Oh", "CUDA error"), 502, "CUDA error"),
    "a proxy's page": (
        http(b"<html><title>502 Bad Gateway</title></html>", "502 Bad Gateway", "text/html"),
        502,
        "502 Bad Gateway",
    ),
    "another server's page": (http(b"<html><title>Welcome</title></html>", kind="text/html"), 503, "HTML page (Welcome)"),
    "elsewhere": (http(b"", "302 Found", location="http://elsewhere.example/"), 502, "which is not followed"),
    "too many": (refusal("429 Slow down", "rate limit reached", retry_after="7"), 429, "rate limit reached"),
    "a client's mistake": (refusal("400 Bad", "temperature must be at most 2"), 400, "temperature must be at most 2"),
    "unprocessable": (http(b'{"detail": "messages.0: no"}', "422 No"), 400, "messages.0: no"),
    "no JSON": (http(b"data: {oh\n\n", kind="text/event-stream"), 503, "no JSON"),
    "an empty answer": (http(b"", kind="text/event-stream"), 503, "broke off"),
    "another shape": (http(b'{"choices": "none"}'), 500, "cannot be read"),
    "an error in place of an answer": (sse({"error": {"message": "out of memory"}}), 500, "out of memory"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("how", REFUSALS)
async def test_an_upstream_that_refuses(how: str, stream: bool) -> None:
    refused_answer, status, message = REFUSALS[how]
    async with scripted(refused_answer) as server:
        answer = await ask(remote(server), stream=stream)
    assert answer.status_code == status
    assert message in answer.json()["error"]["message"]
    assert "secret-key" not in answer.text
    assert answer.headers.get("retry-after") == ("7" if how == "too many" else None)


@pytest.mark.parametrize("status", ["401 No", "403 No"])
async def test_a_refused_key_is_the_operators_business(status: str, caplog: pytest.LogCaptureFixture) -> None:
    async with scripted(refusal(status, "Incorrect API key provided: sk-ab12")) as server:
        answer = await ask(remote(server))
    assert answer.status_code == 502
    assert "does not accept this server's key" in answer.json()["error"]["message"]
    assert "sk-ab12" not in answer.text and "THE_KEY" not in answer.text
    assert "sk-ab12" in caplog.text and "THE_KEY" in caplog.text


TOO_LONG = [
    "This model's maximum context length is 512 tokens. However, your request has 600 input tokens.",
    "prompt is too long: 600 tokens > 512 maximum",
    "request (600 tokens) exceeds the available context size (512 tokens), try increasing it",
    "the prompt is too long: 600 tokens > 512 that the context holds, answer included",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
]


@pytest.mark.parametrize("message", TOO_LONG)
async def test_a_prompt_that_is_too_long_is_what_clients_know_it_as(message: str) -> None:
    async with scripted(refusal("400 Bad Request", message)) as server:
        answer = await ask(remote(server))
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert message in answer.json()["error"]["message"]


async def test_a_model_that_the_upstream_does_not_have_is_named_with_those_it_has() -> None:
    unknown = refusal("404 Not Found", "The model `gpt` does not exist")
    async with scripted(unknown, http(b'{"data": [{"id": "gpt-5"}, {"id": "o9"}]}')) as server:
        answer = await ask(remote(server))
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"
    assert "did you mean 'gpt-5'?" in answer.json()["error"]["message"]


async def test_a_wrong_path_is_no_unknown_model() -> None:
    async with scripted(http(b"nothing here", "404 Not Found", "text/plain")) as server:
        answer = await ask(remote(server))
    assert (answer.status_code, "nothing here" in answer.text) == (502, True)


async def slow(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(5)


async def stalls(writer: asyncio.StreamWriter) -> None:
    begun = sse(*chunks({"content": "Hi "}, finish=None), done=False)
    writer.write(begun.replace(b"content-length", b"x-length"))
    await writer.drain()
    await asyncio.sleep(5)


async def breaks_off(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    frames = b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks({"content": "Hi "}, finish=None))
    writer.write(f"{len(frames):x}\r\n".encode() + frames + b"\r\n")
    await writer.drain()
    writer.transport.abort()


async def ends_early(writer: asyncio.StreamWriter) -> None:
    writer.write(sse(*chunks({"content": "Hi "}, finish=None), done=False))


async def begins_and_breaks_off(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    await writer.drain()
    writer.transport.abort()


async def never_ends(writer: asyncio.StreamWriter) -> None:
    frame = f"data: {json.dumps(chunks({'content': 'and on '}, finish=None)[1])}\n\n".encode()
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
    while True:
        writer.write(frame * 100)
        await writer.drain()
        await asyncio.sleep(0.01)


async def only_lives(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
    while True:
        writer.write(b": still here\n\n")
        await writer.drain()
        await asyncio.sleep(0.02)


async def stays_open(writer: asyncio.StreamWriter) -> None:
    writer.write(HI.replace(b"content-length", b"x-length"))
    await writer.drain()
    await asyncio.sleep(5)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_upstream_that_does_not_begin(stream: bool) -> None:
    async with scripted(slow) as server:
        answer = await ask(patient(server, begin=0.3), stream=stream)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")


async def test_an_upstream_that_is_slower_than_the_servers_own_deadline() -> None:
    async with scripted(slow) as server:
        answer = await ask(remote(server), seconds=0.5)
    assert answer.status_code == 504


@pytest.mark.parametrize(
    ("speak", "status", "code"),
    [(stalls, 504, "timeout"), (breaks_off, 503, "model_unavailable"), (ends_early, 503, "model_unavailable")],
)
async def test_an_answer_that_breaks_off_is_an_error_and_no_answer(speak: Any, status: int, code: str) -> None:
    async with scripted(speak) as server:
        whole = await ask(patient(server, silence=0.3))
        streamed = await ask(patient(server, silence=0.3), stream=True)
    assert (whole.status_code, whole.json()["error"]["code"]) == (status, code)
    assert streamed.status_code == 200
    assert content(streamed) == "Hi "  # what came was passed on
    assert sent(streamed)[-1]["error"]["code"] == code
    assert not any(chunk["choices"][0]["finish_reason"] for chunk in sent(streamed) if chunk.get("choices"))
    assert len(server.asked) == 2  # a part was shown: not asked again


@pytest.mark.parametrize("stream", [False, True])
async def test_what_breaks_off_before_anything_was_shown_is_asked_for_again(stream: bool) -> None:
    async with scripted(begins_and_breaks_off, http(b"", kind="text/event-stream"), HI) as server:
        answer = await ask(remote(server), stream=stream)
    assert answer.status_code == 200
    assert (content(answer) if stream else answer.json()["choices"][0]["message"]["content"]) == "Hi there"
    assert len(server.asked) == 3


@pytest.mark.parametrize("stream", [False, True])
async def test_an_upstream_that_is_busy_for_a_moment_costs_nothing(stream: bool) -> None:
    async with scripted(refusal("503 Busy", "warming up"), refusal("429 Slow", "later", retry_after="0"), HI) as server:
        answer = await ask(remote(server), stream=stream)
    assert answer.status_code == 200
    assert "Hi" in answer.text


async def test_an_error_that_passes_in_place_of_an_answer_is_asked_for_again() -> None:
    async with scripted(sse({"error": {"message": "overloaded", "code": 529}}), HI) as server:
        answer = await ask(remote(server))
    assert answer.json()["choices"][0]["message"]["content"] == "Hi there"


async def test_an_answer_without_end_ends_with_the_servers_deadline() -> None:
    async with scripted(never_ends) as server:
        answer = await ask(remote(server), stream=True, seconds=1.0)
        await asyncio.sleep(0.1)
        assert server.left == 1  # the connection to the upstream was closed
    assert answer.status_code == 200
    assert "and on and on" in content(answer)
    assert sent(answer)[-1]["error"]["code"] == "timeout"


async def test_an_answer_of_any_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callsmith.models.remote.answer._MOST_BYTES", 200_000)
    async with scripted(never_ends) as server:
        answer = await ask(remote(server))
    assert answer.status_code == 500
    assert "does not end" in answer.json()["error"]["message"]


async def test_signs_of_life_alone_are_no_answer() -> None:
    async with scripted(only_lives) as server:
        answer = await ask(patient(server, begin=0.3))
    assert answer.status_code == 504
    assert "said nothing" in answer.json()["error"]["message"]


async def test_a_connection_that_stays_open_behind_the_answer_holds_nobody_up() -> None:
    async with scripted(stays_open) as server:
        answer = await ask(remote(server), seconds=3.0)
    assert answer.json()["choices"][0]["message"]["content"] == "Hi there"


async def test_bytes_that_are_no_utf8_become_marks_and_the_rest_comes() -> None:
    broken = chat({"content": "Hi @@ there"}).replace(b"@@", b"\xff\xfe")
    async with scripted(broken) as server:
        answer = await ask(remote(server))
    assert answer.json()["choices"][0]["message"]["content"] == "Hi \ufffd\ufffd there"


async def test_half_a_surrogate_pair_from_an_upstream_breaks_nothing() -> None:
    async with scripted(chat({"content": "Hi \ud83d there"})) as server:
        for stream in (False, True):
            answer = await ask(remote(server), stream=stream)
            assert answer.status_code == 200
            assert "there" in answer.text


@pytest.mark.parametrize("reason", ["whatever", ""])
async def test_a_reason_that_nobody_knows_ends_the_answer(reason: str) -> None:
    async with scripted(chat({"content": "Hi"}, finish=reason or "stop")) as server:
        answer = await ask(remote(server))
    assert answer.json()["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("path", "body", "status", "where"),
    [
        ("/v1/messages", {"max_tokens": 9}, 529, ("error", "message")),
        ("/v1/responses", {"input": "Hi", "messages": None}, 503, ("error", "message")),
        ("/api/chat", {"stream": False}, 503, ("error",)),
    ],
)
async def test_each_dialect_says_it_in_its_own_words(path: str, body: Any, status: int, where: tuple[str, ...]) -> None:
    answer = await ask(remote(f"http://127.0.0.1:{free_port()}"), path=path, **body)
    assert answer.status_code == status
    message = answer.json()
    for key in where:
        message = message[key]
    assert "cannot be reached" in message


async def test_a_client_that_leaves_closes_the_connection_to_the_upstream() -> None:
    async with scripted(never_ends) as server:
        model = remote(server)
        stream = model.stream(asked())
        async for _ in stream:
            break
        await stream.aclose()
        await asyncio.sleep(0.2)
        assert server.left == 1
        await model.close()


def asked() -> Any:
    from callsmith.core.values import Message, Request

    return Request((Message.user("Hi"),))


async def test_a_cut_off_call_is_no_call() -> None:
    half = [call_delta("weather", '{"city": "Bo')]
    async with scripted(chat(*half, finish="length")) as server:
        tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
        answer = await ask(remote(server), tools=tools)
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["finish_reason"] == "length"

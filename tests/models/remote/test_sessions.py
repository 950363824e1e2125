"""The id of a conversation on its way to other servers: under every name that routers know, and only where it belongs."""

from hashlib import sha256
from typing import Any

import httpx2
import pytest

from callsmith.core.values import Message, Request
from callsmith.engines.upstream import Upstream
from callsmith.models.remote.providers import parse_spec, providers
from callsmith.server.app import create_app
from callsmith.server.settings import Key, Settings
from tests.models.remote.scripted import answer, chat, remote
from tests.scripted_server import QUICK, Scripted, scripted
from tests.serving import served

NAMES = ("x-session-id", "x-smg-routing-key", "x-dynamo-session-id")
HI = Request((Message.user("hi"),))
OK = chat({"content": "fine"})


def header(head: str, name: str) -> str | None:
    values = [line.partition(":")[2].strip() for line in head.split("\r\n") if line.startswith(f"{name}:")]
    return values[0] if values else None


def ids(server: Scripted) -> list[str | None]:
    """The ids of the requests that came; each is the same under every name."""
    by_request = [{header(head, name) for name in NAMES} for head in server.headers]
    assert all(len(item) == 1 for item in by_request)
    return [next(iter(item)) for item in by_request]


async def test_a_conversation_has_one_id_under_every_name() -> None:
    async with scripted(OK) as server:
        for messages in ([], [Message.assistant("fine"), Message.user("and now?")]):
            await answer(remote(server), Request((*HI.messages, *messages)))
        await answer(remote(server), Request((Message.user("something else"),)))
    first, second, other = ids(server)
    assert first and first == second != other
    assert all("session_id" not in body for body in server.asked)


@pytest.mark.parametrize("name", ["vllm", "sglang"])
async def test_servers_that_take_it_get_it_in_the_body_too(name: str) -> None:
    async with scripted(OK) as server:
        await answer(remote(server, provider=name), HI)
    assert server.asked[0]["session_id"] == ids(server)[0]


def test_a_service_that_nobody_has_set_up_for_it_is_told_nothing() -> None:
    own = {name: spec.is_own for name in providers() if (spec := parse_spec(f"{name}:m"))}
    assert {name for name in own if own[name]} == {"ollama", "openbmb", "lmstudio", "vllm", "sglang", "llama-server", "callsmith"}
    assert not any(
        quirks.session for name, provider in providers().items() if not own[name] for quirks in provider.quirks.values()
    )
    spec = parse_spec("openai+https://gateway.example/v1#m")
    assert spec is not None
    assert spec.is_own


async def test_it_is_not_shown_where_it_should_not_be() -> None:
    async with scripted(OK) as server:
        upstream = Upstream(server.url, retry_policy=QUICK, shows_session=False)
        async for _ in upstream.stream("chat/completions", {}, "some id"):
            pass
        await upstream.close()
    assert ids(server) == [None]


def with_token(token: str) -> bytes:
    return OK.replace(b"connection:", f"X-Session-Token: {token}\r\nconnection:".encode())


async def test_a_token_that_a_router_answers_with_comes_back_with_the_conversation_and_no_other() -> None:
    async with scripted(with_token("one"), with_token("two"), with_token("x" * 5000), OK, with_token("other")) as server:
        model = remote(server)
        for text in ("hi", "hi", "hi", "hi", "something else", "something else"):
            async for _ in model.stream(Request((Message.user(text),))):
                pass
        await model.close()
    assert [header(head, "x-session-token") for head in server.headers] == [None, "one", "two", "two", None, "other"]


SESSION = "a conversation"
NAMED: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "our own field": ("/v1/chat/completions", {}, {"session_id": SESSION}),
    "the field of OpenAI's API": ("/v1/chat/completions", {}, {"prompt_cache_key": SESSION}),
    "the field of OpenAI's API, in responses": ("/v1/responses", {}, {"prompt_cache_key": SESSION, "store": False}),
    "Claude Code's header": ("/v1/messages", {"x-claude-code-session-id": SESSION}, {"max_tokens": 9}),
    "Codex's header": ("/v1/responses", {"session_id": SESSION}, {"store": False}),
    "a router's header": ("/v1/chat/completions", {"x-session-id": SESSION}, {}),
}


async def ask(client: httpx2.AsyncClient, path: str, text: str, key: str, headers: dict[str, str], more: dict[str, Any]) -> None:
    body = {"input": text} if path == "/v1/responses" else {"messages": [{"role": "user", "content": text}]}
    sent = {**headers, "authorization": f"Bearer {key}"}
    answer = await client.post(path, json={"model": "m", **body, **more}, headers=sent)
    assert answer.status_code == 200, answer.text


def two_keys() -> Settings:
    return Settings(keys={name: Key(sha256(name.encode()).hexdigest()) for name in ("alice", "bob")})


@pytest.mark.parametrize("where", NAMED)
async def test_the_client_s_name_for_a_conversation_is_what_counts_and_keys_never_share_one(where: str) -> None:
    path, headers, more = NAMED[where]
    async with scripted(OK) as server:
        app = create_app({"m": remote(server)}, settings=two_keys())
        async with served(app) as url, httpx2.AsyncClient(base_url=url, timeout=30) as client:
            for text, key in (("hi", "alice"), ("ho", "alice"), ("hi", "bob")):
                await ask(client, path, text, key, headers, more)
    first, second, other = ids(server)
    assert first and first == second != other
    assert SESSION not in "".join(server.headers)


async def test_responses_that_are_not_stored_are_known_by_how_they_begin() -> None:
    async with scripted(OK) as server:
        app = create_app({"m": remote(server)}, settings=two_keys())
        async with served(app) as url, httpx2.AsyncClient(base_url=url, timeout=30) as client:
            for text in ("hi", "hi", "ho"):
                await ask(client, "/v1/responses", text, "alice", {}, {"store": False, "instructions": "Be brief."})
    first, second, other = ids(server)
    assert first and first == second != other


async def test_responses_that_go_on_from_one_another_are_one_conversation() -> None:
    async with scripted(OK) as server:
        app = create_app({"m": remote(server)})
        async with served(app) as url, httpx2.AsyncClient(base_url=url, timeout=30) as client:
            first = (await client.post("/v1/responses", json={"model": "m", "input": "hi"})).json()
            await client.post("/v1/responses", json={"model": "m", "input": "and now?", "previous_response_id": first["id"]})
    assert len(set(ids(server))) == 1

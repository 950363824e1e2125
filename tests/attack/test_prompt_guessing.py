"""Another key's prompt cannot be guessed from what is cached of it: nothing is reused across keys, nor across salts."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from callsmith.models.local import LocalModel
from callsmith.server.app import create_app
from callsmith.server.http.keys import hash_key
from callsmith.server.settings import Key, Llm, Settings
from tests.server.asking import http
from tests.small import open_small

SECRET = "The password of the vault is the name of the third moon of the planet that the old captain called his home. " * 3
KEYS = {name: Key(hash_key(name)) for name in ("alice", "mallory")}
PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/completions")


Cached = Callable[..., Awaitable[int]]


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[Cached]:
    """Asks a server with a real model for one token, and says how many tokens of the prompt it had in its cache."""
    model: LocalModel = open_small(context=2048)
    try:
        async with http(create_app({"m": model}, settings=Settings(**settings))) as asking:

            async def cached(key: str, path: str = PATHS[0], **more: Any) -> int:
                fields = {"messages": [{"role": "user", "content": SECRET}]} if "chat" in path else {}
                fields = {"input": SECRET, "max_output_tokens": 1} if "responses" in path else {"max_tokens": 1, **fields}
                body = {"model": "m", **({"prompt": SECRET} if path.endswith("/v1/completions") else {}), **fields, **more}
                response = await asking.post(path, json=body, headers={"authorization": f"Bearer {key}"})
                assert response.status_code == 200, response.text
                usage = response.json()["usage"]
                details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
                return details["cached_tokens"]

            yield cached
    finally:
        await model.close()


async def test_nothing_is_reused_of_another_keys_prompt_and_all_of_ones_own():
    async with serving(keys=KEYS) as cached:
        for path in PATHS:
            await cached("alice", path)
            assert await cached("alice", path) > 50
        assert await cached("mallory", PATHS[2]) == 0
        assert await cached("mallory", PATHS[0]) < 50  # its own beginning, at most
        assert await cached("alice") > 50


async def test_a_salt_keeps_requests_of_one_caller_apart():
    async with serving() as cached:
        assert await cached("", cache_salt="one") == 0
        assert await cached("", cache_salt="two") == 0
        assert await cached("") == 0
        assert await cached("", cache_salt="one") > 50
        assert await cached("", PATHS[1], cache_salt="one") > 50  # the same prompt in another dialect


async def test_without_keys_all_are_one_caller_and_an_operator_may_say_so_of_keys():
    async with serving() as cached:
        assert await cached("alice") == 0
        assert await cached("mallory") > 50
    async with serving(keys=KEYS, llm=Llm(share_prompt_cache=True)) as cached:
        assert await cached("alice") == 0
        assert await cached("mallory") > 50

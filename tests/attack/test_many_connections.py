"""Very many connections of those who have no key do not shut out those who have one. On real sockets."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from callsmith.core.events import CallEvent, Text
from callsmith.core.ports import Context
from callsmith.core.values import Call, Tool
from callsmith.server.http.keys import hash_key
from callsmith.server.settings import Key, Settings
from tests.attack.test_slow_clients import BODY, HEAD, PATIENCE, Ends, opened, protocol, rest, serving
from tests.fakes import FakeModel
from tests.waiting import until

__all__ = ["protocol"]  # a fixture

READY = b"GET /ready HTTP/1.1\r\nhost: localhost\r\n\r\n"
KEYS = {name: Key(hash_key(name)) for name in ("alice", "bob")}
ALICE, BOB = ({"authorization": f"Bearer {name}"} for name in KEYS)
GUARDED = Settings(connections=40, connections_per_address=30, header_seconds=60, body_seconds=60, keys=KEYS)
SENT = {
    "nothing at all": b"",
    "a request, and nothing more": READY,
    "half of its headers": b"GET /ready HTTP/1.1\r\nhost: lo",
    "half of a body": HEAD + b"content-length: 100\r\n\r\n{",
    "a key that is not known": HEAD + b"authorization: Bearer sk-nobody\r\ncontent-length: 100\r\n\r\n{",
}


async def _crowd(url: str, number: int, sent: bytes, address: str = "127.0.0.1") -> list[Ends]:
    """So many connections from an address, on each of which that is sent."""
    crowd = [await opened(url, address) for _ in range(number)]
    for _, writer in crowd:
        writer.write(sent)
    return crowd


async def _crowds(url: str, sent: bytes, addresses: int = 3) -> list[Ends]:
    """The same, from several addresses."""
    return [ends for number in range(addresses) for ends in await _crowd(url, 45, sent, f"127.0.0.{number + 1}")]


async def _asks(url: str, headers: dict[str, str], path: str = "/v1/models") -> int:
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE) as asking:
        return (await asking.get(path)).status_code


@pytest.mark.parametrize("sent", SENT)
@pytest.mark.parametrize("addresses", [1, 3])
async def test_connections_without_a_key_give_way_to_new_ones(protocol: Any, sent: str, addresses: int):
    async with serving(GUARDED, protocol) as url:
        crowd = await _crowds(url, SENT[sent], addresses)
        assert [await _asks(url, ALICE) for _ in range(3)] == [200] * 3
        for _, writer in crowd:
            writer.transport.abort()


async def test_an_address_is_limited_where_there_are_keys_too(protocol: Any):
    async with serving(GUARDED, protocol) as url:
        first = await _crowd(url, 5, READY, "127.0.0.2")
        crowd = await _crowd(url, 60, READY)
        await rest(crowd[0])  # the oldest of the address that has too many
        for reader, writer in first:
            assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"}"), PATIENCE)
            writer.write(READY)
            assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"}"), PATIENCE)
        for _, writer in (*first, *crowd):
            writer.transport.abort()


async def test_connections_that_have_shown_a_key_stay(protocol: Any):
    async with (
        serving(GUARDED, protocol) as url,
        httpx2.AsyncClient(base_url=url, headers=ALICE, timeout=PATIENCE) as asking,
    ):
        response = await asking.get("/v1/models")
        before = response.extensions["network_stream"].get_extra_info("client_addr")
        crowd = await _crowds(url, READY)
        response = await asking.get("/v1/models")
        assert response.status_code == 200
        assert response.extensions["network_stream"].get_extra_info("client_addr") == before
        for _, writer in crowd:
            writer.transport.abort()


class _SlowTools:
    """Tools that nobody can list."""

    async def tools(self) -> list[Tool]:
        await asyncio.sleep(PATIENCE)
        return []

    async def call(self, call: Call, context: Context) -> AsyncIterator[CallEvent]:
        raise NotImplementedError
        yield


async def test_requests_without_a_key_that_take_long_hold_a_quarter_of_the_connections(protocol: Any):
    async with serving(GUARDED, protocol, tools=_SlowTools()) as url:
        crowd = await _crowds(url, READY.replace(b"ready", b"health"))
        began = time.perf_counter()
        assert await _asks(url, ALICE) == 200
        assert time.perf_counter() - began < 1.5  # before any of those is answered, after 2 s
        for _, writer in crowd:
            writer.transport.abort()


async def test_the_connections_of_one_key_do_not_shut_out_another(protocol: Any):
    waiting = FakeModel(*[[Text("a"), 60.0] for _ in range(64)])
    async with serving(GUARDED, protocol, waiting) as url:
        whole = HEAD + b"authorization: Bearer alice\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY
        crowd = await _crowds(url, whole)
        await until(lambda: waiting.open == 30)
        assert await _asks(url, BOB) == 200
        for _, writer in crowd:
            writer.transport.abort()

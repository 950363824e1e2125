"""What clients send and have stored takes a bounded number of bytes, and nobody's makes room for another's."""

import asyncio
import json
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from callsmith.core.values import Call, Message
from callsmith.server.http.keys import hash_key
from callsmith.server.settings import Key, Requests, Settings
from callsmith.server.store import Document, StoreLimits
from callsmith.server.store.sqlite import SqliteStore
from callsmith.server.tools import planner
from callsmith.server.tools.planner import HiddenRound, HiddenRounds
from callsmith.wire.llama_server import read_completion
from tests.attack.loop_latency import measured_server
from tests.fakes import FakeModel
from tests.server.asking import HI, listening, says

CHAT = "/v1/chat/completions"
KEYS = {name: Key(hash_key(name)) for name in ("alice", "bob")}


async def _unfinished(url: str, key: str, size: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send all of a body but its end."""
    there = urlsplit(url)
    reader, writer = await asyncio.open_connection(there.hostname, there.port)
    lines = [f"POST {CHAT} HTTP/1.1", f"host: {there.netloc}", "content-type: application/json", f"authorization: Bearer {key}"]
    writer.write("\r\n".join([*lines, f"content-length: {size + 10}", "", ""]).encode() + b" " * size)
    await writer.drain()
    return reader, writer


async def test_unfinished_bodies_have_a_bound_for_each_caller_and_small_ones_are_always_read():
    settings = Settings(requests=Requests(arriving_bytes=2_000_000), keys=KEYS)
    async with listening(FakeModel(says("a")), settings=settings) as url, httpx2.AsyncClient(base_url=url) as asking:
        connections = [await _unfinished(url, "alice", 400_000) for _ in range(3)]
        refused = await asyncio.wait_for(connections[-1][0].readline(), 20)
        large = json.dumps({"messages": [{"role": "user", "content": "x" * 300_000}]}).encode()
        bodies = (("alice", large), ("bob", large), ("alice", json.dumps({"messages": HI}).encode()))
        heads = [{"authorization": f"Bearer {key}", "content-type": "application/json"} for key, _ in bodies]
        answers = [await asking.post(CHAT, content=body, headers=head) for head, (_, body) in zip(heads, bodies, strict=True)]
        for _, writer in connections:
            writer.close()
    assert b" 503 " in refused
    assert [answer.status_code for answer in answers] == [503, 200, 200]
    assert answers[0].headers["retry-after"]


async def test_unfinished_bodies_take_about_as_much_memory_as_they_have_bytes():
    with measured_server() as server:
        there = urlsplit(server.url)
        before = resident(there.port or 0)
        writers = list[asyncio.StreamWriter]()
        for _ in range(20):
            _, writer = await asyncio.open_connection(there.hostname, there.port)
            lines = [
                f"POST {CHAT} HTTP/1.1",
                f"host: {there.netloc}",
                "content-type: application/json",
                "transfer-encoding: chunked",
            ]
            writer.write("\r\n".join([*lines, "", ""]).encode() + b"1\r\n[\r\n" * 200_000)
            await writer.drain()
            writers.append(writer)
        await asyncio.sleep(2)
        memory = resident(there.port or 0) - before
        for writer in writers:
            writer.close()
    assert memory < 20 * 200_000 * 6  # as many bytes as were sent, chunk by chunk


def resident(port: int) -> int:
    """The memory of the process that was started to listen there."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if str(port) in (folder / "cmdline").read_text().split("\0"):
                return int((folder / "statm").read_text().split()[1]) * 4096
        except OSError:
            continue
    raise AssertionError("there is no such process")


async def test_documents_are_bounded_by_their_bytes_and_only_their_owner_loses_any():
    store = SqliteStore(limits=StoreLimits(bytes=10_000))
    await store.put(Document("response/bob", "b", "x" * 100))
    for number in range(50):
        await store.put(Document("response/alice", f"a{number:02}", "ä" * 1000))
    kept = await store.list("response/alice")
    assert [item.id for item in kept][-1] == "a49"
    assert sum(len(json.dumps(item.data, ensure_ascii=False).encode()) for item in kept) < 12_500
    assert await store.get("response/bob", "b")
    store.close()


def test_hidden_rounds_are_bounded_by_their_size_and_each_caller_loses_only_its_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(planner, "_MOST_CHARACTERS", 5_000)
    rounds, call = HiddenRounds(), Call("f", {}, "c1")
    histories = [(Message.user(str(number)),) for number in range(10)]
    large = HiddenRound((Message.assistant("x" * 1000, calls=[call]),))
    rounds.remember("bob", histories[0], [call], large)
    for history in histories:
        rounds.remember("alice", history, [call], large)
    lengths = [len(rounds.restore("alice", (*item, Message.assistant(calls=[call]))).messages[-1].content) for item in histories]
    assert lengths == [0] * 6 + [1000] * 4
    assert rounds.restore("bob", (*histories[0], Message.assistant(calls=[call]))).messages[-1].content


@pytest.mark.parametrize(("fields", "most"), [({}, 16), ({"n_predict": -1}, None), ({"n_predict": 5}, 5), ({"max_tokens": 7}, 7)])
def test_a_plain_completion_has_a_length_by_default(fields: dict[str, int], most: int | None):
    assert read_completion({"prompt": "a", **fields}).completion.sampling.max_tokens == most

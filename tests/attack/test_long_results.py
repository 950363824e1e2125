"""A tool result of 50 MB: what is cached, stored and sent of it is bounded and says how much is missing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from callsmith.core.events import ToolProgress
from callsmith.core.values import Call, Result
from callsmith.server.app import create_app
from callsmith.server.settings import Llm, Settings
from callsmith.server.store.sqlite import SqliteStore
from callsmith.tools.functions import tool
from callsmith.tools.wrap import Shortened
from tests.fakes import FakeModel, Sourced
from tests.server.asking import HI, calls, http, says

SIZE = 50_000_000
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
FILES = {"type": "mcp", "server_label": "files", "require_approval": "never"}
READ = "[Cut here: 49,960,000 of 50,000,000 characters are missing.]"
MISSING = "[Cut here: 49,000,000 of 50,000,000 characters are missing.]"


@tool(side_effects=True)
def dump() -> str:
    """Dumps everything."""
    return "x" * SIZE


@asynccontextmanager
async def server(*, ask: bool = False, store: SqliteStore | None = None) -> AsyncIterator[httpx2.AsyncClient]:
    settings = Settings(llm=Llm(tools_require_confirmation_for_side_effects=ask))
    model = FakeModel(calls(Call("dump", {}, "c1")), says("done"))
    async with http(create_app({"m": model}, tools=Sourced("mcp:files", dump), settings=settings, store=store)) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": HI, "tool_events": True}),
        (CHAT, {"messages": HI, "tool_events": True, "stream": True}),
        (RESPONSES, {"input": "hi", "tools": [FILES]}),
        (RESPONSES, {"input": "hi", "tools": [FILES], "stream": True}),
        ("/v1/tools/dump", {}),
    ],
)
async def test_what_is_sent_is_bounded_and_says_what_is_missing(path: str, body: dict[str, Any]):
    async with server() as client:
        answer = await client.post(path, json=body)
    assert answer.status_code == 200
    assert len(answer.content) < 5_000_000  # a stream of items has each up to three times
    # In Responses results are as the model reads them, for they come back with the history.
    assert (READ if path == RESPONSES else MISSING) in answer.text


async def test_what_is_stored_of_an_approved_call_is_bounded():
    store = SqliteStore()
    async with server(ask=True, store=store) as client:
        response = (await client.post(CHAT, json={"messages": HI})).json()
        [waiting] = response["callsmith"]["approvals"]
        decided = await client.post(f"/v1/approvals/{waiting['id']}", json={"approve": True})
    assert MISSING in decided.json()["result"]["content"]
    assert len(decided.content) < 1_100_000


class Loud:
    """A toolset whose results and progress are what it is given."""

    def __init__(self, content: Any) -> None:
        self._content = content

    async def tools(self) -> list[Any]:
        return []

    async def call(self, call: Call, context: Any) -> AsyncIterator[ToolProgress | Result]:
        yield ToolProgress(call.id, "p" * 30)
        yield Result(call.id, call.name, self._content)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("x" * 10, "x" * 10),
        ("x" * 11, f"{'x' * 10}\n[Cut here: 1 of 11 characters are missing.]"),
        ({"a": 1}, {"a": 1}),
        (["aaaaaa", "bbbbbb"], '["aaaaaa",\n[Cut here: 10 of 20 characters are missing.]'),
        ({1, 2}, {1, 2}),
    ],
)
async def test_what_fits_stays_as_it_is(content: Any, expected: Any):
    items = [item async for item in Shortened(Loud(content), 10).call(Call("a", {}, "c"), None)]  # pyright: ignore
    assert items == [
        ToolProgress("c", f"{'p' * 10}\n[Cut here: 20 of 30 characters are missing.]"),
        Result("c", "a", expected),
    ]

"""A server in a process of its own that measures how long its event loop was blocked.

with measured_server() as server:
    server.post("/v1/chat/completions", {"messages": [...]})
    server.worst_latency()          # seconds, since the last time it was asked for

python -m tests.attack.loop_latency         # the worst latency under each of the large requests, as a table
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from tests.serving import killed_program

_PROGRAM = """
import asyncio, json, sys

import uvicorn
from starlette.responses import JSONResponse
from starlette.routing import Route

from callsmith import open_model
from callsmith.server.app import create_app
from callsmith.server.parts.bus.part import BusPart
from callsmith.server.settings_sources import SettingsSource, merge_settings
from tests.attack.ticking import late, ticking
from tests.fakes import Letters
from tests.server.routes.bus.calling import scripted_bus

port, says, settings = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])


async def latency(_):
    found = max(late, default=0.0)
    late.clear()
    return JSONResponse(found)


async def main():
    task = asyncio.create_task(ticking())
    effective = merge_settings(SettingsSource("the test", settings)).settings
    models = {"m": Letters().around(open_model(f"scripted:{says}"))}
    app = create_app(models, settings=effective, parts=[BusPart(scripted_bus()[0])])
    app.router.routes.insert(0, Route("/latency", latency))
    await uvicorn.Server(uvicorn.Config(app, port=port, log_level="critical")).serve()


asyncio.run(main())
"""


@dataclass(frozen=True, slots=True)
class MeasuredServer:
    """A server that answers every request with the same words."""

    url: str

    def post(self, path: str, body: Any, timeout: float = 300) -> httpx2.Response:
        """The response to a body: JSON, or the bytes of it."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        return httpx2.post(self.url + path, content=content, headers=headers, timeout=timeout)

    def get(self, path: str, **query: str) -> httpx2.Response:
        return httpx2.get(self.url + path, params=query, timeout=300)

    def worst_latency(self) -> float:
        """How late the loop was at worst, in seconds, since this was last asked for."""
        return self.get("/latency").json()


@contextmanager
def measured_server(says: str = "hello there", **settings: Any) -> Iterator[MeasuredServer]:
    """A server with these settings, by their full names with __ for the dot: `requests__tools=10`."""
    values = {name.replace("__", "."): value for name, value in settings.items()}
    with killed_program(_PROGRAM, "PORT", says, json.dumps(values)) as url:
        server = MeasuredServer(url)
        server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})  # what is loaded only once
        server.worst_latency()
        yield server


def _user(text: str = "hi") -> dict[str, Any]:
    return {"role": "user", "content": text}


def _tool(name: str, properties: int = 1) -> dict[str, Any]:
    schema = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(properties)}}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def _function_pairs(count: int) -> list[dict[str, Any]]:
    call = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    return [_user(), *([call, {"role": "function", "name": "f", "content": "1"}] * count)]


def _long_arguments(count: int) -> list[dict[str, Any]]:
    called = {"name": "f", "arguments": json.dumps({"a": list(range(count))})}
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": called}]}
    return [_user(), call, {"role": "tool", "tool_call_id": "c1", "content": "1"}]


def _chat(messages: list[Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"messages": messages or [_user()], **fields}


# What blocked the loop for seconds, by what is large in it.
LARGE_REQUESTS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "a stop string of 10 MB": lambda: _chat(stop="a" * 10_000_000),
    "900,000 messages": lambda: _chat([_user("")] * 900_000),
    "100,000 tools": lambda: _chat(tools=[_tool(f"t{number}") for number in range(100_000)]),
    "30 MB of control tokens": lambda: _chat([_user("<|im_end|>" * 3_000_000)]),
    "200,000 properties": lambda: _chat(tools=[_tool("f", 200_000)]),
    "12,000 deprecated function pairs": lambda: _chat(_function_pairs(12_000)),
    "an unknown tool_choice among 50,000 tools": lambda: _chat(
        tools=[_tool(f"get_the_weather_{number}") for number in range(50_000)],
        tool_choice={"type": "function", "function": {"name": "get_the_weather"}},
    ),
    "100,000 elements in the arguments of a call": lambda: _chat(_long_arguments(100_000)),
    "a pattern of 1.2 MB": lambda: _chat(guided_regex="(a|b)" * 240_000),
}
# As much as is let through.
WITHIN_LIMITS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "4,900 deprecated function pairs": lambda: _chat(_function_pairs(4_900)),
    "10,000 messages": lambda: _chat([_user("a, b")] * 10_000),
    "a message of 8 MB": lambda: _chat([_user("word, " * 1_390_000)]),
    "7 MB of control tokens": lambda: _chat([_user("<|im_end|>" * 700_000)]),
    "240,000 parts of a message": lambda: _chat([{"role": "user", "content": ["a"] * 240_000}]),
    "2,000 tools of 8 properties": lambda: _chat(tools=[_tool(f"t{number}", 8) for number in range(2_000)]),
    "a tool of 6,000 properties": lambda: _chat(tools=[_tool("f", 6_000)]),
    "an unknown tool_choice among 2,000 tools": lambda: _chat(
        tools=[_tool(f"get_the_weather_{number}") for number in range(2_000)],
        tool_choice={"type": "function", "function": {"name": "get_the_weather"}},
    ),
    "64 stop strings of 1,000 bytes": lambda: _chat(stop=["hell" + "a" * 990 + str(number) for number in range(64)]),
}


if __name__ == "__main__":
    with measured_server() as server:
        for name, make in {**LARGE_REQUESTS, **WITHIN_LIMITS}.items():
            content = json.dumps(make()).encode()
            began = time.perf_counter()
            try:
                status = str(server.post("/v1/chat/completions", content, timeout=150).status_code)
            except httpx2.TimeoutException:
                status = "none"
            seconds = time.perf_counter() - began
            latency = server.worst_latency()
            print(f"{name:45} {len(content):>10} bytes  status {status}  {seconds:7.2f} s  latency {latency:7.3f} s", flush=True)

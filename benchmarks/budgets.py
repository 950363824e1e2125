"""The budgets of docs/requirements.md for what is done beside the model: each with what it takes here. Memory is `memory`'s.

CPU time, the best of several rounds, so that what else the machine does is left out; ten tools in the format hermes.
"""

import asyncio
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks import grammar
from benchmarks.measure import cpu_time, in_turn
from benchmarks.table import show
from callsmith.core.schema import validate
from callsmith.core.values import Call, Choice, Message, Request, Tool
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named, formats
from callsmith.formats.algebra import Format
from callsmith.formats.prompt.prompt import fit_id
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.formats.reader.parse import parse
from callsmith.formats.write import write
from callsmith.models.grammars import Grammars
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app
from callsmith.wire.openai.chat import ChatRequest, write_request
from tests.grammar.sampling import vocabulary

ROUNDS, SET = 9, 10
ARGUMENTS = {"city": "New York", "unit": "celsius", "loud": True, "places": [{"city": "Oslo", "zip": "0150"}]}
MANY_VALUES = {**ARGUMENTS, "places": [{"city": "Oslo", "zip": "0150"}] * 20}


def main(model: str) -> None:
    ours = grammar.Ours(vocabulary(model), "hermes")
    sets = iter([tuple(grammar.tool(SET * at + number) for number in range(SET)) for at in range(ROUNDS + 2)])
    tools, known = next(sets), Grammars(format_named("hermes"), relays=True)
    calls = [Call(tool.name, {"city": grammar.CITY, "unit": "celsius", "loud": True}) for tool in tools]
    hermes = format_named("hermes")
    texts = [(known_format, written(known_format, tools[0], ARGUMENTS)) for known_format in formats().values()]
    names, served = iter(range(10**6, 10**7)), Served(tools)

    def slowest() -> float:
        return max(cpu_time(partial(parse, known_format, text, tools)) for known_format, text in texts)

    def compiled() -> float:
        new = [grammar.tool(next(names)).parameters for _ in range(20)]
        return cpu_time(lambda: [validate(schema, {"city": "Oslo"}) for schema in new]) / 20

    ways: dict[str, Callable[[], float]] = {
        "R172": slowest,
        "R173": compiled,
        "R173 cached": lambda: cpu_time(lambda: validate(tools[0].parameters, {"city": "Oslo"}), 500),
        "R174": lambda: cpu_time(partial(ours.start, next(sets))),
        "R184": lambda: cpu_time(lambda: ours.start(tools, known), 50),
        "R176": lambda: cpu_time(lambda: parse(hermes, written(hermes, tools[0], ARGUMENTS), tools), 20),
        "R176 many": lambda: cpu_time(lambda: parse(hermes, written(hermes, tools[0], MANY_VALUES), tools), 20),
        "R177": served.cost,
    }
    took = {name: min(times) * 1e3 for name, times in in_turn(ways, ROUNDS).items()}
    *_, chosen, late, _ = ours.text_row(list(tools), calls)
    took |= {"R175": chosen / 1e3, "R175 p99": late / 1e3}
    size = len(json.dumps(ARGUMENTS))
    budgets = (
        ("R172", f"reading an answer with a call of {size:,} characters, the slowest format", 10.0),
        ("R173", "compiling a tool's schema", 1.0),
        ("R173 cached", "… a second time, and validating by it", 1.0),
        ("R174", f"making and compiling the grammar of {SET} tools", 10.0),
        ("R184", "… a second time", 0.1),
        ("R175", "choosing a token under a grammar, median", 0.1),
        ("R175 p99", "… the 99th of 100", 0.1),
        ("R176", f"reading {size:,} characters of arguments, 5 values, hermes", 1.0),
        ("R176 many", f"reading {len(json.dumps(MANY_VALUES)):,} characters of arguments, 43 values", 1.0),
        ("R177", f"a request with {SET} tools through the server, the model's time aside", 10.0),
    )
    rows = [
        (row, what, most, f"{took[row]:.4f}", "yes" if took[row] <= most else "NO", f"{most / took[row]:,.1f}")
        for row, what, most in budgets
    ]
    show("budgets: ms of CPU", ("", "", "budget", "measured", "kept", "times below"), rows)


def written(format: Format, tool: Tool, arguments: dict[str, Any]) -> str:
    return write(format, [Call(tool.name, arguments, fit_id("call_1", format.ids))])


class Served:
    """The server with a model that answers at once with a call; what a request costs it, without a socket."""

    def __init__(self, tools: tuple[Tool, ...]) -> None:
        text = write(format_named("hermes"), [Call(tools[0].name, {"city": "New York", "unit": "celsius"}, "call00001")])
        model = LocalModel(Scripted([text], chunk=4, repeat=True), format_named("hermes"), Template(CHATML))
        self._app: Any = create_app({"m": model})
        request = Request((Message.user("How is the weather in New York?"),), tools, Choice("required"))
        self._body = json.dumps({**write_request(ChatRequest("m", request)), "stream": True}).encode()

    def cost(self) -> float:
        """Seconds of CPU for one request."""
        return asyncio.run(self._cost())

    async def _cost(self, times: int = 20) -> float:
        sent: list[bytes] = []
        incoming: list[Any] = []
        scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "query_string": b"", "headers": []}

        async def receive() -> Any:
            return incoming.pop() if incoming else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))

        began = time.process_time()
        for _ in range(times):
            incoming.append({"type": "http.request", "body": self._body})
            await self._app({**scope, "http_version": "1.1"}, receive, send)
        spent = (time.process_time() - began) / times
        assert b"".join(sent).count(b'"get_weather_0"') == times, b"".join(sent)[:2000]
        return spent

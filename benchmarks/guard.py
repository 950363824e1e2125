"""A guard against things becoming ten times slower: a few cheap ratios, each far below its limit when all is well.

Ratios and not times, so that a slow machine is no failure: each is a cost of ours beside something simple that is done in the
same process. A limit is about ten times what was measured when it was set, or twice where it was hard to get there. What is above
it is measured twice more, and the least counts, so that noise is no failure either.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import bus, gateway, loop, reader, relay, server, startup
from benchmarks.table import show
from callsmith.bus.opening import open_bus
from callsmith.core.schema import validate
from callsmith.core.values import Choice, Tool
from callsmith.formats import formats
from callsmith.formats.algebra import Format

TYPER = "import time, typer; print(time.process_time())"
AGAIN = 3  # times that something is measured before it counts as too slow


@dataclass(frozen=True, slots=True)
class Check:
    """A ratio that stays below its limit. `usual` is what was measured when the limit was set."""

    name: str
    measure: Callable[[], float]
    usual: float
    limit: float


@dataclass(frozen=True, slots=True)
class Found:
    """What a check came to."""

    check: Check
    ratio: float

    @property
    def is_kept(self) -> bool:
        return self.ratio <= self.check.limit

    def __str__(self) -> str:
        check = self.check
        return f"{check.name}: {self.ratio:.3g}, where {check.usual:g} is usual and {check.limit:g} the limit"


def judge(checks: Sequence[Check]) -> list[Found]:
    """Measure each, again where it is too slow; the least counts."""
    results: list[Found] = []
    for check in checks:
        result = Found(check, check.measure())
        for _ in range(AGAIN - 1):
            if not result.is_kept:
                result = Found(check, min(result.ratio, check.measure()))
        results.append(result)
    return results


def main(model: str) -> None:
    began = time.monotonic()
    results = judge(CHECKS)
    rows = [
        (result.check.name, f"{result.ratio:.3g}", f"{result.check.usual:g}", f"{result.check.limit:g}") for result in results
    ]
    show(f"ratios that are guarded, in {time.monotonic() - began:.0f} s", ("", "now", "usual", "limit"), rows)
    if slow := [str(result) for result in results if not result.is_kept]:
        sys.exit("Something has become many times slower:\n  " + "\n  ".join(slow))


# --- what is measured ----------------------------------------------------------------------------------------------------------


def read_beside_json() -> float:
    """The middle format: reading 10 KB in pieces of 64 characters, beside `json.loads` of the same text as JSON."""
    text = json.dumps({"content": reader.text_of(10_000)})
    simple = _least(lambda: json.loads(text), 200)
    return median(_read(format, 10_000) for format in formats().values() if reader.pieces_of(format, 10_000, 64)) / simple


def whole_beside_json(size: int) -> float:
    """The middle format: reading a whole answer, beside `json.loads` of the same text as JSON."""
    text = json.dumps({"content": reader.text_of(size)})
    wholes = ["".join(reader.pieces_of(format, size, 64)) for format in formats().values()]
    costs = [
        _least(partial(reader.read_whole, format, whole), 20)
        for format, whole in zip(formats().values(), wholes, strict=True)
        if whole
    ]
    return median(costs) / _least(lambda: json.loads(text), 200)


def read_longer() -> float:
    """The steepest format: a byte of 100 KB beside a byte of 10 KB."""
    return max(_read(format, 100_000) / 10 / short for format in formats().values() if (short := _read(format, 10_000)))


def _read(format: Format, size: int) -> float:
    pieces = reader.pieces_of(format, size, 64)
    return _least(lambda: reader.read(format, pieces), 1, rounds=3) if pieces else 0.0


def cached_grammar() -> float:
    """Ten tools: a grammar that is known already, beside making it."""
    from benchmarks.grammar import tool
    from callsmith.engines.decoding.compiler import Compiler
    from callsmith.formats import format_named
    from callsmith.models.grammars import Grammars
    from tests.grammar.sampling import vocabulary

    compiler, known = Compiler(vocabulary()), Grammars(format_named("hermes"), relays=True)
    compiler.compile('start: "a"')

    def start(grammars: Grammars, tools: tuple[Tool, ...]) -> None:
        grammar = grammars.get(tools, Choice("required"), parallel=False)
        assert grammar is not None
        compiler.begin(grammar)

    def cold(tools: tuple[Tool, ...]) -> float:
        return _spent(lambda: start(Grammars(format_named("hermes"), relays=True), tools))

    first, *others = [tuple(tool(10 * at + number) for number in range(10)) for at in range(6)]
    start(known, first)
    return _least(lambda: start(known, first), 50) / min(map(cold, others))


def chosen_tool() -> float:
    """Ten tools: the longest that an answer waits when it chooses one that was compiled ahead, beside one that was not."""
    from benchmarks.grammar import Ours, ask, tool
    from callsmith.core.values import Call
    from tests.grammar.sampling import vocabulary

    ours, longest = Ours(vocabulary(), "hermes"), dict[bool, list[float]]({True: [], False: []})
    for at in range(8):
        tools, is_ahead = [tool(10 * at + number) for number in range(10)], at % 2 == 0
        if is_ahead:
            ours.prepare(tools)
        call = Call(tools[5].name, {"city": "Oslo", "unit": "celsius"})
        longest[is_ahead].append(max(ours.steps(tools, call, ask)[1]))
    return min(longest[True]) / min(longest[False])


def choosing() -> float:
    """What share of a step of a small model goes into masks and sampling, under a grammar."""
    from dataclasses import replace

    from benchmarks import constrained
    from callsmith.models.opening import Options, open_local

    local = open_local("smollm2-135m", Options(context=1024))
    engine: Any = local.engine
    engine.fast_forward = False

    async def answers() -> float:
        request = replace(constrained.ASKED, choice=Choice("required"))
        with constrained.Choosing():
            answered = [await constrained._answer(local, engine, request) for _ in range(2)]  # the first reads the prompt
        await local.close()
        return answered[1].share / 100

    return asyncio.run(answers())


def token_beside_max() -> float:
    """Choosing a token of 151,936 where the likeliest is allowed, beside `max` of the same logits."""
    import numpy as np

    from callsmith.engines.decoding.sequence import DEFAULTS, Sampler

    sampler, logits = Sampler(DEFAULTS), np.random.default_rng(1).standard_normal(151_936, np.float32)
    logits[777] = 12
    return _least(lambda: sampler.choose(logits), 200) / _least(logits.max, 200)


def help_beside_typer() -> float:
    """`callsmith --help`, beside a process that only imports what it is made with."""
    return min(startup.run(startup.HELP) for _ in range(3)) / min(startup.run(TYPER) for _ in range(3))


def loop_beside_hand() -> float:
    """A run of twenty calls, beside the same model and tool in a bare `for`."""
    return asyncio.run(_least_of(loop.ours_and_by_hand()))


def streamed_chunk() -> float:
    """What the application adds to a chunk, beside what the model's event costs that it is made of."""
    path, body = server.DIALECTS["chat completions"]

    async def ratio() -> float:
        alone = await server._alone()
        return (await server._application(path, body) - alone) / alone

    return asyncio.run(ratio())


def through_gateway() -> float:
    """An answer of forty chunks through our gateway, beside one straight from the server behind it."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = stack.enter_context(gateway.running([sys.executable, "-c", gateway.UPSTREAM, "PORT"]))
        ours = stack.enter_context(gateway.running(gateway.callsmith(upstream, folder)))

        async def times(port: int) -> float:
            return min((await gateway._load(port, 1, 1.0))[0])

        return asyncio.run(times(ours)) / asyncio.run(times(upstream))


def relayed_token() -> float:
    """A token through our gateway, beside one through a bare relay."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ways = relay.ways(stack, folder, ("chat completions",))
        del ways[relay.FLOOR]
        costs = {name: relay.cost(spent)[0].all for name, spent in asyncio.run(relay.rounds(ways, 1)).items()}
        return costs["chat completions"] / costs[relay.BARE]


def bus_call() -> float:
    """A call within the process, beside checking both schemas and calling the function."""
    here = open_bus("local")
    here.register(bus.ECHO, bus.echo)
    call: Any = type("Call", (), {"input": bus.BODY["input"]})()

    async def by_hand(times: int) -> None:
        for _ in range(times):
            assert not validate(bus.ECHO.request_schema, bus.BODY)
            assert not validate(bus.ECHO.response_schema, await bus.echo(call))

    work = bus._calls(here)
    return asyncio.run(_least_of((lambda: work(200), lambda: by_hand(200))))


# --- measuring -----------------------------------------------------------------------------------------------------------------


def _spent(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _least(work: Callable[[], object], times: int, rounds: int = 3) -> float:
    """Seconds of CPU for one, in the best round."""
    return min(_spent(lambda: [work() for _ in range(times)]) for _ in range(rounds)) / times


async def _least_of(ways: tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]) -> float:
    """Seconds of CPU of the first, beside the second, each in the best of several rounds that take turns."""
    least = [float("inf")] * 2
    for _ in range(12):
        for at, work in enumerate(ways):
            began = time.process_time()
            await work()
            least[at] = min(least[at], time.process_time() - began)
    return least[0] / least[1]


CHECKS = (
    Check("reading 10 KB ÷ json.loads, middle format", read_beside_json, 40, 100),
    Check("reading a whole 1 KB ÷ json.loads, middle format", partial(whole_beside_json, 1_000), 6.2, 12.5),
    Check("reading a whole 10 KB ÷ json.loads, middle format", partial(whole_beside_json, 10_000), 1.8, 3.6),
    Check("reading: a byte of 100 KB ÷ of 10 KB, steepest format", read_longer, 1.3, 6),
    Check("a grammar: cached ÷ compiled", cached_grammar, 0.012, 0.12),
    Check("choosing a tool that was compiled ahead ÷ one that was not", chosen_tool, 0.03, 0.15),
    Check("masks and sampling ÷ a step of a small model", choosing, 0.03, 0.3),
    Check("a token of 151,936 ÷ max of the logits", token_beside_max, 1.65, 3.3),
    Check("callsmith --help ÷ importing typer", help_beside_typer, 1.6, 3),
    Check("the loop, a call ÷ by hand", loop_beside_hand, 5.5, 11),
    Check("a streamed chunk, what the application adds ÷ the model alone", streamed_chunk, 0.6, 6),
    Check("an answer through the gateway ÷ directly", through_gateway, 30, 75),
    Check("a token through the gateway ÷ a bare relay", relayed_token, 1.5, 2.5),
    Check("a call by the bus ÷ checked by hand", bus_call, 17, 34),
)

"""What a constrained call costs beside an unconstrained one, what fast-forwarding over forced tokens saves, and what share of a
step goes into holding the answer to its grammar and choosing a token.

Only decoding is compared: every prompt is asked once before it is measured, so that it is already in the model's memory.
"""

import asyncio
import time
from dataclasses import dataclass, replace

from benchmarks.table import goal, show
from callsmith.core.events import CallReady
from callsmith.core.schema import validate
from callsmith.core.values import Choice, Message, Request, Sampling, Tool
from callsmith.engines.decoding.sequence import Sequence
from callsmith.engines.decoding.vocabulary import Logits
from callsmith.engines.llama.engine import LlamaEngine
from callsmith.engines.llama.libllama import cores
from callsmith.engines.port import Piece
from callsmith.models.local import LocalModel
from callsmith.models.opening import Options, open_local
from callsmith.models.weights.fetch import fetch

RUNS = 3
MOST = 120  # tokens of an answer
UNIT = {"type": "string", "enum": ["celsius", "fahrenheit"]}
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 40},
        "unit": UNIT,
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
    },
    "required": ["city", "unit", "days"],
    "additionalProperties": False,
}
TOOL = Tool("get_weather", "The weather in a city.", WEATHER)
ASKED = Request(
    (Message.user("What will the weather be like in Paris over the next 3 days, in celsius?"),),
    (TOOL,),
    parallel=False,
    sampling=Sampling(temperature=0.0, max_tokens=MOST),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: how long it took, how many tokens it had, and whether a valid call was in it."""

    seconds: float
    tokens: int
    decodes: int
    valid: bool
    choosing: float  # seconds of computing spent in masks and sampling
    computing: float  # and in all, by one core

    @property
    def per_token(self) -> float:
        return self.seconds / max(1, self.tokens) * 1000

    @property
    def share(self) -> float:
        """How much of the time, in per cent, goes into masks and sampling."""
        return 100 * self.choosing / self.computing


class Choosing:
    """Watches how long choosing tokens takes, apart from decoding them."""

    seconds = 0.0

    def __init__(self) -> None:
        self._advance = Sequence.advance

    def __enter__(self) -> None:
        def advance(sequence: Sequence, logits: Logits) -> list[Piece]:
            began = time.thread_time()
            pieces = self._advance(sequence, logits)
            Choosing.seconds += time.thread_time() - began
            return pieces

        Sequence.advance = advance

    def __exit__(self, *_: object) -> None:
        Sequence.advance = self._advance


def main(model: str) -> None:
    fetch(model)
    local = open_local(model, Options(context=1024))
    engine = local.engine
    assert isinstance(engine, LlamaEngine)
    required = replace(ASKED, choice=Choice("required"))
    ways = [("unconstrained", ASKED, True), ("constrained", required, False), ("constrained, fast-forward", required, True)]
    rows: list[tuple[str, Answer]] = []
    for name, request, fast_forward in ways:
        engine.fast_forward = fast_forward
        with Choosing():
            answers = asyncio.run(_answers(local, engine, request))
        rows.append((name, sorted(answers, key=lambda answer: answer.seconds)[len(answers) // 2]))
    asyncio.run(engine.close())
    show(
        f"{model}: one call, decoding only, median of {RUNS}",
        ("", "ms a call", "tokens", "decodes", "ms a token", "choosing %", "valid call"),
        [
            (name, one.seconds * 1000, one.tokens, one.decodes, one.per_token, one.share, "yes" if one.valid else "no")
            for name, one in rows
        ],
    )
    (_, free), (_, slow), (_, fast) = rows
    call = [one.seconds / free.seconds for one in (slow, fast)]
    token = [one.per_token / free.per_token for one in (slow, fast)]
    busy = [one.computing / free.computing for one in (slow, fast)]
    print(f"  constrained / unconstrained, computing for a call: {busy[0]:.2f}, with fast-forward {busy[1]:.2f}")
    print(f"  constrained / unconstrained, a call: {call[0]:.2f}, with fast-forward {call[1]:.2f}")
    print(f"  constrained / unconstrained, a token: {token[0]:.2f}, with fast-forward {token[1]:.2f}")
    goal("a call with fast-forward / unconstrained", call[1], 0.7)
    goal("choosing tokens, % of a step,", slow.share, 3)
    if not free.valid:
        print("  the unconstrained answer held no valid call, so its time is not that of a call: compare by the token")


async def _answers(model: LocalModel, engine: LlamaEngine, request: Request) -> list[Answer]:
    await _answer(model, engine, request)
    return [await _answer(model, engine, request) for _ in range(RUNS)]


async def _answer(model: LocalModel, engine: LlamaEngine, request: Request) -> Answer:
    decodes, sampled = engine.stats.decodes, engine.stats.sampled + engine.stats.forced
    valid, began, busy, Choosing.seconds = False, time.perf_counter(), time.process_time(), 0.0
    async for event in model.stream(request):
        if isinstance(event, CallReady):
            valid = validate(WEATHER, event.call.arguments) == []
    seconds, computing = time.perf_counter() - began, (time.process_time() - busy) / min(cores(), 2)
    await asyncio.sleep(0.2)  # an answer that was ended early is only then accounted for
    tokens = engine.stats.sampled + engine.stats.forced - sampled
    return Answer(seconds, tokens, engine.stats.decodes - decodes, valid, Choosing.seconds, computing)

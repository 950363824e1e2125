"""What a constrained call costs beside a free one, what skipping forced tokens saves, and what share of a step goes into holding
the answer to its grammar and choosing a token.

Both write the same tokens: the free one is made to say those of the constrained call, after the work of choosing has been done.
Only decoding is compared: every prompt is asked once before it is measured, so that it is already in the model's memory.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.measure import compare
from benchmarks.table import goal, show
from callsmith.core.events import CallReady
from callsmith.core.schema import validate
from callsmith.core.values import Choice, Message, Request, Sampling, Tool
from callsmith.engines.decoding.compiler import ActiveConstraint
from callsmith.engines.decoding.sequence import Sampler, Sequence
from callsmith.engines.decoding.vocabulary import Logits
from callsmith.engines.llama.engine import LlamaEngine
from callsmith.engines.llama.threads import cores
from callsmith.engines.port import Piece
from callsmith.models.local import LocalModel
from callsmith.models.opening import Options, open_local
from callsmith.models.weights.fetch import fetch

RUNS = 5
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
FREE, SAME = "free", "free, made to write the same tokens"
HELD, FAST = "constrained, every token sampled", "constrained"  # the second skips what the grammar forces
MOST_COST = 0.1  # of the latency
TOOL = Tool("get_weather", "The weather in a city.", WEATHER)
ASKED = Request(
    (Message.user("What will the weather be like in Paris over the next 3 days, in celsius?"),),
    (TOOL,),
    parallel=False,
    # With a seed all threads decode, whatever else runs here: with another number of them the last bits differ, and the call may.
    sampling=Sampling(temperature=0.0, max_tokens=MOST, seed=1),
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


class Following:
    """Has answers say given tokens, after the work of choosing has been done; without any, notes what is chosen."""

    def __init__(self, tokens: list[int] | None = None) -> None:
        self.noted: list[int] = []
        self._given, self._choose = tokens, Sampler.choose

    def __enter__(self) -> "Following":
        def choose(sampler: Sampler, logits: Logits, active: ActiveConstraint | None = None) -> int:
            token = self._choose(sampler, logits, active)
            if self._given is not None:
                assert active is None, "this answer is to be free"
                token = self._given[len(self.noted)]
            self.noted.append(token)
            return token

        Sampler.choose = choose
        return self

    def __exit__(self, *_: object) -> None:
        Sampler.choose = self._choose


def main(model: str) -> None:
    fetch(model)
    # As its template asks, and nothing is decided beforehand: else the free answer would be held to a grammar too.
    local = open_local(model, Options(context=1024, auto_guarded=False, tool_prompt="template"))
    engine = local.engine
    assert isinstance(engine, LlamaEngine)
    required = replace(ASKED, choice=Choice("required"))
    engine.fast_forward = False
    with Following() as call:
        asyncio.run(_answer(local, engine, required))
    tokens = call.noted
    same = replace(ASKED, sampling=replace(ASKED.sampling, max_tokens=len(tokens)))
    ways = {
        FREE: (ASKED, True, None),
        SAME: (same, True, tokens),
        HELD: (required, False, None),
        FAST: (required, True, None),
    }
    answers: dict[str, list[Answer]] = {name: [] for name in ways}
    for number in range(1 + RUNS):
        for name, (request, fast_forward, choices) in ways.items():
            engine.fast_forward = fast_forward
            with Choosing(), Following(choices):
                answer = asyncio.run(_answer(local, engine, request))
            if number:  # the first round reads the prompts
                answers[name].append(answer)
    asyncio.run(engine.close())
    assert len({answers[name][0].tokens for name in (SAME, HELD)}) == 1, "the same call has as many tokens"
    for name, rival, goal_of in ((HELD, SAME, 1 / (1 + MOST_COST)), (FAST, SAME, None), (FAST, FREE, 1 / 0.7)):
        compare(f"{name}: a call", "ms", *_both(answers, name, rival, lambda item: item.seconds * 1000), goal=goal_of)
        compare(f"{name}: computing for it", "CPU ms", *_both(answers, name, rival, lambda item: item.computing * 1000))
    rows = [(name, sorted(runs, key=lambda answer: answer.seconds)[RUNS // 2]) for name, runs in answers.items()]
    show(
        f"{model}: one call, decoding only, median of {RUNS}",
        ("", "ms a call", "tokens", "decodes", "ms a token", "choosing %", "valid call"),
        [
            (
                name,
                median_answer.seconds * 1000,
                median_answer.tokens,
                median_answer.decodes,
                median_answer.per_token,
                median_answer.share,
                "yes" if median_answer.valid else "no",
            )
            for name, median_answer in rows
        ],
    )
    goal("choosing tokens, % of a step,", dict(rows)[HELD].share, 3)
    if not dict(rows)[FREE].valid:
        print("  the free answer held no valid call, so its time is not that of a call")


def _both(
    answers: dict[str, list[Answer]], name: str, rival: str, of: Callable[[Answer], float]
) -> tuple[list[float], str, list[float]]:
    return [of(answer) for answer in answers[name]], rival, [of(answer) for answer in answers[rival]]


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

"""MaskBench: ten thousand schemas with instances, valid and invalid, and a mask at every token of them, beside other engines.

The collection (guidance-ai/jsonschemabench) has no licence of its own: `--corpus` names its file, one schema a line, compressed
by xz, and without it there is nothing to measure. `--sample 1000` takes so many of its schemas, the same each time. Every engine
gets the same schemas, in turn, with the same limits and the vocabulary of the same model; what is over a limit does not compile.
Instances have `, ` and `: ` between their parts. A schema passes whole where each of its instances is judged as its label says.
*Unlisted*: an invalid instance is accepted, and would be invalid even without the keywords that are listed as not enforced.
"""

import json
import lzma
import random
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

from benchmarks.mask_engines import ENGINES, MEMORY, SECONDS, Held, Worker
from benchmarks.measure import compare
from benchmarks.table import goal, show
from tests.grammar.judging import is_explained

OURS = "callsmith"
WHOLE, MASK = 9600, 64  # schemas that are to pass whole, of all of them; µs, what llguidance has published
MOST, LONGEST = 20, 120  # reasons that are shown, and characters of each


def main(model: str, corpus: str | None = None, sample: int | None = None, engines: str | None = None) -> None:
    if corpus is None or not Path(corpus).is_file():
        print("\nMaskBench: its file is not there; --corpus names it")
        return
    cases = read(Path(corpus), sample)
    held: dict[str, list[Held]] = {}
    with ExitStack() as stack:
        workers: list[Worker] = []
        for name in engines.split(",") if engines else ENGINES:
            try:
                workers.append(stack.enter_context(Worker(name, model)))
            except ImportError as missing:
                print(f"\n{name}: not installed ({missing}); make rivals fetches it")
        results = [(worker, held.setdefault(worker.name, list[Held]())) for worker in workers]
        with suppress(KeyboardInterrupt):  # what was measured until then is told
            for number, case in enumerate(cases, 1):
                instances = [test["data"] for test in case["tests"]]
                found = [worker.hold(case["schema"], instances) for worker, _ in results]
                for (_, known), one in zip(results, found, strict=True):
                    known.append(one)
                if number % 100 == 0:
                    print(f"{number} of {len(cases)} schemas", file=sys.stderr)
    done = min(map(len, held.values()), default=0)
    tell(cases[:done], held, is_all=sample is None and done == len(cases))


def read(corpus: Path, sample: int | None = None) -> list[Any]:
    """The schemas with their instances, or so many of them, drawn by a fixed seed."""
    with lzma.open(corpus, "rt") as lines:
        cases = [json.loads(line) for line in lines]
    return cases if sample is None else random.Random("maskbench").sample(cases, len(cases))[:sample]


def tell(cases: Sequence[Any], held: dict[str, list[Held]], *, is_all: bool) -> None:
    instances = [test for case in cases for test in case["tests"]]
    valid = sum(test["valid"] for test in instances)
    counts = {name: count(cases, results) for name, results in held.items()}
    what = f"{len(cases):,} schemas, {len(instances):,} instances, {valid:,} valid"
    show(
        f"MaskBench: {what}; {SECONDS} s and {MEMORY >> 30} GiB a schema",
        ("", "compiled", "valid accepted", "refused", "invalid refused", "accepted, listed", "unlisted", "pass whole"),
        [(name, *(counted[key] for key in KEYS)) for name, counted in counts.items()],
    )
    show(
        "µs a mask, and ms to compile, of what each compiles", HEADS, [(name, *costs(results)) for name, results in held.items()]
    )
    ours = held[OURS]
    for name, theirs in held.items():
        if name != OURS:
            beside(name, counts[OURS], counts[name], ours, theirs)
    if is_all:
        passed = counts[OURS]["whole"]
        print(f"  goal: at least {WHOLE:,} schemas pass whole; {passed:,}: {'kept' if passed >= WHOLE else 'MISSED'}")
    goal("invalid instances accepted unlisted", counts[OURS]["unlisted"], 0)
    goal("µs a mask, mean, llguidance's published one", mean([mask for one in ours for mask in one.masks]), MASK)
    for what, counted in (
        ("why schemas do not compile here", Counter(one.why for one in ours if one.why)),
        ("listed where invalid instances are accepted", Counter(map(listed, leaking(cases, ours)))),
    ):
        if counted:
            show(what, ("", "schemas"), [(text[:LONGEST], str(times)) for text, times in counted.most_common(MOST)])


KEYS = ("compiled", "accepted", "over", "refused", "listed", "unlisted", "whole")
HEADS = ("", "masks", "mask mean", "p50", "p99", "max", "compile mean", "p50", "p99")


def count(cases: Sequence[Any], results: Sequence[Held]) -> Counter[str]:
    counts = Counter[str]()
    for case, one in zip(cases, results, strict=True):
        if one.why:
            continue
        counts["compiled"] += 1
        counts["whole"] += one.accepts == [test["valid"] for test in case["tests"]]
        for test, accepted in zip(case["tests"], one.accepts, strict=True):
            match test["valid"], accepted:
                case True, _:
                    counts["accepted" if accepted else "over"] += 1
                case _, False:
                    counts["refused"] += 1
                case _:
                    is_listed = bool(one.unenforced) and is_explained(case["schema"], one.unenforced, test["data"])
                    counts["listed" if is_listed else "unlisted"] += 1
    return counts


def listed(one: Held) -> str:
    return ", ".join(sorted({keyword for _, keyword in one.unenforced}))


def leaking(cases: Sequence[Any], results: Sequence[Held]) -> list[Held]:
    """The schemas of which an invalid instance is accepted."""
    return [
        one
        for case, one in zip(cases, results, strict=True)
        if any(accepted and not test["valid"] for test, accepted in zip(case["tests"], one.accepts, strict=False))
    ]


def costs(results: Sequence[Held]) -> tuple[object, ...]:
    masks = [mask for one in results for mask in one.masks]
    compiling = [one.compiling * 1000 for one in results if not one.why]
    if len(masks) < 2 or len(compiling) < 2:
        return (len(masks), *[""] * 7)
    times = (mean(masks), median(masks), p99(masks), max(masks))
    return (len(masks), *times, mean(compiling), median(compiling), p99(compiling))


def p99(values: Sequence[float]) -> float:
    return quantiles(values, n=100)[98]


def beside(name: str, counted: Counter[str], theirs_counted: Counter[str], ours: Sequence[Held], theirs: Sequence[Held]) -> None:
    """Figures beside a rival's; costs are of the schemas that both compile."""
    for what, key in (("schemas compiled", "compiled"), ("schemas that pass whole", "whole")):
        compare(what, "schemas", [counted[key]], name, [theirs_counted[key]], more_is_better=True)
    both = [(a, b) for a, b in zip(ours, theirs, strict=True) if not a.why and not b.why]
    masks = [[mask for pair in both for mask in pair[side].masks] for side in (0, 1)]
    compiling = [[pair[side].compiling * 1000 for pair in both] for side in (0, 1)]
    if len(both) < 2 or not all(masks):
        return
    for unit, part in (("mean", mean), ("p50", median), ("p99", p99)):
        compare(f"a mask, {unit}", "CPU µs", [part(masks[0])], name, [part(masks[1])])
        compare(f"compiling, {unit}", "CPU ms", [part(compiling[0])], name, [part(compiling[1])])

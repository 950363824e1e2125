"""GBNF from JSON Schema, ours and llama.cpp's own: what the grammar engine then accepts and refuses, and what it costs."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from statistics import median, quantiles
from typing import Any, TypeAlias

from benchmarks.table import show
from callsmith.core.errors import UnsupportedSchema
from callsmith.grammar.nodes import Grammar, JsonValue
from callsmith.grammar.targets.gbnf import to_gbnf
from tests.formats.reader.corpus import CORPUS
from tests.grammar.targets.gbnf_sample import Case, bfcl_cases, random_cases, spelled
from tests.grammar.targets.llama_grammar import CONVERT, PARSE_JSON, Converter, LlamaGrammar, missing

Made: TypeAlias = tuple[str, float] | None  # the grammar and the seconds it took; None: refused
RANDOM, TOOLS = 400, 400


def main(model: str) -> None:
    """`model` is not needed: the engine works on characters."""
    os.environ["CALLSMITH_LIBLLAMA"] = "pinned"  # their converter is in the pinned library
    if why := missing():
        print(f"\nGBNF: {why}")
        return
    samples = {"every keyword": list(random_cases(RANDOM, seed=1))}
    if (CORPUS / "bfcl_gold.jsonl.gz").is_file():
        samples["BFCL tools"] = list(bfcl_cases(CORPUS, TOOLS))
    theirs = Converter() if not missing(PARSE_JSON, CONVERT) else None
    for name, cases in samples.items():
        rows = [measured("callsmith", ours, cases)]
        if theirs is not None:
            rows.append(measured("llama.cpp", theirs.convert, cases))
        heads = (
            "converter",
            "schemas",
            "compiled",
            "valid accepted %",
            "invalid refused %",
            "exact schemas %",
            "ms p50",
            "p95",
            "max",
        )
        show(
            f"{name}: {sum(len(case.valid) for case in cases)} valid values, {sum(len(case.invalid) for case in cases)} invalid",
            heads,
            rows,
        )
    if theirs is not None:
        theirs.close()


def ours(schema: Any) -> Made:
    began = time.perf_counter()
    try:
        grammar = to_gbnf(Grammar(JsonValue(schema)))
    except UnsupportedSchema:
        return None
    return grammar.text, time.perf_counter() - began


def measured(name: str, convert: Callable[[Any], Made], cases: Iterable[Case]) -> tuple[object, ...]:
    """A row of the table. Of a schema that is refused no value counts, nor is it exact unless nothing satisfies it."""
    count, times = Counter[str](), list[float]()
    for case in cases:
        count["schemas"] += 1
        converted = convert(case.schema)
        judge = loaded(converted)
        if converted is None or judge is None:
            count["exact"] += not case.valid
            continue
        times.append(converted[1] * 1000)
        right = [judge.accepts(spelled(value)) for value in case.valid]
        wrong = [not judge.accepts(spelled(value)) for value in case.invalid]
        count["compiled"] += 1
        count["exact"] += all(right) and all(wrong)
        count.update({"valid": len(right), "accepted": sum(right), "invalid": len(wrong), "refused": sum(wrong)})
    rates = (share(count, "accepted", "valid"), share(count, "refused", "invalid"), share(count, "exact", "schemas"))
    return name, count["schemas"], count["compiled"], *rates, median(times), quantiles(times, n=20)[18], max(times)


def loaded(converted: Made) -> LlamaGrammar | None:
    try:
        return LlamaGrammar(converted[0]) if converted else None
    except ValueError:
        return None


def share(count: Counter[str], part: str, whole: str) -> float:
    return 100 * count[part] / max(1, count[whole])

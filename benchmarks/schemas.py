"""JSON Schema, by the suite that validators are held to: how much compiles, and whether what is valid is accepted, and only that.

Beside llguidance's own compiler of JSON Schema and xgrammar's, over a vocabulary of bytes. The suite (JSON-Schema-Test-Suite,
draft 2020-12, without what is optional there) comes with `make rivals`. As tools are called, our objects are closed and keep
their order; "as written" takes schemas at their word, as the others do. "Unlisted": an invalid instance was accepted, and the
compiler has not listed a keyword that it does not enforce. The others list nothing.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import compare
from benchmarks.rivals import xgrammar
from benchmarks.table import show
from callsmith.evals.schemas import SchemaJudge, write_value

SUITE = Path(__file__).parents[1] / ".venv-rivals" / "json-schema-suite" / "tests" / "draft2020-12"
AS_WRITTEN = "callsmith, as written"
Verdict = tuple[bool, list[bool]]  # whether what is not enforced was listed, and which instances are accepted
Judge = Callable[[Any, list[Any]], Verdict | None]  # None: it does not compile


def main(model: str) -> None:
    """`model` is not needed: the vocabulary is one of bytes."""
    if not SUITE.is_dir():
        print(f"\nJSON Schema: the suite is not at {SUITE}; make rivals fetches it")
        return
    groups = list(_groups())
    counts = {name: _counted(judge, groups) for name, judge in _judges()}
    instances = sum(len(group["tests"]) for group in groups)
    heads = (
        "",
        "schemas compiled",
        "valid accepted",
        "invalid refused",
        "invalid accepted",
        "of them unlisted",
        "all as the schema says",
    )
    keys = ("compiled", "accepted", "refused", "leaked", "unlisted", "exact")
    rows = [(name, *(count[key] for key in keys)) for name, count in counts.items()]
    show(
        f"{len(groups)} schemas with {instances} instances; instances of schemas that do not compile count as nothing",
        heads,
        rows,
    )
    ours = counts.pop(AS_WRITTEN)
    for name, theirs in counts.items():
        if name == "callsmith":
            continue
        for what, key in (("schemas compiled", "compiled"), ("schemas all of whose instances are judged right", "exact")):
            compare(what, f"of {len(groups)}", [ours[key]], name, [theirs[key]], more_is_better=True)


def _groups() -> Iterator[Any]:
    for file in sorted(SUITE.glob("*.json")):
        yield from json.loads(file.read_text())


def _judges() -> Iterator[tuple[str, Judge]]:
    for name, as_written in (("callsmith", False), (AS_WRITTEN, True)):
        with SchemaJudge(as_written=as_written) as held:
            yield name, _ours(held)
    yield "llguidance", _llguidance()
    try:
        yield "xgrammar", _xgrammar(xgrammar())  # it warns of what it leaves out, on the terminal
    except ImportError as missing:
        print(f"\nxgrammar: not installed ({missing}); make rivals fetches it")


def _ours(held: SchemaJudge) -> Judge:
    def judge(schema: Any, instances: list[Any]) -> Verdict | None:
        made = held.judge(schema, instances)
        return (bool(made.unenforced), list(made.accepts)) if made.compiled else None

    return judge


def _llguidance() -> Judge:
    import llguidance

    tokenizer = llguidance.LLTokenizer("byte")

    def judge(schema: Any, instances: list[Any]) -> Verdict | None:
        try:
            grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        except Exception:  # whatever it raises, it does not compile
            return None
        if llguidance.LLMatcher(tokenizer, grammar).is_error():
            return None

        def accepts(instance: Any) -> bool:
            matcher, text = llguidance.LLMatcher(tokenizer, grammar), write_value(instance).encode()
            return (
                matcher.validate_tokens(list(text)) == len(text) and matcher.consume_tokens(list(text)) and matcher.is_accepting()
            )

        return False, [accepts(instance) for instance in instances]

    return judge


def _xgrammar(module: Any) -> Judge:
    info = module.TokenizerInfo([*(bytes([code]) for code in range(256)), b"</s>"], module.VocabType.RAW, stop_token_ids=[256])
    compiler = module.GrammarCompiler(info, max_threads=1)

    def judge(schema: Any, instances: list[Any]) -> Verdict | None:
        try:
            grammar = compiler.compile_json_schema(json.dumps(schema))
        except Exception:  # whatever it raises, it does not compile
            return None

        def accepts(instance: Any) -> bool:
            matcher = module.GrammarMatcher(grammar)
            return matcher.accept_string(write_value(instance)) and matcher.accept_token(256)

        return False, [accepts(instance) for instance in instances]

    return judge


def _counted(judge: Judge, groups: list[Any]) -> Counter[str]:
    count = Counter[str]()
    for group in groups:
        made = judge(group["schema"], [test["data"] for test in group["tests"]])
        if made is None:
            continue
        is_listed, accepted = made
        right = [test["valid"] == taken for test, taken in zip(group["tests"], accepted, strict=True)]
        count["compiled"] += 1
        count["exact"] += all(right)
        for test, taken in zip(group["tests"], accepted, strict=True):
            count["accepted"] += test["valid"] and taken
            count["refused"] += not test["valid"] and not taken
            count["leaked"] += not test["valid"] and taken
            count["unlisted"] += not test["valid"] and taken and not is_listed
    return count

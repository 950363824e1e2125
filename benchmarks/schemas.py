"""JSON Schema, by the suite that validators are held to and by schemas in daily use: how much compiles, and whether what is valid
is accepted, and only that.

Beside llguidance's own compiler of JSON Schema and xgrammar's, over a vocabulary of bytes. Both come with `make rivals`: the
suite (JSON-Schema-Test-Suite, draft 2020-12, without what is optional there), and schemas of configuration files, with files
that people have written (those check-jsonschema is tested with; which of them are valid jsonschema tells). As tools are called,
our objects are closed and keep their order; "as written" takes schemas at their word, as the others do. "Unlisted": an invalid
instance was accepted, and the compiler has not listed a keyword that it does not enforce. The others list nothing.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import yaml
from jsonschema.validators import validator_for

from benchmarks.measure import compare
from benchmarks.rivals import xgrammar
from benchmarks.table import show
from callsmith.models.schema_judge import SchemaJudge, write_value

RIVALS = Path(__file__).parents[1] / ".venv-rivals"
SUITE = RIVALS / "json-schema-suite" / "tests" / "draft2020-12"
IN_USE = RIVALS / "schemas-in-use"
AS_WRITTEN = "callsmith, as written"
Verdict = tuple[bool, list[bool]]  # whether what is not enforced was listed, and which instances are accepted
Judge = Callable[[Any, list[Any]], Verdict | None]  # None: it does not compile


def main(model: str) -> None:
    """`model` is not needed: the vocabulary is one of bytes."""
    for name, folder, groups in (("the suite", SUITE, _suite), ("in use", IN_USE, _in_use)):
        if folder.is_dir():
            _measure(name, list(groups()))
        else:
            print(f"\nJSON Schema, {name}: not at {folder}; make rivals fetches it")


def _measure(suite: str, groups: list[Any]) -> None:
    counts = {name: _counted(judge, groups) for name, judge in _judges()}
    instances = sum(len(group["tests"]) for group in groups)
    valid = sum(test["valid"] for group in groups for test in group["tests"])
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
        f"{suite}: {len(groups)} schemas, {instances} instances, {valid} valid, not counted where a schema does not compile",
        heads,
        rows,
    )
    ours = counts.pop(AS_WRITTEN)
    for name, theirs in counts.items():
        if name == "callsmith":
            continue
        for what, key in (("schemas compiled", "compiled"), ("schemas all of whose instances are judged right", "exact")):
            compare(f"{suite}: {what}", f"of {len(groups)}", [ours[key]], name, [theirs[key]], more_is_better=True)


def _suite() -> Iterator[Any]:
    for file in sorted(SUITE.glob("*.json")):
        yield from json.loads(file.read_text())


def _in_use() -> Iterator[Any]:
    """Files of a kind stand in a folder of the name of their schema."""
    for file in sorted((IN_USE / "schemas").glob("*.json")):
        schema: Any = json.loads(file.read_text())
        validator = validator_for(schema)(schema)
        paths = [
            path for path in sorted(IN_USE.glob(f"files/*/{file.stem}/*")) if path.suffix in (".json", ".yaml", ".yml", ".cff")
        ]
        values = [value for path in paths for value in yaml.load_all(path.read_text(), _Yaml)]
        if values:
            yield {"schema": schema, "tests": [{"data": value, "valid": validator.is_valid(value)} for value in values]}


class _Yaml(yaml.SafeLoader):
    """YAML as these files mean it: dates and `on` are strings, and what has a tag of its own is taken without it."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: [(tag, like) for tag, like in resolvers if tag.endswith((":int", ":float", ":null", ":merge")) or first in "tTfF"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _untagged(loader: _Yaml, _: str, node: yaml.Node) -> Any:
    return loader.construct_sequence(node) if isinstance(node, yaml.SequenceNode) else loader.construct_scalar(node)


_Yaml.add_multi_constructor("!", _untagged)


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
        verdict = held.judge(schema, instances)
        return (bool(verdict.unenforced), list(verdict.accepts)) if verdict.compiled else None

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
        verdict = judge(group["schema"], [test["data"] for test in group["tests"]])
        if verdict is None:
            continue
        is_listed, accepted = verdict
        right = [test["valid"] == is_accepted for test, is_accepted in zip(group["tests"], accepted, strict=True)]
        count["compiled"] += 1
        count["exact"] += all(right)
        for test, is_accepted in zip(group["tests"], accepted, strict=True):
            count["accepted"] += test["valid"] and is_accepted
            count["refused"] += not test["valid"] and not is_accepted
            count["leaked"] += not test["valid"] and is_accepted
            count["unlisted"] += not test["valid"] and is_accepted and not is_listed
    return count

"""Schemas and instances: what the grammar of a schema enforces, and which JSON values it accepts.

The grammar is the one that structured output has, compiled as the engines compile it, over a vocabulary of bytes.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, cast

from callsmith.core.errors import CallsmithError
from callsmith.core.values import Json, Output, Schema
from callsmith.engines.decoding.compiler import Compiler
from callsmith.engines.decoding.matcher import Constraint
from callsmith.engines.decoding.trials import pool_with_stack
from callsmith.engines.decoding.vocabulary import ByteVocabulary
from callsmith.formats.algebra import Format
from callsmith.grammar.limits import refusing_depth
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.output import output_grammar

_PLAIN: Final = Format(name="plain", parts=())  # no markers around text
_ESCAPED: Final = re.compile("[\x7f\ud800-\udfff]")  # what llguidance wants escaped, or has no bytes
_MOST_DIGITS: Final = 40  # a fraction with more is written with an exponent


@dataclass(frozen=True, slots=True)
class SchemaVerdict:
    """The outcome for a schema: `unenforced` are (keyword, path), `accepts` says for each instance whether it may be written."""

    compiled: bool
    unenforced: tuple[tuple[str, str], ...] = ()
    accepts: tuple[bool, ...] = ()
    error: str = ""

    def as_json(self) -> dict[str, Json]:
        """The verdict as a line of JSON has it; `error` only where there is one."""
        document: dict[str, Json] = {
            "compiled": self.compiled,
            "unenforced": [list(item) for item in self.unenforced],
            "accepts": list(self.accepts),
        }
        return {**document, "error": self.error} if self.error else document


class SchemaJudge(AbstractContextManager["SchemaJudge"]):
    """Compiles schemas and holds instances against them. Close it, or use it in a `with`.

    `as_written`: schemas are taken at their word, as an `Output` does.
    """

    def __init__(self, *, as_written: bool = False) -> None:
        self._as_written = as_written
        self._vocabulary = ByteVocabulary()
        self._compiler = Compiler(self._vocabulary)
        self._thread: ThreadPoolExecutor = pool_with_stack(1, "schemas")  # deep grammars need more than the main thread has

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._thread.shutdown()
        self._compiler.close()

    def judge(self, schema: Schema | bool, instances: Sequence[Json]) -> SchemaVerdict:
        """Whether the schema compiles, and which instances its grammar accepts.

        An instance is a value: it is written once, with the separators of the grammar.
        """
        return self._thread.submit(self._judge, schema, instances).result()

    def judge_lines(self, lines: Iterable[str | bytes]) -> Iterator[SchemaVerdict]:
        """A verdict for each line `{"schema": …, "instances": […]}`; one that is none is a verdict with an error."""
        for line in lines:
            if not line.strip():
                continue
            try:
                schema, instances = _read(line)
            except (ValueError, RecursionError) as error:
                yield SchemaVerdict(False, error=f"not a line of schema and instances: {error}")
                continue
            yield self.judge(schema, instances)

    def _judge(self, schema: Schema | bool, instances: Sequence[Json]) -> SchemaVerdict:
        try:
            document: Schema = ({} if schema else {"not": {}}) if isinstance(schema, bool) else schema
            output = Output(document, as_written=self._as_written)
            rules = refusing_depth(output_grammar)(_PLAIN, output)
            grammar = Grammar(rules.node)
            accepts = tuple(self._accepts(grammar, instance) for instance in instances)
            if not instances:
                self._compiler.begin(grammar)
        except (CallsmithError, RecursionError) as error:
            return SchemaVerdict(False, error=str(error))
        return SchemaVerdict(True, tuple((keyword, path) for path, keyword in rules.unenforced), accepts)

    def _accepts(self, grammar: Grammar, instance: Json) -> bool:
        constraint = cast(Constraint, self._compiler.begin(grammar))
        tokens = self._vocabulary.tokenize(write_value(instance))
        matcher = constraint.matcher
        accepts = matcher.validate_tokens(tokens) == len(tokens) and matcher.consume_tokens(tokens) and matcher.is_accepting()
        constraint.check()  # where it has given up, nothing is known
        return accepts


def _read(line: str | bytes) -> tuple[Schema | bool, list[Json]]:
    row: Any = json.loads(line)
    if not isinstance(row, Mapping) or "schema" not in row:
        raise ValueError("there is no `schema`")
    read = cast(Mapping[str, Any], row)
    schema, instances = read["schema"], read.get("instances", [])
    if not isinstance(schema, Mapping | bool):
        raise ValueError("`schema` is neither an object nor true or false")
    if not isinstance(instances, list):
        raise ValueError("`instances` is not a list")
    return cast(Schema | bool, schema), cast(list[Json], instances)


def write_value(value: Any) -> str:
    """A value as grammars have it: `, ` and `: ` between parts, numbers without an exponent unless they are long fractions."""
    match value:
        case str():
            return _ESCAPED.sub(lambda half: f"\\u{ord(half[0]):04x}", json.dumps(value, ensure_ascii=False))
        case float():
            text = repr(value)
            plain = format(Decimal(text), "f") if "e" in text else text
            return plain if len(plain) <= _MOST_DIGITS or value.is_integer() else text
        case list():
            return f"[{', '.join(map(write_value, cast(list[Any], value)))}]"
        case dict():
            members = cast(dict[str, Any], value).items()
            return "{" + ", ".join(f"{write_value(key)}: {write_value(item)}" for key, item in members) + "}"
        case _:
            return json.dumps(value)

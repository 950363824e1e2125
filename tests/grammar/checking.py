"""Tools of every kind of schema, and whether a grammar accepts a text, and what is read from one it let through."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from callsmith.core.events import CallReady, ModelEvent, Unreadable
from callsmith.core.schema import validate
from callsmith.core.values import Call, Choice, Tool
from callsmith.formats.algebra import Format
from callsmith.formats.inference.laws import merge_deltas
from callsmith.formats.prompt.prompt import fit_id
from callsmith.formats.reader.reader import Reader
from callsmith.grammar.calls import grammar_for
from callsmith.grammar.nodes import Grammar
from tests.formats.laws import check_order
from tests.grammar.sampling import Sample, compiler, letters
from tests.grammar.sampling import matcher as matcher_of

REQUIRED = Choice("required")


def obj(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), **more}


STRING, INTEGER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
STRINGS = {"type": "array", "items": STRING}
TREE = obj({"label": STRING, "kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}, "maxItems": 2}}, "label")
CHAIN = obj({"n": INTEGER, "next": {"anyOf": [{"$ref": "#/$defs/Chain"}, NULL]}}, "n")
TOOLS = [
    Tool("now"),
    Tool("get_weather", "", obj({"city": STRING, "days": INTEGER, "unit": {"enum": ["celsius", "kelvin"]}}, "city")),
    Tool(
        "nested",
        "",
        obj(
            {
                "who": obj({"name": STRING, "age": INTEGER, "tags": {**STRINGS, "minItems": 1, "maxItems": 3}}, "name", "tags"),
                "ok": {"type": "boolean"},
                "nothing": NULL,
            },
            "who",
        ),
    ),
    Tool(
        "mixed",
        "",
        obj(
            {
                "e": {"enum": ["a", 1, True, None, "b c", "5", 2.5]},
                "c": {"const": "fixed"},
                "v": {"anyOf": [INTEGER, {"type": "boolean"}]},
                "x": {"type": "number"},
            },
            "e",
            "c",
        ),
    ),
    Tool("refs", "", obj({"tree": {"$ref": "#/$defs/Tree"}}, "tree", **{"$defs": {"Tree": TREE}})),
    Tool("chain", "", obj({"first": {"$ref": "#/$defs/Chain"}}, "first", **{"$defs": {"Chain": CHAIN}})),
    Tool(
        "maybe",
        "",
        obj(
            {"s": {"anyOf": [STRING, NULL]}, "l": {"anyOf": [STRINGS, NULL]}, "o": {"anyOf": [obj({"zip": STRING}, "zip"), NULL]}}
        ),
    ),
    Tool("either", "", obj({"u": {"anyOf": [STRING, STRINGS]}, "k": {"type": ["string", "integer"]}}, "u")),
    Tool("unicode", "", obj({"größe": INTEGER, "名前": STRING, "é": NULL}, "größe")),
    Tool(
        "grid",
        "",
        obj({"rows": {"type": "array", "items": {"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 2}}}, "rows"),
    ),
    Tool("parts", "", {"type": "object", "allOf": [obj({"a": STRING}, "a"), obj({"b": INTEGER}, "b")]}),
    Tool("undeclared", "", obj({"a": {"allOf": [{"enum": ["x", "y"]}]}}, "a", "b")),
]
PLAIN = Tool("f", "", obj({"n": INTEGER, "s": STRING, "e": {"enum": ["x", "y"]}}, "n", "s"))


def stuck(grammar: Grammar | None, text: str, dressed_for: str = "") -> str | None:
    """Where the grammar does not go along with a text any more; None: the text is a whole answer."""
    assert grammar is not None
    tokens, compiling = compiler(dressed_for)
    wanted = tokens.tokenize(text) if dressed_for else letters(tokens.base, text)
    matcher = matcher_of(compiling.begin(grammar))
    accepted = matcher.validate_tokens(wanted)
    if accepted == len(wanted) and matcher.consume_tokens(wanted) and matcher.is_accepting():
        return None
    return b"".join(tokens.says[token] for token in wanted[accepted:]).decode("utf-8", "replace")[:80] or "(the end)"


def required(format: Format, tools: Sequence[Tool], **options: Any) -> Grammar:
    grammar = grammar_for(format, tools, REQUIRED, **options)
    assert grammar is not None
    return grammar


def call(format: Format, name: str, arguments: Any) -> Call:
    """A call with an id such as the format writes."""
    return Call(name, arguments, fit_id("call_1", format.ids))


def read(format: Format, pieces: Iterable[str], tools: Iterable[Tool], opened: str = "") -> list[ModelEvent]:
    reader = Reader(format, tools, opened, is_constrained=True)
    return merge_deltas([event for piece in pieces for event in reader.feed(piece)] + reader.close())


def read_sample(
    format: Format, sample: Sample, tools: Iterable[Tool], specials: Iterable[str], opened: str = ""
) -> list[ModelEvent]:
    reader = Reader(format, tools, opened, specials=frozenset(specials), is_constrained=True)
    events = [event for piece in sample.pieces for event in reader.feed(piece.text, piece.special)]
    return merge_deltas(events + reader.close())


def without(schema: Any, keywords: set[str]) -> Any:
    """The schema without these keywords, wherever they stand."""
    if isinstance(schema, dict):
        return {key: without(value, keywords) for key, value in schema.items() if key not in keywords}
    return [without(item, keywords) for item in schema] if isinstance(schema, list) else schema


def numbers(value: Any) -> Iterator[float]:
    match value:
        case dict():
            for item in value.values():
                yield from numbers(item)
        case list():
            for item in value:
                yield from numbers(item)
        case float():
            yield value


def check_calls(events: Sequence[ModelEvent], tools: Sequence[Tool], grammar: Grammar, text: str) -> list[Call]:
    """Every call is readable without leniency, offered, and valid in all that the grammar enforces."""
    check_order(events)
    offered = {tool.name: tool for tool in tools}
    ready = [event for event in events if isinstance(event, CallReady)]
    assert not [event for event in events if isinstance(event, Unreadable)], text
    for event in ready:
        assert not event.repairs, text
        if any(math.isinf(number) for number in numbers(event.call.arguments)):
            continue  # 1e999 is a number of JSON, but no float
        schema = offered[event.call.name].parameters
        assert validate(without(schema, {keyword for _, keyword in grammar.unenforced}), event.call.arguments) == [], text
        if "allOf" not in schema:  # whose parts are left open
            assert event.call.arguments.keys() <= {*schema["properties"], *schema.get("required", ())}, text
    return [event.call for event in ready]

"""Completeness on real tools: every gold call of BFCL is let through in every format, as the format writes it."""

from collections.abc import Iterable
from typing import Any

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from callsmith.core.errors import UnsupportedSchema, UsageError
from callsmith.core.values import Call, Tool
from callsmith.formats import formats
from callsmith.formats.algebra import Format, Nested
from callsmith.formats.prompt.prompt import fit_id
from callsmith.formats.write import write
from callsmith.grammar.schema.normalize import normalize
from tests.effort import tries
from tests.grammar.bfcl import Entry, entries, schemas
from tests.grammar.checking import required, stuck

pytestmark = pytest.mark.weights

# Its `data` lists some properties, and the gold has others in it. That is valid, for nothing closes the object; but to a grammar
# an object that lists its properties has no others.
INVENTS = "live_multiple_189-83-0"
EVERY = pytest.mark.parametrize("format", formats().values(), ids=lambda format: format.name)


def rejected(format: Format, cases: Iterable[Entry]) -> list[str]:
    """The cases whose gold the grammar does not go along with; those that contradict their own schema aside."""
    wrong: list[str] = []
    for entry in cases:
        if entry.contradicts_itself or (isinstance(format.calls.values, Nested) and holds_open_object(entry)):
            continue
        calls = [
            Call(name, arguments, fit_id(f"call_{number}", format.ids)) for number, (name, arguments) in enumerate(entry.gold)
        ]
        try:
            text = write(format, calls[:1] if format.calls.most == 1 else calls)
        except UsageError:
            continue  # a value that holds the format's own markers
        where = stuck(required(format, entry.tools), text)
        wrong += [f"{entry.name}: {where!r}"] if where is not None else []
    return wrong


def holds_open_object(entry: Entry) -> bool:
    """Whether the gold has an object whose properties nobody declared: no grammar can pair the tags of names it does not know."""

    def within(value: Any, schema: Any) -> bool:
        if isinstance(value, list):
            return any(within(item, schema.get("items", {})) for item in value)
        declared = schema.get("properties", {})
        return isinstance(value, dict) and any(key not in declared or within(item, declared[key]) for key, item in value.items())

    tools = {tool.name: tool for tool in entry.tools}
    return any(within(arguments, tools[name].parameters) for name, arguments in entry.gold)


@EVERY
@pytest.mark.sampled
def test_gold_calls_are_let_through(format: Format) -> None:
    assert rejected(format, entries()[:: tries(180, 60)]) == []


@pytest.mark.slow
@EVERY
def test_every_gold_call_is_let_through(format: Format) -> None:
    assert rejected(format, [entry for entry in entries() if entry.name != INVENTS]) == []


def test_a_gold_call_with_invented_properties_is_rejected() -> None:
    (entry,) = [entry for entry in entries() if entry.name == INVENTS]
    assert rejected(formats()["hermes"], [entry])


def test_of_all_tools_only_those_that_contradict_themselves_are_refused() -> None:
    """An array that must be one of some strings. Who wrote that meant the items; the validator reads what is written."""
    refused = list[UnsupportedSchema]()
    for schema in schemas():
        try:
            normalize(schema, kind="object")
        except UnsupportedSchema as why:
            refused.append(why)
    assert {item.keyword for item in refused} == {"enum"}
    assert len(refused) <= 3
    assert all("no value fits" in item.why for item in refused)


def test_a_tool_that_contradicts_itself_spoils_no_optional_argument() -> None:
    broken = {"type": "array", "items": {"type": "string"}, "enum": ["a", "b"]}
    hermes = formats()["hermes"]
    optional = Tool("f", "", {"type": "object", "properties": {"x": broken, "y": {"type": "integer"}}})
    assert stuck(required(hermes, [optional]), write(hermes, [Call("f", {"y": 1})])) is None
    needed = Tool("f", "", {**optional.parameters, "required": ["x"]})
    with pytest.raises(UnsupportedSchema) as caught:
        required(hermes, [needed])
    assert (caught.value.path, caught.value.keyword) == ("#/properties/x", "enum")

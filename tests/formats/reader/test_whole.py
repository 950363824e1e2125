"""A text that has ended is read at once where nothing in it needs a repair: the same as step by step, in every format."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from callsmith.core.errors import UsageError
from callsmith.core.events import CallReady, ModelEvent, Text
from callsmith.core.values import Call, Tool
from callsmith.formats import format_named, formats
from callsmith.formats.algebra import NAME, Calls, Format, any_, obj, opt
from callsmith.formats.inference.laws import merge_deltas
from callsmith.formats.prompt.prompt import fit_id
from callsmith.formats.reader.call import CallReader
from callsmith.formats.reader.markers import compile_markers, mark_specials
from callsmith.formats.reader.reader import Reader
from callsmith.formats.reader.whole.patterns import section_pattern
from callsmith.formats.write import write
from tests.effort import tries
from tests.formats.reader.corpus import CORPUS, WILD, cases

EVERY = pytest.mark.parametrize("format", formats().values(), ids=lambda format: format.name)
TYPES: dict[str, Any] = {
    "n": {"type": ["string", "null"]},
    "x": {"type": "number"},
    "l": {"type": "array", "items": {"type": "string"}},
    "o": {"type": "object", "properties": {"k": {"type": "boolean"}}},
    "any": {},
    "e": {"enum": ["5", 6]},
    "t": {"type": "boolean"},
}
TOOLS = (
    Tool("f", "", {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}),
    Tool("get_x"),
    Tool("g", "", {"type": "object", "properties": TYPES}),
    Tool("h", "", {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "integer"}}),
    Tool("get_weather", "", {"type": "object", "properties": {"city": {"type": "string"}, "arguments": {"type": "string"}}}),
)
TEXTS = [
    "x \"y\" 'z' <b>", "", "5", "007", "null", "true", "line\nbreak", "\n", "  around ", "é 東 🐈", "back\\slash", "\\n", "/",
    '{"a": 1}', "[1, 2]", "a, b=c", "x) and", "'", '"', "a\tb", "</", "<![CDATA[x]]>", "\x7f", "\x01", "a=b, c='d'",
]  # fmt: skip
OTHER_KEYS = ["A", "zz", "input", "B", "some key", "a-b"]
OTHER_NAMES = ["unknown", "functions.f", "f_0", "0"]
NOISE = [
    "  ", "\n\n", "\t", "{}", "null", '"', "'", "city", "f", "5", ",", ", ", ": ", "functions.", "json", "0", "\\", "\\/",
    "\\u00e9", "}", "]", "```", "é", "</", "x" * 300, "9" * 5000, "1e999", "-0", "\x0c", "\u00a0",
    "\x85", "\u2028", "\ud800", "\\udc00", "[" * 150 + "]" * 150, '{"a": ' * 120 + "1" + "}" * 120, "NaN", " " * 120, "a" * 101,
]  # fmt: skip


def a_value(chance: random.Random, schema: Any) -> Any:
    kinds = schema.get("type") or ["string", "integer", "number", "boolean", "array", "object", "null"]
    kind = chance.choice(kinds) if isinstance(kinds, list) else kinds
    match kind if chance.random() < 0.85 else chance.choice(["string", "integer", "null", "object"]):
        case "string":
            return chance.choice(TEXTS) + chance.choice(["", chance.choice(TEXTS)])
        case "integer":
            return chance.choice([0, -1, 5, 10**20])
        case "number":
            return chance.choice([0.5, -2, 1e30, 3.0])
        case "boolean":
            return chance.random() < 0.5
        case "array":
            return [chance.choice([*TEXTS, 5, None]) for _ in range(chance.randint(0, 3))]
        case "object":
            return {chance.choice(["k", "K", "z"]): chance.choice([True, "true", 5])}
        case _:
            return None


def an_answer(chance: random.Random, format: Format) -> str:
    """An answer as it should be written, most of it as the tools want it."""
    calls: list[Call] = []
    for _ in range(chance.randint(1, min(format.calls.most or 3, 3))):
        tool = chance.choice(TOOLS)
        properties: dict[str, Any] = tool.parameters.get("properties", {})
        arguments = {key: a_value(chance, schema) for key, schema in properties.items() if chance.random() < 0.6}
        if chance.random() < 0.1:
            arguments[chance.choice(OTHER_KEYS)] = a_value(chance, {})
        name = tool.name if chance.random() < 0.95 else chance.choice(OTHER_NAMES)
        calls.append(Call(name, arguments, chance.choice(["", "aaaaaaaaa", "12"])))
    try:
        return write(format, calls, text=chance.choice(["", "", "Well."]), thought=chance.choice(["", "hm"]))
    except UsageError:
        return ""


def mutated(chance: random.Random, text: str, pieces: list[str]) -> str:
    for _ in range(chance.choice([0, 0, 1, 1, 2, 3])):
        at = chance.randrange(len(text) + 1)
        text = text[:at] + chance.choice(["", chance.choice(pieces)]) + text[at + chance.choice([0, 0, 1, 1, 2, 5, 20]) :]
    if chance.random() < 0.1:
        text = text[: chance.randint(0, len(text))]
    return text.replace("\n", chance.choice(["", "\n\n", " "])) if chance.random() < 0.05 else text


def both_ways(format: Format, text: str, tools: tuple[Tool, ...], **options: Any) -> tuple[list[ModelEvent], list[ModelEvent]]:
    """The events of a text that is known to have ended, and of one of which that is not known until it is read."""
    whole, steps = Reader(format, tools, **options), Reader(format, tools, **options)
    if specials := options.get("specials"):  # a text in which special tokens are marked, as feeding them one by one marks them
        for reader in (whole, steps):
            reader._source.feed(mark_specials(text, specials))
        next(steps._coroutine, None)
        return whole.close(), steps._output.drain() + steps.close()
    return whole.close(text), steps.feed(text) + steps.close()


def seen(events: list[ModelEvent]) -> list[str]:
    """All that can be seen of events, also what is not compared: the text of a call's arguments."""
    return [repr(event) for event in merge_deltas(events)]


@EVERY
@pytest.mark.sampled
def test_what_is_read_at_once_is_what_is_read_step_by_step(format: Format) -> None:
    chance = random.Random(f"whole {format.name}")
    markers = compile_markers(format, frozenset(), frozenset(tool.name for tool in TOOLS))
    literals = [*markers.text_stops.texts, *markers.drop]
    specials = frozenset(text for text in literals if text[0] in "<[")
    for _ in range(tries(60, 600, 6000)):
        text = mutated(chance, an_answer(chance, format), [*NOISE, *literals, *literals])
        options: dict[str, Any] = chance.choice([{}, {}, {}, {"strict": True}, {"is_constrained": True}])
        if chance.random() < 0.3:
            options = {**options, "specials": specials}
        whole, steps = both_ways(format, text, chance.choice([TOOLS, TOOLS, TOOLS[:1], ()]), **options)
        assert seen(whole) == seen(steps), (text, options)


@pytest.mark.parametrize("folder", [WILD, CORPUS / "model_outputs"], ids=["wild", "corpus"])
def test_the_corpus_is_read_alike_at_once_and_step_by_step(folder: Any) -> None:
    known = set(formats()) | {alias for format in formats().values() for alias in format.aliases}
    for case in cases(folder):
        if case.row["format"].replace("_", "-") in known:
            whole, steps = both_ways(case.format, case.row["output"], tuple(case.tools), opened=case.opened)
            assert seen(whole) == seen(steps), case.name


@pytest.mark.parametrize("space", ["\x0c", "\x85", "\u00a0"])
def test_white_space_that_is_none_of_jsons_does_not_make_a_closer_of_what_is_behind_it(space: str) -> None:
    text = f'```json\n{{"name": "f", "arguments": {{"a": "x"}}}}{space}``'
    whole, steps = both_ways(format_named("fenced-json"), text, TOOLS)
    assert seen(whole) == seen(steps)
    assert whole[-1] == Text(f"{space}``")


def simple_calls(format: Format) -> Iterator[str]:
    """Calls as models write most of them."""
    some = [
        Call("f", {"a": "x < y", "b": 3}, fit_id("call_1", format.ids)),
        Call("f", {"a": "tea"}, fit_id("call_2", format.ids)),
    ]
    for number in range(1, min(format.calls.most or 2, 2) + 1):
        yield write(format, some[:number])
        yield write(format, some[:number]) + "\n"
        yield write(format, some[:number], thought="Let me see." if format.thinks else "")


@EVERY
def test_what_models_write_is_read_at_once(format: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CallReader, "read", None)  # step by step
    for text in simple_calls(format):
        ready = [event for event in Reader(format, TOOLS).close(text) if isinstance(event, CallReady)]
        assert [event.call.arguments for event in ready] == [{"a": "x < y", "b": 3}, {"a": "tea"}][: len(ready)] != []


@EVERY
def test_every_part_of_calls_has_its_pattern(format: Format) -> None:
    ignored = compile_markers(format).ignored_in_calls
    assert all(section_pattern(part, ignored) for part in format.parts if isinstance(part, Calls))


@pytest.mark.parametrize(
    "part",
    [
        Calls("<call>", "<call>now", obj(("name", NAME))),  # no arguments
        Calls(opt("x"), "<call>", NAME, "</call>"),
        Calls("<call>", NAME, any_("<s>", "<ss>"), open=("<a>",), close=("<call>",)),
    ],
)
def test_where_a_pattern_would_not_be_certain_there_is_none(part: Calls) -> None:
    assert section_pattern(part, ()) is None


def test_only_a_text_that_has_ended_is_read_at_once() -> None:
    text = next(simple_calls(format_named("hermes")))
    reader = Reader(format_named("hermes"), TOOLS)
    assert not reader._call.read_at_once(format_named("hermes").calls, list)
    reader._source.feed(text)
    reader._source.ended = True
    assert reader._call.read_at_once(format_named("hermes").calls, list)

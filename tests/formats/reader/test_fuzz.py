"""A million random, mutated and truncated inputs over all formats: no exception, no lost text, no hang. `make test-slow`."""

import os
import random
from collections.abc import Iterator

import pytest

from callsmith.core.events import CallArguments, CallStarted, Text, Thought, Unreadable
from callsmith.core.values import Call, Tool
from callsmith.formats import formats
from callsmith.formats.algebra import SKIP, Calls, Format, Node, Nodes, Opt, literals_of, nodes_of
from callsmith.formats.reader.markers import compile_markers
from callsmith.formats.write import write
from tests.effort import tries
from tests.formats.laws import check_order, read_in_chunks

INPUTS = int(os.environ.get("CALLSMITH_FUZZ", tries(100_000, 200_000, 1_000_000)))
TOOLS = [Tool("f", "", {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}), Tool("get_x")]
CALLS = [
    Call("f", {"a": "x \"y\" 'z' <b>", "b": 3}, "aaaaaaaaa"),
    Call("get_x", {}, "bbbbbbbbb"),
    Call("f", {"a": ""}, "ccccccccc"),
]
WORDS = ["hello", "f(", "get_x", "é", "</", *"\"'{}[]()\\\n ,:<>|=1"]


def markers_of(format: Format) -> list[str]:
    """Every marker, but the control tokens that are dropped: text around one may meet and make a marker that nobody wrote."""
    markers = compile_markers(format, frozenset(), frozenset(tool.name for tool in TOOLS))
    return [marker for marker in markers.text_stops.texts if marker not in markers.drop]


def nested_literals(nodes: Nodes | str) -> Iterator[str]:
    """Every literal in some nodes."""
    for node in nodes_of(nodes):
        yield from literals_of(node)
        if isinstance(node, Opt):
            yield from nested_literals(node.nodes)


def flat(nodes: Nodes) -> list[Node]:
    """All nodes, also those that are optional."""
    return [inner for node in nodes for inner in (flat(node.nodes) if isinstance(node, Opt) else [node])]


def own_words(format: Format, text: str) -> str:
    """What of a text belongs to no literal of the format: that much must be emitted, in order."""
    parts = [
        part.item + part.open + part.close if isinstance(part, Calls) else (*nodes_of(part.open), *nodes_of(part.close))
        for part in format.parts
    ]
    literals = (
        {literal.strip() for nodes in parts for literal in nested_literals(nodes)} | set(markers_of(format)) | set(format.drop)
    )
    covered = [False] * len(text)
    for literal in literals - {""}:
        at = text.find(literal)
        while at >= 0:
            covered[at : at + len(literal)] = [True] * len(literal)
            at = text.find(literal, at + 1)
    return "".join(char for char, is_covered in zip(text, covered, strict=True) if not is_covered and not char.isspace())


def is_contained(words: str, emitted: str) -> bool:
    """Whether the characters of the words stand in the emitted text, in order."""
    rest = iter(emitted)
    return all(char in rest for char in words)


def inputs(format: Format, count: int):
    """Random words and markers; answers with pieces taken out, put in and moved; all sorts cut short."""
    chance = random.Random(f"fuzz {format.name}")
    pieces = [*WORDS, *markers_of(format)]
    bases = [
        write(format, CALLS[: n + 1], text="Well.", thought="hm" if format.thinks else "") for n in range(format.calls.most or 3)
    ]
    for _ in range(count):
        kind = chance.random()
        text = "".join(chance.choices(pieces, k=chance.randint(1, 12))) if kind < 0.3 else chance.choice(bases)
        for _ in range(chance.randint(0, 3)):
            at = chance.randrange(len(text) + 1)
            cut = min(len(text), at + chance.randint(0, 20))
            text = text[:at] + chance.choice(["", chance.choice(pieces)]) + text[chance.choice([at, cut]) :]
        yield text[: chance.randint(0, len(text))] if chance.random() < 0.3 else text


@pytest.mark.slow
@pytest.mark.parametrize("format", formats().values(), ids=lambda format: format.name)
def test_nothing_a_model_writes_breaks_the_reader(format: Format):
    skips = any(
        SKIP in flat(part.item if isinstance(part, Calls) else nodes_of(part.open)) for part in format.parts
    )  # header words without meaning are not emitted
    for number, text in enumerate(inputs(format, INPUTS // len(formats()))):
        events = read_in_chunks(format, text, (0, 1, 7)[number % 3], TOOLS)
        check_order(events)
        if not skips and not any(isinstance(event, CallStarted | CallArguments) for event in events):
            emitted = "".join(event.text for event in events if isinstance(event, Text | Thought | Unreadable))
            assert is_contained(own_words(format, text), emitted), text

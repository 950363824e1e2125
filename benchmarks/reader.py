"""The cost of reading a long string argument as it streams, four characters at a time: flat, however long it has become."""

import json
import time
from collections.abc import Sequence
from statistics import median

from benchmarks.table import show
from callsmith.core.errors import UsageError
from callsmith.core.events import CallArguments, CallReady
from callsmith.core.values import Call, Tool
from callsmith.formats import formats
from callsmith.formats.algebra import Format
from callsmith.formats.prompt.prompt import fit_id
from callsmith.formats.reader.reader import Reader
from callsmith.formats.write import write

SIZES = (100, 1_000, 10_000, 50_000)
CHUNK = 4
LEAST = 2_000  # chunks a measurement is made of
RUNS = 3
CODE = (
    "def grüße(name: str) -> str:\n    '''Says \"hello\" to a <name>.'''\n    path = \"C:\\\\temp\\\\{name}\\n\"\n"
    "    if a[0] < b and c > d or x == {'k': [1, 2]}: # naïve 東京 🐈\n\treturn f\"{path!r}, {a/b:.2f}\"\n\n"
)
TOOL = Tool("write_file", "", {"type": "object", "properties": {"content": {"type": "string"}}, "required": ["content"]})


def main(model: str) -> None:
    rows = [row for format in formats().values() if (row := measured(format))]
    heads = ("format", *(f"{size:,}" for size in SIZES), "50k/1k", "longest silence")
    show(f"reading a string argument, {CHUNK} characters a chunk: µs of CPU a chunk", heads, rows)
    ratios, medians = {row[0]: row[-2] for row in rows}, {row[0]: max(row[2 : 1 + len(SIZES)]) for row in rows}
    steepest, slowest = max(ratios, key=ratios.__getitem__), max(medians, key=medians.__getitem__)
    print(f"  worst ratio {ratios[steepest]:.2f} ({steepest}); ", end="")
    print(f"worst median from {SIZES[1]:,} characters on {medians[slowest]:.2f} µs ({slowest}); ", end="")
    print(f"middle format at {SIZES[-1]:,}: {median(row[len(SIZES)] for row in rows):.2f} µs")


def measured(format: Format) -> tuple[str, *tuple[float, ...]] | None:
    """A row: µs a chunk at each size, the ratio, and the longest run of chunks inside the value that said nothing."""
    costs: list[float] = []
    silence = 0
    for size in SIZES:
        value = (CODE * (size // len(CODE) + 1))[:size]
        try:
            text = write(format, [Call(TOOL.name, {"content": value}, fit_id("call_1", format.ids))])
        except UsageError:
            return None  # a value this format cannot write
        pieces = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]
        costs.append(median(cost(format, pieces) for _ in range(RUNS)))
        silence = max(silence, checked(format, pieces, value))
    return (format.name, *costs, costs[-1] / costs[1], silence)


def cost(format: Format, pieces: Sequence[str]) -> float:
    """µs of CPU a chunk, reading the text often enough to be measured."""
    times = max(1, LEAST // len(pieces))
    began = time.process_time()
    for _ in range(times):
        reader = Reader(format, [TOOL])
        for piece in pieces:
            reader.feed(piece)
        reader.close()
    return (time.process_time() - began) / times / len(pieces) * 1e6


def checked(format: Format, pieces: Sequence[str], value: str) -> int:
    """Assert that the call is read right; the longest run of chunks without an event while the value streams."""
    reader, streamed, silent, longest = Reader(format, [TOOL]), "", 0, 0
    ready: CallReady | None = None
    first, last = len('{"content": "') + 1, len(json.dumps({"content": value}, ensure_ascii=False)) - len('"}')
    for piece in (*pieces, None):
        events = reader.close() if piece is None else reader.feed(piece)
        streamed += "".join(event.text for event in events if isinstance(event, CallArguments))
        ready = next((event for event in events if isinstance(event, CallReady)), ready)
        silent = silent + 1 if first <= len(streamed) < last and not events else 0
        longest = max(longest, silent)
    assert ready is not None, format.name
    assert ready.call.arguments == {"content": value} == json.loads(streamed or ready.call.text), format.name
    return longest

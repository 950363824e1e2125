"""The cost of reading a long string argument as it streams, four characters at a time: flat, however long it has become."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

from benchmarks.measure import cpu_time
from benchmarks.table import show
from callsmith.core.errors import UsageError
from callsmith.core.events import CallArguments, CallReady
from callsmith.core.values import Call, Tool
from callsmith.formats import formats
from callsmith.formats.algebra import Format
from callsmith.formats.prompt.prompt import fit_id
from callsmith.formats.reader.reader import Reader
from callsmith.formats.write import write

SIZES = (1_000, 10_000, 100_000)
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
    heads = ("format", *(f"{size:,}" for size in SIZES), "100k/1k", "longest silence")
    show(f"reading a string argument, {CHUNK} characters a chunk: µs of CPU a chunk", heads, rows)
    ratios, medians = {row[0]: row[-2] for row in rows}, {row[0]: max(row[1 : 1 + len(SIZES)]) for row in rows}
    steepest, slowest = max(ratios, key=ratios.__getitem__), max(medians, key=medians.__getitem__)
    print(f"  worst ratio {ratios[steepest]:.2f} ({steepest}); worst median {medians[slowest]:.2f} µs ({slowest}); ", end="")
    print(f"middle format at {SIZES[-1]:,}: {median(row[len(SIZES)] for row in rows):.2f} µs")


def _per_chunk(work: Callable[[Sequence[str]], object], pieces: Sequence[str], least: int) -> Callable[[], float]:
    """A way to find out the µs of CPU a chunk, reading the text often enough to be measured."""
    return lambda: cpu_time(lambda: work(pieces), max(1, least // len(pieces))) / len(pieces) * 1e6


def text_of(size: int) -> str:
    return (CODE * (size // len(CODE) + 1))[:size]


def pieces_of(format: Format, size: int, chunk: int) -> list[str]:
    """A call with an argument of that size, in pieces; none where the format cannot write such a value."""
    try:
        text = write(format, [Call(TOOL.name, {"content": text_of(size)}, fit_id("call_1", format.ids))])
    except UsageError:
        return []
    return [text[at : at + chunk] for at in range(0, len(text), chunk)]


def read(format: Format, pieces: Sequence[str]) -> None:
    reader = Reader(format, [TOOL])
    for piece in pieces:
        reader.feed(piece)
    reader.close()


def measured(format: Format) -> tuple[str, *tuple[float, ...]] | None:
    """A row: µs a chunk at each size, the ratio, and the longest run of chunks inside the value that said nothing."""
    costs: list[float] = []
    silence = 0
    for size in SIZES:
        pieces = pieces_of(format, size, CHUNK)
        if not pieces:
            return None
        cost = _per_chunk(partial(read, format), pieces, LEAST)
        costs.append(median(cost() for _ in range(RUNS)))
        silence = max(silence, checked(format, pieces, text_of(size)))
    return (format.name, *costs, costs[-1] / costs[0], silence)


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

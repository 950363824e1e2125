"""The cost of reading a long string argument as it streams, four characters at a time: flat, however long it has become.

Beside vLLM's and SGLang's own readers of the same formats, with the same texts and pieces, streamed and whole, where
`make rivals` has fetched them. What they do not read as it was written is counted, and not compared.
"""

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import geometric_mean, median

from benchmarks.measure import ROUNDS, compare, cpu_time, in_turn
from benchmarks.other_readers import Found, OtherReaders, in_tokens, other_readers
from benchmarks.table import show
from callsmith.core.errors import UsageError
from callsmith.core.events import CallArguments, CallReady
from callsmith.core.values import Call, Tool
from callsmith.formats import formats
from callsmith.formats.algebra import Format
from callsmith.formats.prompt.prompt import fit_id
from callsmith.formats.reader.parse import parse
from callsmith.formats.reader.reader import Reader
from callsmith.formats.write import write

SIZES = (1_000, 10_000, 100_000)
CHUNK = 4
LEAST = 2_000  # chunks a measurement is made of
RUNS = 3
ENOUGH = 4_000  # characters, at least, that are read at a time when readers are compared
SLOW, ENDLESS = 0.05, 0.5  # seconds for one text: who takes longer is not asked for a longer one; or is timed only once
CODE = (
    "def grüße(name: str) -> str:\n    '''Says \"hello\" to a <name>.'''\n    path = \"C:\\\\temp\\\\{name}\\n\"\n"
    "    if a[0] < b and c > d or x == {'k': [1, 2]}: # naïve 東京 🐈\n\treturn f\"{path!r}, {a/b:.2f}\"\n\n"
)
GOALS = {("SGLang", 1_000): 1.0, ("SGLang", 10_000): 1.2}  # of whole texts, in the mean
TOOL = Tool("write_file", "", {"type": "object", "properties": {"content": {"type": "string"}}, "required": ["content"]})


def main(model: str) -> None:
    rows = [row for format in formats().values() if (row := measured(format))]
    heads = ("format", *(f"{size:,}" for size in SIZES), "100k/1k", "longest silence")
    show(f"reading a string argument, {CHUNK} characters a chunk: µs of CPU a chunk", heads, rows)
    ratios, medians = {row[0]: row[-2] for row in rows}, {row[0]: max(row[1 : 1 + len(SIZES)]) for row in rows}
    steepest, slowest = max(ratios, key=ratios.__getitem__), max(medians, key=medians.__getitem__)
    print(f"  worst ratio {ratios[steepest]:.2f} ({steepest}); worst median {medians[slowest]:.2f} µs ({slowest}); ", end="")
    print(f"middle format at {SIZES[-1]:,}: {median(row[len(SIZES)] for row in rows):.2f} µs")
    floors = [f"{1e6 * least_to_parse(size):.0f} µs for {size // 1000} KB" for size in SIZES]
    print(f"  the least that reading a whole text takes, json.loads of the argument: {', '.join(floors)}")
    for rival in other_readers(TOOL):
        Beside(rival).measure()


class Beside:
    """A rival's readers and ours on the same texts, in turn."""

    def __init__(self, rival: OtherReaders) -> None:
        self._rival = rival
        self._costs: dict[tuple[str, int], dict[str, tuple[list[float], ...]]] = {}
        self._wrong: dict[str, list[str]] = {"streamed": [], "whole": []}
        self._slow: list[str] = []

    def measure(self) -> None:
        rows: list[tuple[str, *tuple[str, ...]]] = []
        for format in formats().values():
            if pieces_of(format, SIZES[0], CHUNK) and (row := self._row(format)):
                rows.append((format.name, *row))
        heads = ("format", *(f"{way}, {size // 1000} KB" for way in self._wrong for size in SIZES))
        show(f"reading, {self._rival.name} ÷ callsmith, {CHUNK} characters a chunk (special tokens whole)", heads, rows)
        for way, names in self._wrong.items():
            print(f"  {self._rival.name}, {way}: not read as written: {len(names)} of {len(rows)} ({', '.join(names) or '-'})")
        print(f"  {self._rival.name}: too slow to be asked for more: {', '.join(self._slow) or 'none'}")
        for (way, size), costs in self._costs.items():
            ours, theirs = (
                [geometric_mean(costs_of_run) for costs_of_run in zip(*both, strict=True)]
                for both in zip(*costs.values(), strict=True)
            )
            name, unit = f"{way}, {size // 1000} KB, {len(costs)} formats", "µs a chunk" if way == "streamed" else "µs a text"
            goal = GOALS.get((self._rival.name, size)) if way == "whole" else None
            compare(name, unit, ours, self._rival.name, theirs, goal=goal)
            ratios = {format: median(both[1]) / median(both[0]) for format, both in costs.items()}
            worst = min(ratios, key=ratios.__getitem__)
            print(f"  {self._rival.name}, {way}, {size // 1000} KB: at least {ratios[worst]:.2f} ({worst})")

    def _row(self, format: Format) -> list[str]:
        theirs = self._rival.reader_of(format)
        if theirs is None:
            return []
        cells = list[str]()
        for way in self._wrong:
            for size in SIZES:
                text = "".join(pieces_of(format, size, CHUNK))
                pieces = in_tokens(format, text, CHUNK) if way == "streamed" else text
                ours = read if way == "streamed" else read_whole
                their_way = theirs.streamed if way == "streamed" else theirs.whole
                cells.append(
                    self._cell(way, size, format, partial(ours, format, pieces), partial(their_way, pieces), len(pieces))
                )
                if cells[-1].endswith(("wrong", "slow")):
                    break
            cells += [""] * (-len(cells) % len(SIZES))
        return cells

    def _cell(
        self, way: str, size: int, format: Format, ours: Callable[[], Found], theirs: Callable[[], Found], chunks: int
    ) -> str:
        expected, began = [(TOOL.name, {"content": text_of(size)})], time.process_time()
        try:
            is_right = theirs() == expected
        except Exception:  # whatever it raises, it does not read this
            is_right = False
        once = time.process_time() - began
        assert ours() == expected, f"{format.name}, {way}, {size}"
        if not is_right:
            self._wrong[way].append(format.name if size == SIZES[0] else f"{format.name} at {size:,}")
            return "wrong"
        times = max(1, ENOUGH // size)
        ways = {"ours": partial(cpu_time, ours, times)} | ({} if once > ENDLESS else {"theirs": partial(cpu_time, theirs, times)})
        costs = in_turn(ways)
        both = costs["ours"], costs.get("theirs", [once] * ROUNDS)
        parts = chunks if way == "streamed" else 1
        costs_of_size = self._costs.setdefault((way, size), {})
        costs_of_size[format.name] = tuple([seconds / parts * 1e6 for seconds in side] for side in both)
        ratio = f"{median(both[1]) / median(both[0]):.1f}"
        if once > SLOW and size != SIZES[-1]:
            self._slow.append(f"{format.name} ({way}, {size // 1000} KB: {once:.1f} s)")
            return f"{ratio}, slow"
        return ratio


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


def read(format: Format, pieces: Sequence[str]) -> Found:
    reader, calls = Reader(format, [TOOL]), list[Call]()
    for at in range(len(pieces) + 1):
        events = reader.feed(pieces[at]) if at < len(pieces) else reader.close()
        calls += [event.call for event in events if isinstance(event, CallReady)]
    return [(call.name, call.arguments) for call in calls]


def read_whole(format: Format, text: str) -> Found:
    return [(call.name, call.arguments) for call in parse(format, text, [TOOL]).calls]


def least_to_parse(size: int) -> float:
    """Seconds of CPU for `json.loads` of the argument alone."""
    text = json.dumps({"content": text_of(size)}, ensure_ascii=False)
    return median(cpu_time(partial(json.loads, text), 100) for _ in range(ROUNDS))


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

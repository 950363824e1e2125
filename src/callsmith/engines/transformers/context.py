"""The model and its KV memory, as the batch sees them: decodes tokens of several sequences at once.

On a GPU each shape of a small step is captured once as a CUDA graph and replayed: launching its hundreds of kernels one by one
would take longer than they run. So the shapes are few: numbers of rows, tokens and cells are rounded up.

The next step of answers that go on with the tokens that were just drawn is begun on the GPU before those are known here
(`go_on`): accepting them and finding the next masks take no time of the GPU's.

While a single answer is written, and what was written last stands in the text before, what followed there is decoded with it
(`lookup`). The logits of these guesses are kept: where they come true, nothing is left to be decoded.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from callsmith.core.errors import ModelError, Unavailable
from callsmith.engines.decoding.batch import Flag
from callsmith.engines.decoding.vocabulary import Logits
from callsmith.engines.transformers.attention import SlotLayer, Window, using
from callsmith.engines.transformers.libraries import LanguageModel, Tensor, torch, transformers
from callsmith.engines.transformers.lookup import GUESSED, Guesses, Text

_CPU_SLICE: Final = 256  # tokens decoded at once: large enough to be fast, small enough to be aborted soon
_GPU_SLICE: Final = 4096
_ALIGNED: Final = 64  # cells: what the kernels of attention want a window to be a multiple of
_PADDING: Final = 8  # cells of a row that take what is only padding
_FEW_TOKENS: Final = (1, 4, 16, 64)  # of one sequence: so many are decoded by a graph
_CELLS: Final = 256  # the least length of a window on a GPU


Row: TypeAlias = tuple[int, int, int, bool]  # a token, its position, its sequence, and whether its logits are wanted


@dataclass(slots=True)
class _Part:
    """The next tokens of one sequence, from a position on. So many of the last ones are `guessed`."""

    slot: int
    start: int
    tokens: list[int] = field(default_factory=list[int])
    guessed: int = 0


@dataclass(slots=True)
class _Graph:
    """A captured forward pass and the memory that it reads its rows from."""

    rows: Tensor
    replay: Callable[[], object]


@dataclass(slots=True)
class _Ahead:
    """A forward pass that was begun ahead: of each of these sequences, at its position, the token that stands in its row."""

    positions: dict[int, int] = field(default_factory=dict[int, int])
    tokens: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))

    def left(self, rows: Iterable[Row]) -> list[Row]:
        """Those of these rows that it has not decoded."""
        tokens: list[int] = self.tokens.tolist()
        return [row for row in rows if self.positions.get(row[2]) != row[1] or tokens[row[2]] != row[0]]


class TorchContext:
    """Decodes with a model. `length` is how many tokens a sequence may have, `slots` how many sequences there are."""

    def __init__(self, model: LanguageModel, *, width: int, slots: int, length: int) -> None:
        self.model: LanguageModel = model
        self.device: Any = model.device
        self.slots = slots
        self.length = length
        self.size = slots * length
        self._cells = -(-length // _ALIGNED) * _ALIGNED
        self.is_gpu: bool = self.device.type == "cuda"
        self.slice = _GPU_SLICE if self.is_gpu else _CPU_SLICE
        layers = model.config.get_text_config().num_hidden_layers
        self._cache: Any = transformers.Cache(layers=[SlotLayer(slots, self._cells + _PADDING) for _ in range(layers)])
        self.all_logits: Tensor = torch.zeros(slots, width, dtype=torch.float32, device=self.device)  # of each slot's last token
        self._graphs: dict[tuple[int, int, int, int], _Graph] = {}
        self._pool: Any = None  # the graphs share their working memory
        self.captures = self.is_gpu
        self._ahead = _Ahead()
        self.looks_up = self.is_gpu
        self._texts = [Text() for _ in range(slots)]
        self._guesses = Guesses()
        self._guessed_logits: Tensor = torch.zeros(1 + GUESSED, width, dtype=torch.float32, device=self.device)
        self._ends = [0] * slots  # where each sequence ends
        self._slots_of_rows: list[int] = []
        self._flag: Flag | None = None
        self.measures = False
        self._marks: list[Any] = []
        self._check_attention()

    def decode(self, rows: Iterable[Row], *, exact: bool = False) -> bool:
        """Decode (token, position, sequence, logits wanted) rows; False when it was aborted. On a GPU the work is only begun."""
        rows = [*rows]
        self._slots_of_rows = [slot for _, _, slot, _ in rows]
        for token, position, slot, _ in rows:
            self._ends[slot] = position + 1
            self._texts[slot].put(position, token)
        if all(self._guesses.hold(*row[:3]) for row in rows):
            self.all_logits[rows[-1][2]].copy_(self._guessed_logits[rows[-1][1] - self._guesses.position + 1])
            return True
        self._guesses = Guesses()
        ahead, self._ahead = self._ahead, _Ahead()
        left = ahead.left(rows)
        if not left:
            return True
        parts = _parts(left)
        if any(len(part.tokens) == 1 for part in parts):
            parts = _parts(rows)  # a pass of single tokens may touch all rows
        if self.looks_up and len(parts) == 1:
            self._add_guesses(parts[0])
        if len(left) == len(rows):
            self._marks.clear()
            self.mark()
        else:
            del self._marks[-1:]  # the pass goes on
        try:
            for group in self._groups(parts):
                if self._flag is not None and self._flag[0] == b"1":
                    return False
                self._forward(*group)
        except torch.OutOfMemoryError as error:
            raise ModelError(
                "the GPU has no memory left for this step", hint="try a smaller context or fewer live requests"
            ) from error
        except RuntimeError as error:
            raise ModelError(f"PyTorch could not decode {len(self._slots_of_rows)} tokens: {error}") from error
        self.mark()
        return True

    def go_on(self, slots: list[int], drawn: Tensor, tokens: Tensor) -> None:
        """Begin the next step of these sequences, each with the token in its row of `drawn`, which `tokens` will have here.

        Those that go on otherwise are decoded again.
        """
        positions = {slot: self._ends[slot] for slot in slots}
        self.mark()
        try:
            self._step(positions, drawn)
        except RuntimeError:  # `decode` will come to it again, and say it
            return
        self.mark()
        self._ahead = _Ahead(positions, tokens)

    def copies(self, slots: list[int]) -> bool:
        """Whether one sequence alone is to go on, and probably with what stands in its text before."""
        if not self.looks_up or len(slots) != 1:
            return False
        guesses = self._guesses
        is_guessed = guesses.slot == slots[0] and self._ends[slots[0]] < guesses.position + len(guesses.tokens)
        return is_guessed or bool(self._texts[slots[0]].guess())

    def _add_guesses(self, part: _Part) -> None:
        end = part.start + len(part.tokens)
        if len(part.tokens) + GUESSED > _FEW_TOKENS[-1] or end + GUESSED > self.length:
            return
        self._guesses = Guesses(part.slot, end, self._texts[part.slot].guess())
        part.guessed = len(self._guesses.tokens)
        part.tokens += self._guesses.tokens

    def mark(self) -> None:
        """Where times are measured, note when the GPU comes to this point."""
        if self.measures and self.is_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)

    def take_marks(self) -> list[Any]:
        """The marks since the last decode began."""
        marks, self._marks = self._marks, []
        return marks

    def slot_of(self, row: int) -> int:
        """The sequence of a row in the last decode."""
        return self._slots_of_rows[row]

    def logits(self, row: int) -> Logits:
        return self.logits_of(self.slot_of(row))

    def logits_of(self, slot: int) -> Logits:
        """The logits of a sequence that was decoded last, free to change."""
        return self.all_logits[slot].to("cpu", copy=True).numpy()

    def forget(self, sequence: int, start: int) -> bool:
        """Drop a sequence from a position on: the cells behind it are written again before they are seen."""
        self._leave(sequence)
        self._texts[sequence].cut(start)
        self._ends[sequence] = min(self._ends[sequence], start)
        return True

    def copy(self, source: int, target: int) -> None:
        self._leave(target)
        self._texts[target].take(self._texts[source])
        self._ends[target] = self._ends[source]
        for layer in self._cache.layers:
            layer.copy(source, target, self._ends[source])

    def _leave(self, slot: int) -> None:
        """Nothing that was decoded ahead counts: the sequence goes on otherwise, or is another one."""
        self._ahead.positions.pop(slot, None)
        if self._guesses.slot == slot:
            self._guesses = Guesses()

    def interrupt_by(self, flag: Flag) -> None:
        self._flag = flag

    def close(self) -> None:
        self._graphs.clear()
        self._cache = self.model = self.all_logits = None
        if self.is_gpu:
            torch.cuda.empty_cache()

    # -- forward passes

    def _groups(self, parts: list[_Part]) -> Iterable[tuple[list[_Part], int]]:
        """Parts of about the same number of tokens, with that number; single tokens first, for their pass may touch all rows."""
        groups: dict[int, list[_Part]] = {}
        for part in parts:
            count = len(part.tokens)
            if count > 1:
                count = next((few for few in _FEW_TOKENS if count <= few), count) if self.is_gpu else -(-count // 16) * 16
            groups.setdefault(count, []).append(part)
        for count in sorted(groups):
            yield groups[count], count

    def _forward(self, parts: list[_Part], tokens: int) -> None:
        end, keeps = max(part.start + len(part.tokens) for part in parts), 1 + max(part.guessed for part in parts)
        if not self.is_gpu or tokens > _FEW_TOKENS[-1]:
            parts.sort(key=lambda part: part.slot)
            slots = [part.slot for part in parts]
            span = slice(slots[0], slots[-1] + 1) if slots[-1] - slots[0] == len(slots) - 1 else None
            cells = -(-end // _ALIGNED) * _ALIGNED if self.is_gpu else end
            self._run(self._rows(parts, tokens), tokens, cells, span, keeps)
            return
        if tokens == 1:
            self._step({part.slot: part.start for part in parts}, [part.tokens[0] for part in parts])
            return
        cells = min(power_of_two(end, _CELLS), self._cells)
        parts += [parts[0]] * (power_of_two(len(parts)) - len(parts))  # twice the same does no harm
        self._replay(self._rows(parts, tokens), tokens, cells, None, keeps)

    def _step(self, positions: Mapping[int, int], tokens: list[int] | Tensor) -> None:
        """Decode a token of each of these sequences: a list of them, or on the device a row for each slot."""
        slots, places = [*positions], [*positions.values()]
        count = min(power_of_two(max(slots) + 1), self.slots)
        rows = np.zeros((count, 4), np.int64)  # token, position, cell and slot, as of `_rows`
        rows[:, 2], rows[:, 3] = self._cells, np.arange(count)
        rows[slots, 1] = rows[slots, 2] = places
        drawn = None
        if isinstance(tokens, list):
            rows[slots, 0] = tokens
        else:
            drawn = tokens[:count].clamp(min=0)
        cells = min(power_of_two(max(places) + 1, _CELLS), self._cells)
        self._replay(self.pinned(rows), 1, cells, slice(0, count), drawn=drawn)

    def _rows(self, parts: list[_Part], tokens: int) -> Tensor:
        """The tokens, positions and cells of each part side by side, then its slot. Short parts have padding in front."""
        rows = np.zeros((len(parts), 3 * tokens + 1), np.int64)
        rows[:, 2 * tokens : 3 * tokens] = self._cells
        for row, part in zip(rows, parts, strict=True):
            if size := len(part.tokens):
                places = np.arange(part.start, part.start + size)
                row[tokens - size : tokens] = part.tokens
                row[2 * tokens - size : 2 * tokens] = places
                row[3 * tokens - size : 3 * tokens] = places
            row[-1] = part.slot
        return self.pinned(rows)

    def pinned(self, rows: NDArray[Any]) -> Tensor:
        """As a tensor that can be copied to the device beside other work."""
        tensor = torch.from_numpy(rows)
        return tensor.pin_memory() if self.is_gpu else tensor

    def _run(self, rows: Tensor, tokens: int, cells: int, span: slice | None, keeps: int = 1) -> Window:
        """A forward pass. The logits of so many tokens are kept: the last that is certain, and the guesses behind it."""
        rows = rows.to(self.device, non_blocking=True)
        slots = rows[:, -1]
        window = Window(rows[:, tokens : 2 * tokens], rows[:, 2 * tokens : 3 * tokens], slots, span, cells)
        with torch.no_grad(), using(window):
            out = self.model(
                input_ids=rows[:, :tokens],
                position_ids=window.positions,
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=keeps,
            ).logits
            if keeps > 1:
                self._guessed_logits.copy_(out[0])
            if span is None:
                self.all_logits.index_copy_(0, slots, out[:, 0].float())
            else:
                self.all_logits[span].copy_(out[:, 0])
        return window

    def _replay(
        self, rows: Tensor, tokens: int, cells: int, span: slice | None, keeps: int = 1, drawn: Tensor | None = None
    ) -> None:
        """Run a forward pass by its graph. Tokens that were `drawn` take the place of those in the first column."""
        shape = len(rows), tokens, cells, keeps
        graph = self._graphs.get(shape)
        if graph is None:
            place = rows.to(self.device)
            graph = _Graph(place, lambda: self._run(place, tokens, cells, span, keeps))
            if self.captures:
                graph = self._graphs[shape] = self._capture(graph)
        graph.rows.copy_(rows, non_blocking=True)
        if drawn is not None:
            graph.rows[: len(drawn), 0] = drawn
        graph.replay()

    def _capture(self, graph: _Graph) -> _Graph:
        """Capture a forward pass. Some models cannot be captured: they run without graphs from then on."""
        captured = capture(graph.replay, self._pool)
        if captured is None:
            self.captures = False
            self._graphs.clear()
            return graph
        self._pool = self._pool or captured.pool()
        return _Graph(graph.rows, captured.replay)

    def _check_attention(self) -> None:
        """Decode a token, to see that the model attends by our function: others know nothing of our cache."""
        layers = len(self._cache.layers)
        hint = "other engines may run it: a GGUF of it by llama:, or a server"
        try:
            window = self._run(self._rows([_Part(0, 0, [0])], 1), 1, 1, slice(0, 1))
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # of any kind: the code of a model that expects another cache or attention fails anyhow
            raise Unavailable(f"this kind of model cannot be batched: {type(error).__name__}: {error}", hint=hint) from error
        if window.attended != layers:
            why = f"{window.attended} of its {layers} layers attend in a way that allows it"
            raise Unavailable(f"this kind of model cannot be batched: {why}", hint=hint)


def _parts(rows: Iterable[Row]) -> list[_Part]:
    parts: dict[int, _Part] = {}
    for token, position, slot, _ in rows:
        parts.setdefault(slot, _Part(slot, position)).tokens.append(token)
    return [*parts.values()]


def capture(run: Callable[[], object], pool: Any = None) -> Any:
    """What `run` does on the GPU, as a graph that can be replayed; None if it cannot be captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # a few times first: kernels are chosen and memory is taken then
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            run()
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    return graph


def power_of_two(count: int, least: int = 1) -> int:
    """The next one that is not smaller."""
    return max(least, 1 << (count - 1).bit_length())

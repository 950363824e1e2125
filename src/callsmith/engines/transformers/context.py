"""The model and its KV memory, as the batch sees them: decodes tokens of several sequences at once.

On a GPU each shape of a small step is captured once as a CUDA graph and replayed: launching its hundreds of kernels one by one
would take longer than they run. So the shapes are few: numbers of rows, tokens and cells are rounded up.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np

from callsmith.core.errors import ModelError, Unavailable
from callsmith.engines.decoding.batch import Flag
from callsmith.engines.decoding.vocabulary import Logits
from callsmith.engines.transformers.attention import SlotLayer, Window, using
from callsmith.engines.transformers.libraries import LanguageModel, Tensor, torch, transformers

_CPU_SLICE: Final = 256  # tokens decoded at once: large enough to be fast, small enough to be aborted soon
_GPU_SLICE: Final = 4096
_ALIGNED: Final = 64  # cells: what the kernels of attention want a window to be a multiple of
_PADDING: Final = 8  # cells of a row that take what is only padding
_FEW_TOKENS: Final = (1, 4, 16, 64)  # of one sequence: so many are decoded by a graph
_CELLS: Final = 256  # the least length of a window on a GPU


@dataclass(slots=True)
class _Part:
    """The next tokens of one sequence, from a position on."""

    slot: int
    start: int
    tokens: list[int] = field(default_factory=list[int])


@dataclass(slots=True)
class _Graph:
    """A captured forward pass and the memory that it reads its rows from."""

    rows: Tensor
    replay: Callable[[], None]


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
        self._graphs: dict[tuple[int, int, int], _Graph] = {}
        self._pool: Any = None  # the graphs share their working memory
        self.captures = self.is_gpu
        self._ends = [0] * slots  # where each sequence ends
        self._slots_of_rows: list[int] = []
        self._flag: Flag | None = None
        self.measures = False
        self._marks: list[Any] = []
        self._check_attention()

    def decode(self, rows: Iterable[tuple[int, int, int, bool]]) -> bool:
        """Decode (token, position, sequence, logits wanted) rows; False when it was aborted. On a GPU the work is only begun."""
        parts: dict[int, _Part] = {}
        self._slots_of_rows = []
        for token, position, slot, _ in rows:
            parts.setdefault(slot, _Part(slot, position)).tokens.append(token)
            self._slots_of_rows.append(slot)
        for part in parts.values():
            self._ends[part.slot] = part.start + len(part.tokens)
        self._marks.clear()
        self.mark()
        try:
            for group in self._groups([*parts.values()]):
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

    def mark(self) -> None:
        """Where times are measured, note when the GPU comes to this point."""
        if self.measures and self.is_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)

    def take_marks(self) -> list[float]:
        """The seconds between the marks since the last decode began. The GPU must have come to the last of them."""
        marks, self._marks = self._marks, []
        return [before.elapsed_time(after) / 1000 for before, after in pairwise(marks)]

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
        self._ends[sequence] = min(self._ends[sequence], start)
        return True

    def copy(self, source: int, target: int) -> None:
        self._ends[target] = self._ends[source]
        for layer in self._cache.layers:
            layer.copy(source, target, self._ends[source])

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
        end = max(self._ends[part.slot] for part in parts)
        if not self.is_gpu or tokens > _FEW_TOKENS[-1]:
            parts.sort(key=lambda part: part.slot)
            slots = [part.slot for part in parts]
            span = slice(slots[0], slots[-1] + 1) if slots[-1] - slots[0] == len(slots) - 1 else None
            cells = -(-end // _ALIGNED) * _ALIGNED if self.is_gpu else end
            self._run(self._rows(parts, tokens), tokens, cells, span)
            return
        cells = min(_power_of_two(end, _CELLS), self._cells)
        if tokens > 1:
            parts += [parts[0]] * (_power_of_two(len(parts)) - len(parts))  # twice the same does no harm
            self._replay(self._rows(parts, tokens), tokens, cells, None)
            return
        by_slot = {part.slot: part for part in parts}
        count = min(_power_of_two(max(by_slot) + 1), self.slots)
        parts = [by_slot.get(slot) or _Part(slot, self._ends[slot]) for slot in range(count)]
        self._replay(self._rows(parts, 1), 1, cells, slice(0, count))

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
        tensor = torch.from_numpy(rows)
        return tensor.pin_memory() if self.is_gpu else tensor

    def _run(self, rows: Tensor, tokens: int, cells: int, span: slice | None) -> Window:
        rows = rows.to(self.device, non_blocking=True)
        slots = rows[:, -1]
        window = Window(rows[:, tokens : 2 * tokens], rows[:, 2 * tokens : 3 * tokens], slots, span, cells)
        with torch.no_grad(), using(window):
            out = self.model(
                input_ids=rows[:, :tokens],
                position_ids=window.positions,
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
            if span is None:
                self.all_logits.index_copy_(0, slots, out.float())
            else:
                self.all_logits[span].copy_(out)
        return window

    def _replay(self, rows: Tensor, tokens: int, cells: int, span: slice | None) -> None:
        if not self.captures:
            self._run(rows, tokens, cells, span)
            return
        shape = len(rows), tokens, cells
        graph = self._graphs.get(shape)
        if graph is None:
            graph = self._graphs[shape] = self._capture(rows, tokens, cells, span)
        graph.rows.copy_(rows, non_blocking=True)
        graph.replay()

    def _capture(self, rows: Tensor, tokens: int, cells: int, span: slice | None) -> _Graph:
        """Capture a forward pass of this shape. Some models cannot be captured: they run without graphs from then on."""
        place = rows.to(self.device)

        def run() -> None:
            self._run(place, tokens, cells, span)

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # a few times first: kernels are chosen and memory is taken then
            for _ in range(2):
                run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                run()
        except RuntimeError:
            torch.cuda.synchronize()
            self.captures = False
            self._graphs.clear()
            return _Graph(place, run)
        self._pool = self._pool or graph.pool()
        return _Graph(place, graph.replay)

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


def _power_of_two(count: int, least: int = 1) -> int:
    """The next one that is not smaller."""
    return max(least, 1 << (count - 1).bit_length())

"""Samples the next tokens of a batch on the device: masks are found while the model computes, and applied by one kernel.

A GPU has only begun with the forward pass when `advance` is called. The masks have been begun even before (`masks.py`), and
are copied to it meanwhile. Applying them, sampling and the next forward pass are queued behind it, then the tokens of the step
before are delivered; the first thing that is waited for are the new ones. Accepting them, and finding what may follow, takes
place while the GPU is at that next pass.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from callsmith.core.errors import ModelError
from callsmith.engines.decoding.batch import Generation
from callsmith.engines.decoding.sequence import CLOSING_BONUS, Sequence
from callsmith.engines.decoding.vocabulary import Logits, Vocabulary
from callsmith.engines.port import Piece
from callsmith.engines.transformers.context import TorchContext, capture, power_of_two
from callsmith.engines.transformers.libraries import Tensor, torch
from callsmith.engines.transformers.masks import FIRST_QUOTE, MASKED, UNMASKED, MaskFinder, MaskRow, apply_masks

_NO_TOKEN = -1

_Row: TypeAlias = tuple[int, Sequence, int]  # an answer: its place among those that are asked for, itself, and its slot
_Outcome: TypeAlias = list[Piece] | Exception | None


@dataclass(slots=True)
class Timings:
    """Seconds spent so far. What a GPU had to wait for masks is `exposed`.

    `applying` is the kernel, `accepting` what grammars and the text of answers take afterwards.
    `exposed`, `applying` and `forward` are only known on a GPU, and only if they are measured.
    """

    steps: int = 0
    forward: float = 0.0
    exposed: float = 0.0
    applying: float = 0.0
    waiting: float = 0.0
    accepting: float = 0.0

    def add(self, marks: list[Any]) -> None:
        """Add a step, whose marks the GPU has come to: where a forward pass began and ended, masks were there, and applied."""
        self.steps += 1
        if len(marks) == 4:
            forward, exposed, applying = (before.elapsed_time(after) / 1000 for before, after in pairwise(marks))
            self.forward += forward
            self.exposed += exposed
            self.applying += applying


_MOST_SKIPPING: Final = 4
_MOST_CAPTURED: Final = 256  # candidates: each graph holds its working memory for good, and requests choose their top_k
_COLUMNS = 6  # of what is said of each row: temperature, top_k, top_p, the logarithm of min_p, a random number, the kind of mask


@dataclass(slots=True)
class DeviceSampler:
    """Samples for all answers of a step. Answers that need their logits here, as for penalties, are sampled one by one.

    Tokens that grammars force are skipped while at most `most_skipping` answers are written: the passes that they take then cost
    less than those that they save. `goes_on`: the next step is begun before its tokens are known here.
    """

    context: TorchContext
    vocabulary: Vocabulary
    threads: int
    deliver: Callable[[], None] = lambda: None
    timings: Timings = field(default_factory=Timings)
    most_skipping: int = field(init=False)
    goes_on: bool = field(init=False)
    finder: MaskFinder = field(init=False)
    _host_bits: Tensor = field(init=False)
    _bits: Tensor = field(init=False)
    _settings: Tensor = field(init=False)
    _tokens: Tensor = field(init=False)  # drawn last, of each slot
    _logits: Tensor = field(init=False, default=None)  # that they were drawn from
    _bonus: Tensor = field(init=False, default=None)
    _copying: Any = field(init=False, default=None)  # the stream on which masks are copied to a GPU, beside the forward pass
    _draws: "dict[tuple[int, int], _Draw]" = field(init=False, default_factory=dict[tuple[int, int], "_Draw"])

    def __post_init__(self) -> None:
        words = -(-self.vocabulary.size // 32)
        context = self.context
        self.most_skipping = _MOST_SKIPPING if context.is_gpu else context.slots
        self.goes_on = context.is_gpu
        self._host_bits = torch.zeros(context.slots, words, dtype=torch.int32, pin_memory=context.is_gpu)
        self._bits = torch.zeros(context.slots, words, dtype=torch.int32, device=context.device)
        self._settings = torch.zeros(context.slots, _COLUMNS, device=context.device)
        self._tokens = torch.zeros(context.slots, dtype=torch.int64, pin_memory=context.is_gpu)
        self.finder = MaskFinder(self._host_bits, self.threads, ahead=context.is_gpu)
        if context.is_gpu:
            self._copying = torch.cuda.Stream(context.device)

    def advance(self, wanted: list[tuple[Generation, int]]) -> list[list[Piece] | Exception]:
        """The text of each answer, or the error of its grammar or its sampler."""
        self.deliver()  # now: whoever reads the answers has the interpreter while masks, and then tokens, are waited for
        self.finder.wait()
        outcomes: list[_Outcome] = [None] * len(wanted)
        together: list[_Row] = []
        needs_logits = False
        for place, (sequence, row) in enumerate(wanted):
            assert isinstance(sequence, Sequence)
            try:
                outcomes[place] = sequence.end_early()
            except Exception as error:  # of its grammar: the other requests go on
                outcomes[place] = error
            if outcomes[place] is None:
                if sequence.needs_logits:
                    needs_logits = True
                else:
                    together.append((place, sequence, self.context.slot_of(row)))
        skips = len(together) <= self.most_skipping
        goes_on = self.goes_on and not needs_logits and not (skips and any(sequence.may_skip for _, sequence, _ in together))
        tokens = self._sample(together, outcomes, goes_on=goes_on)
        began = time.perf_counter()
        # Those whose masks will take long first: their masks are found while the others are accepted.
        wide = self.finder.wide([slot for _, sequence, slot in together if sequence.active])
        for is_wide in (True, False):
            self._accept([row for row in together if (row[2] in wide) is is_wide], tokens, outcomes, skips=skips)
        self.timings.accepting += time.perf_counter() - began
        return [
            self._advance_alone(sequence, row) if outcome is None else outcome
            for outcome, (sequence, row) in zip(outcomes, wanted, strict=True)
        ]

    def close(self) -> None:
        self.finder.close()
        self._draws.clear()
        self._logits = None

    def _accept(self, some: list[_Row], tokens: list[int], outcomes: list[_Outcome], *, skips: bool) -> None:
        """Go on with the tokens, one for each slot, and begin to find the masks of what may follow."""
        going_on: list[MaskRow] = []
        for place, sequence, slot in some:
            if outcomes[place] is not None:
                continue
            try:
                outcomes[place] = self._accept_one(sequence, slot, tokens[slot], skips=skips)
                if not sequence.finished and (active := sequence.active):
                    going_on.append((active, slot))
            except Exception as error:  # of its grammar: the other requests go on
                outcomes[place] = error
        self.finder.begin(going_on)

    def _accept_one(self, sequence: Sequence, slot: int, token: int, *, skips: bool) -> list[Piece]:
        if token == _NO_TOKEN:
            raise ModelError("the grammar leaves no token to choose from")
        pieces = sequence.accept(token, skips=skips)
        if pieces is not None:
            return pieces
        logits: Logits = self._logits[slot].to("cpu", copy=True).numpy()
        logits[token] = -np.inf
        return sequence.advance(logits)

    def _advance_alone(self, generation: Generation, row: int) -> list[Piece] | Exception:
        try:
            return generation.advance(self.context.logits(row))
        except Exception as error:  # of its grammar or its sampler: the other requests go on
            return error

    def _sample(self, together: list[_Row], outcomes: list[_Outcome], *, goes_on: bool) -> list[int]:
        """A token for each slot; an answer whose grammar fails gets its error in `outcomes`."""
        if not together:
            return []
        slots = [slot for _, _, slot in together]
        rows = min(power_of_two(max(slots) + 1), self.context.slots)
        settings = np.zeros((rows, _COLUMNS), np.float32)
        settings[:] = 0, 1, 1, 0, 0, UNMASKED  # of rows that nobody asks for
        kinds = self._find_masks(together, outcomes)
        settings[slots] = [(*sequence.sampler.draw_settings(), kinds.get(slot, UNMASKED)) for _, sequence, slot in together]
        logits, began = self.context.all_logits[:rows], time.perf_counter()
        with torch.no_grad():
            on_device = self._settings[:rows].copy_(self.context.pinned(settings), non_blocking=True)
            bits = self._copy_masks(rows) if kinds else None
            self.context.mark()
            if bits is not None:
                self._apply(logits, bits, on_device[:, 5])
            self.context.mark()
            marks = self.context.take_marks()
            drawn = self._draw(logits, settings, on_device)
            self._tokens[:rows].copy_(drawn, non_blocking=True)
            known = torch.cuda.current_stream(self.context.device).record_event() if self.context.is_gpu else None
            if goes_on and not self.context.copies(slots):
                # The next step has its logits in the same place: those that may be needed again are copied.
                self._logits = logits.clone() if any(sequence.may_refuse for _, sequence, _ in together) else None
                self.context.go_on(slots, drawn, self._tokens)
            else:
                self._logits = logits
        if known is not None:
            known.synchronize()
        tokens: list[int] = self._tokens.tolist()
        self.timings.waiting += time.perf_counter() - began
        self.timings.add(marks)
        return tokens

    def _draw(self, logits: Tensor, settings: NDArray[np.float32], on_device: Tensor) -> Tensor:
        """A token for each row. The dozens of small kernels that it takes are captured, unless many tokens are candidates."""
        most = count_candidates(settings)
        if most is None or most > _MOST_CAPTURED or not self.context.captures:
            return draw(logits, settings, on_device)
        captured = self._draws.get((len(logits), most))
        if captured is None:
            drawn = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)

            def run() -> None:
                drawn.copy_(_draw_few(logits, on_device, most))

            graph = capture(run)
            captured = self._draws[len(logits), most] = _Draw(drawn, graph.replay if graph else run)
        captured.run()
        return captured.drawn

    def _find_masks(self, together: list[_Row], outcomes: list[_Outcome]) -> dict[int, int]:
        """What is to be done to the rows of answers that are constrained, when their masks are there."""
        constrained = [(place, active, sequence, slot) for place, sequence, slot in together if (active := sequence.active)]
        self.finder.find([(active, slot) for _, active, _, slot in constrained])
        kinds: dict[int, int] = {}
        for place, active, sequence, slot in constrained:
            quote = sequence.closing_quote
            kinds[slot] = MASKED if quote is None else FIRST_QUOTE + quote
            try:
                active.check()
            except ModelError as error:
                outcomes[place] = error
        return kinds

    def _copy_masks(self, rows: int) -> Tensor:
        """The masks on the device. Nothing reads those of the step before any more: its tokens are known."""
        bits, host_bits = self._bits[:rows], self._host_bits[:rows]
        if self._copying is None:
            return bits.copy_(host_bits)
        with torch.cuda.stream(self._copying):
            bits.copy_(host_bits, non_blocking=True)
        torch.cuda.current_stream(self.context.device).wait_stream(self._copying)
        return bits

    def _apply(self, logits: Tensor, bits: Tensor, kinds: Tensor) -> None:
        if self._bonus is None:
            self._bonus = torch.from_numpy(np.stack(self.vocabulary.closing) * CLOSING_BONUS).to(logits.device)
        apply_masks(logits, bits, kinds.int(), self._bonus)


@dataclass(frozen=True, slots=True)
class _Draw:
    """Draws tokens from certain rows of logits into `drawn`."""

    drawn: Tensor
    run: Callable[[], None]


def draw(logits: Tensor, settings: NDArray[np.float32], on_device: Tensor) -> Tensor:
    """A token for each row, as `Sampler` draws it from the same random number; -1 where no token is possible.

    `settings` says for each row how; `on_device` is the same there.
    """
    wide = _is_wide(settings)
    tokens = _draw_few(logits, on_device, count_candidates(settings[~wide]) or 0)
    if wide.any():  # the whole vocabulary: sorted only where top_p asks for it
        rows = torch.from_numpy(np.flatnonzero(wide)).to(logits.device)
        few = logits.index_select(0, rows).double()
        values, token_ids = few.sort(dim=-1, descending=True) if (settings[wide, 2] < 1).any() else (few, None)
        tokens.index_copy_(0, rows, _draw_among(values, token_ids, on_device.index_select(0, rows)))
    return tokens


def count_candidates(settings: NDArray[np.float32]) -> int | None:
    """How many of the likeliest tokens must be looked at, rounded up so that there are few numbers.

    0 if it is the best one everywhere; None if it is all of them somewhere.
    """
    if _is_wide(settings).any():
        return None
    return power_of_two(int(settings[:, 1].max(initial=1))) if settings[:, 0].any() else 0


def _is_wide(settings: NDArray[np.float32]) -> NDArray[np.bool_]:
    return (settings[:, 1] == 0) & (settings[:, 0] > 0)


def _draw_few(logits: Tensor, on_device: Tensor, most: int) -> Tensor:
    """Draw among the `most` likeliest tokens; 0: take the best."""
    if most == 0:
        best, tokens = logits.max(dim=-1)
        return torch.where(best == float("-inf"), _NO_TOKEN, tokens)
    values, token_ids = logits.topk(min(most, logits.shape[1]), dim=-1)
    return _draw_among(values, token_ids, on_device)


def _draw_among(values: Tensor, token_ids: Tensor | None, numbers: Tensor) -> Tensor:
    """Draw among the logits of these tokens (None: all of them in order). Sorted, if top_k or top_p are to count."""
    temperature, top_k, top_p, least, number = (numbers[:, column, None] for column in range(5))
    best = values.amax(dim=-1, keepdim=True)
    scaled = (values - best) / temperature.clamp(min=1e-6)
    scaled = torch.where(temperature > 0, scaled, torch.where(values == best, 0.0, float("-inf")))
    places = torch.arange(values.shape[1], device=values.device)
    kept = (scaled >= torch.where(temperature > 0, least, 0.0)) & ((top_k == 0) | (places < top_k))
    sums = torch.where(kept, scaled.exp(), 0.0).cumsum(dim=-1)
    enough = (sums < top_p * sums[:, -1:]).sum(dim=-1, keepdim=True).clamp(max=values.shape[1] - 1)
    limit = sums.gather(1, enough)
    drawn = torch.minimum((sums <= number * limit).sum(dim=-1, keepdim=True), enough)
    tokens = drawn if token_ids is None else token_ids.gather(1, drawn)
    return torch.where(best == float("-inf"), _NO_TOKEN, tokens)[:, 0]

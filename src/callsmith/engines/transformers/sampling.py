"""Samples the next tokens of a batch on the device: masks are found while the model computes, and applied by one kernel.

A GPU has only begun with the forward pass when `advance` is called. The masks have been begun even before (`masks.py`), and
are copied to it meanwhile. Applying them and sampling are queued behind the forward pass, then the tokens of the step before are
delivered; the first thing that is waited for are the new ones.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from callsmith.core.errors import ModelError
from callsmith.engines.decoding.batch import Generation
from callsmith.engines.decoding.sequence import CLOSING_BONUS, Sequence
from callsmith.engines.decoding.vocabulary import Vocabulary
from callsmith.engines.port import Piece
from callsmith.engines.transformers.context import TorchContext
from callsmith.engines.transformers.libraries import Tensor, torch
from callsmith.engines.transformers.masks import FIRST_QUOTE, MASKED, UNMASKED, MaskFinder, apply_masks

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

    def add(self, marks: list[float]) -> None:
        """Add what was measured of a step: the seconds between its marks."""
        self.steps += 1
        if len(marks) == 3:
            self.forward, self.exposed, self.applying = (
                before + now for before, now in zip((self.forward, self.exposed, self.applying), marks, strict=True)
            )


_COLUMNS = 6  # of what is said of each row: temperature, top_k, top_p, the logarithm of min_p, a random number, the kind of mask


@dataclass(slots=True)
class DeviceSampler:
    """Samples for all answers of a step. Answers that need their logits here, as for penalties, are sampled one by one."""

    context: TorchContext
    vocabulary: Vocabulary
    threads: int
    deliver: Callable[[], None] = lambda: None
    timings: Timings = field(default_factory=Timings)
    finder: MaskFinder = field(init=False)
    _host_bits: Tensor = field(init=False)
    _bits: Tensor = field(init=False)
    _bonus: Tensor = field(init=False, default=None)
    _copying: Any = field(init=False, default=None)  # the stream on which masks are copied to a GPU, beside the forward pass

    def __post_init__(self) -> None:
        words = -(-self.vocabulary.size // 32)
        context = self.context
        self._host_bits = torch.zeros(context.slots, words, dtype=torch.int32, pin_memory=context.is_gpu)
        self._bits = torch.zeros(context.slots, words, dtype=torch.int32, device=context.device)
        self.finder = MaskFinder(self._host_bits, self.threads, ahead=context.is_gpu)
        if context.is_gpu:
            self._copying = torch.cuda.Stream(context.device)

    def advance(self, wanted: list[tuple[Generation, int]]) -> list[list[Piece] | Exception]:
        """The text of each answer, or the error of its grammar or its sampler."""
        self.finder.wait()
        outcomes: list[_Outcome] = [None] * len(wanted)
        together: list[_Row] = []
        for place, (sequence, row) in enumerate(wanted):
            assert isinstance(sequence, Sequence)
            try:
                outcomes[place] = sequence.end_early()
            except Exception as error:  # of its grammar: the other requests go on
                outcomes[place] = error
            if outcomes[place] is None and not sequence.needs_logits:
                together.append((place, sequence, self.context.slot_of(row)))
        tokens = self._sample(together, outcomes)
        began = time.perf_counter()
        for (place, sequence, slot), token in zip(together, tokens, strict=True):
            if outcomes[place] is None:
                outcomes[place] = self._accept(sequence, slot, token)
        going_on = (
            (sequence, slot) for place, sequence, slot in together if isinstance(outcomes[place], list) and not sequence.finished
        )
        self.finder.begin((active, slot) for sequence, slot in going_on if (active := sequence.active))
        self.timings.accepting += time.perf_counter() - began
        return [
            self._advance_alone(sequence, row) if outcome is None else outcome
            for outcome, (sequence, row) in zip(outcomes, wanted, strict=True)
        ]

    def _accept(self, sequence: Sequence, slot: int, token: int) -> list[Piece] | Exception:
        try:
            if token == _NO_TOKEN:
                raise ModelError("the grammar leaves no token to choose from")
            pieces = sequence.accept(token)
            if pieces is not None:
                return pieces
            logits = self.context.logits_of(slot)
            logits[token] = -np.inf
            return sequence.advance(logits)
        except Exception as error:  # of its grammar: the other requests go on
            return error

    def _advance_alone(self, generation: Generation, row: int) -> list[Piece] | Exception:
        try:
            return generation.advance(self.context.logits(row))
        except Exception as error:  # of its grammar or its sampler: the other requests go on
            return error

    def _sample(self, together: list[_Row], outcomes: list[_Outcome]) -> list[int]:
        """A token for each; an answer whose grammar fails gets its error in `outcomes`."""
        if not together:
            self.deliver()
            return []
        settings = np.zeros((max(slot for _, _, slot in together) + 1, _COLUMNS), np.float32)
        settings[:] = 0, 1, 1, 0, 0, UNMASKED  # of rows that nobody asks for
        self._find_masks(together, settings, outcomes)
        for _, sequence, slot in together:
            sampler = sequence.sampler
            number = sampler.draw() if sampler.temperature > 0 else 0.0
            settings[slot, :5] = sampler.temperature, sampler.top_k, sampler.top_p, math.log(sampler.min_p), number
        logits, began = self.context.all_logits[: len(settings)], time.perf_counter()
        is_masked = bool((settings[:, 5] != UNMASKED).any())
        with torch.no_grad():
            on_device = torch.from_numpy(settings).to(logits.device, non_blocking=True)
            bits = self._copy_masks(len(settings)) if is_masked else None
            self.context.mark()
            if bits is not None:
                self._apply(logits, bits, on_device[:, 5])
            self.context.mark()
            drawn = draw(logits, settings, on_device)
        self.deliver()  # not before: whoever reads the answers would hold the interpreter while the GPU waits for what to do next
        tokens: list[int] = drawn.cpu().tolist()
        self.timings.waiting += time.perf_counter() - began
        self.timings.add(self.context.take_marks())
        return [tokens[slot] for _, _, slot in together]

    def _find_masks(self, together: list[_Row], settings: NDArray[np.float32], outcomes: list[_Outcome]) -> None:
        constrained = [(place, active, sequence, slot) for place, sequence, slot in together if (active := sequence.active)]
        self.finder.find((active, slot) for _, active, _, slot in constrained)
        for place, active, sequence, slot in constrained:
            quote = sequence.closing_quote
            settings[slot, 5] = MASKED if quote is None else FIRST_QUOTE + quote
            try:
                active.check()
            except ModelError as error:
                outcomes[place] = error

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


def draw(logits: Tensor, settings: NDArray[np.float32], on_device: Tensor) -> Tensor:
    """A token for each row, as `Sampler` draws it from the same random number; -1 where no token is possible.

    `settings` says for each row how; `on_device` is the same there.
    """
    if not settings[:, 0].any():
        best, tokens = logits.max(dim=-1)
        return torch.where(best == float("-inf"), _NO_TOKEN, tokens)
    wide = (settings[:, 1] == 0) & (settings[:, 0] > 0)
    most = min(int(settings[~wide, 1].max(initial=1)), logits.shape[1])
    values, token_ids = logits.topk(most, dim=-1)
    tokens = _draw_among(values, token_ids, on_device)
    if wide.any():  # the whole vocabulary: sorted only where top_p asks for it
        rows = torch.from_numpy(np.flatnonzero(wide)).to(logits.device)
        few = logits.index_select(0, rows).double()
        values, token_ids = few.sort(dim=-1, descending=True) if (settings[wide, 2] < 1).any() else (few, None)
        tokens.index_copy_(0, rows, _draw_among(values, token_ids, on_device.index_select(0, rows)))
    return tokens


def _draw_among(values: Tensor, token_ids: Tensor | None, numbers: Tensor) -> Tensor:
    """Draw among these logits, whose tokens are `found` (None: all of them in order). Sorted, if top_k or top_p are to count."""
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

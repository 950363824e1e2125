"""What of the last prompt can be used again."""

import pytest

pytest.importorskip("numpy")

import numpy as np

from callsmith.core.errors import ModelError
from callsmith.engines.gguf import SLICE, Slot


class Memory:
    """A context that only remembers which positions it holds."""

    def __init__(self) -> None:
        self.held: list[int] = []
        self.forgets_parts = True
        self.interrupted = False
        self.broken = False

    def decode(self, rows) -> bool:  # type: ignore[no-untyped-def]
        for token, position, _, _ in rows:
            assert position == len(self.held)
            self.held.append(token)
        if self.broken:
            raise ModelError("broken")
        return not self.interrupted

    def forget(self, _sequence: int, start: int) -> bool:
        if start and not self.forgets_parts:
            return False
        del self.held[start:]
        return True

    def logits(self, row: int) -> np.ndarray:
        return np.zeros(1, np.float32)


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def slot(memory: Memory) -> Slot:
    return Slot(memory)  # type: ignore[arg-type]


def test_the_longest_common_beginning_is_kept_and_the_rest_forgotten(slot: Slot, memory: Memory) -> None:
    slot.decode([1, 2, 3, 4], wanted=True)
    assert slot.reuse([1, 2, 9, 9], exact=False) == 2
    assert slot.tokens == memory.held == [1, 2]


def test_the_last_token_of_a_prompt_is_always_decoded(slot: Slot, memory: Memory) -> None:
    slot.decode([1, 2, 3], wanted=True)
    assert slot.reuse([1, 2, 3], exact=False) == 2
    assert memory.held == [1, 2]


def test_an_exact_reuse_is_of_whole_slices_decoded_from_the_start(slot: Slot) -> None:
    prompt = list(range(2 * SLICE + 10))
    for start in range(0, len(prompt), SLICE):
        slot.decode(prompt[start : start + SLICE], wanted=False)
    assert slot.reuse(prompt, exact=True) == 2 * SLICE
    assert slot.reuse(prompt[: SLICE + 5], exact=True) == SLICE
    slot.decode(prompt[SLICE : SLICE + 5], wanted=False)
    slot.decode(prompt[SLICE + 5 : 2 * SLICE + 5], wanted=False)
    assert slot.reuse(prompt, exact=True) == SLICE


def test_a_model_that_cannot_forget_a_part_begins_afresh(slot: Slot, memory: Memory) -> None:
    memory.forgets_parts = False
    slot.decode([1, 2, 3], wanted=True)
    assert slot.reuse([1, 2, 4], exact=False) == 0
    assert slot.tokens == memory.held == []


def test_a_decode_that_is_interrupted_leaves_no_trace(slot: Slot, memory: Memory) -> None:
    slot.decode([1, 2], wanted=False)
    memory.interrupted = True
    assert slot.decode([3, 4], wanted=True) is None
    assert slot.tokens == memory.held == [1, 2]


def test_after_a_decode_that_fails_nothing_is_taken_for_granted(slot: Slot, memory: Memory) -> None:
    slot.decode([1, 2], wanted=False)
    memory.broken = True
    with pytest.raises(ModelError):
        slot.decode([3], wanted=True)
    assert slot.tokens == memory.held == []

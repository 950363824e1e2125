"""What a batch does while nobody wants anything: the next prompt finds the end of the last answer decoded, and room."""

from typing import Any

import pytest

pytest.importorskip("numpy")

import numpy as np

from callsmith.core.errors import ModelError
from callsmith.engines.decoding.batch import Batch
from callsmith.engines.decoding.kv_cache import Cache, SavedSequences
from callsmith.engines.port import Finished
from tests.engines.decoding.fake_batch import Decoder, FakeSequence, batch_of, finish, prompt


def test_when_nobody_wants_anything_the_end_of_an_answer_is_decoded_for_the_next_turn() -> None:
    first = FakeSequence(1, prompt(1, 100), 10)
    batch = batch_of(first)
    finish(batch)
    assert batch.busy
    assert batch.step()
    assert not batch.busy
    assert not batch.step()
    second = FakeSequence(2, [*first.tokens, *(10_000 + number for number in range(1, 11)), *prompt(2, 7)])
    batch.add(second)
    finish(batch)
    assert isinstance(second.ended[0], Finished)
    assert second.ended[0].usage.cached == 100 + 10


@pytest.mark.parametrize("broken", [False, True])
def test_who_comes_then_does_not_wait_for_it(broken: bool) -> None:
    first = FakeSequence(1, prompt(1, 100), 10)
    decoder = Decoder()
    batch = batch_of(first, decoder=decoder)
    finish(batch)
    if broken:
        decoder.broken = ModelError("no room")
    else:
        batch.wanted[0] = b"1"
    assert batch.step()
    assert batch.busy is not broken  # there may be time for it later
    [cells] = [cells for cells in decoder.cells.values() if cells]
    assert len(cells) == 100 + 9
    batch.wanted[0] = b"0"
    second = FakeSequence(2, [*first.tokens, *prompt(2, 7)])
    batch.add(second)
    finish(batch)
    assert second.whole


def test_a_model_that_cannot_take_it_back_does_not_decode_ahead() -> None:
    decoder = Decoder()
    batch = Batch(decoder, Cache(decoder, 3), 1, settles=False)
    batch.add(FakeSequence(1, prompt(1)))
    finish(batch)
    assert not batch.busy
    assert not batch.step()


def test_an_idle_batch_saves_what_is_in_the_way_of_the_next_prompt() -> None:
    class SavingDecoder(Decoder):
        def save(self, sequence: int) -> Any:
            return np.array(self.cells[sequence])

        def load(self, sequence: int, saved: Any) -> bool:
            assert not self.cells.get(sequence)
            self.cells[sequence] = saved.tolist()
            return True

    decoder = SavingDecoder()
    batch = Batch(decoder, Cache(decoder, 2, SavedSequences(decoder)), 2)
    jobs = [FakeSequence(number, prompt(number, 100), 3) for number in (1, 2)]
    for job in jobs:
        batch.add(job)
    finish(batch)
    assert all(job.whole for job in jobs)
    while batch.busy:
        assert batch.step()
    assert [len(slot.tokens) for slot in batch.cache._slots].count(0) == 1  # pyright: ignore[reportPrivateUsage]
    again = FakeSequence(1, prompt(1, 100), 3)
    batch.add(again)
    finish(batch)
    assert isinstance(end := again.ended[0], Finished) and end.usage.cached == 99

"""What is evicted from the KV cache is saved outside it, and comes back when a prompt begins like it."""

from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from callsmith.engines.decoding.kv_cache import Cache, SavedSequences, Slot
from tests.engines.decoding.test_kv_cache import Memory


@dataclass
class Copied:
    tokens: list[int]

    @property
    def nbytes(self) -> int:
        return len(self.tokens)


class SavingMemory(Memory):
    """One that lends copies of what its sequences hold."""

    slice = 256

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.is_torn = False  # what is free cannot be used for a copy
        self.saved = 0

    def save(self, sequence: int) -> Copied:
        self.saved += 1
        return Copied(self.cells[sequence][:])

    def load(self, sequence: int, saved: Copied) -> bool:
        assert not self.cells.get(sequence)
        if not self.is_torn:
            self.cells[sequence] = saved.tokens[:]
        return not self.is_torn


class Saving(Cache):
    """A cache that tells how much of a prompt was decoded."""

    def __init__(self, size: int = 1000, slots: int = 4, *, least_bytes: int = 10_000) -> None:
        self.memory = SavingMemory(size)
        super().__init__(self.memory, slots, SavedSequences(self.memory, least_bytes))

    def ask(self, tokens: Iterable[int], *, session: str = "", salt: str = "") -> int:
        """How many tokens of the prompt had to be decoded."""
        slot, prompt = self.begin(tokens, session=session, salt=salt)
        self.park(slot, [])
        return prompt

    def begin(self, tokens: Iterable[int], *, session: str = "", salt: str = "") -> tuple[Slot, int]:
        tokens = [*tokens]
        slot = self.take(tokens, session=session, salt=salt)
        missing = tokens[len(slot.tokens) :]
        assert self.evict_until_free(len(missing))
        self.memory.cells.setdefault(slot.number, []).extend(missing)
        self.grow(slot, missing)
        assert self.memory.cells[slot.number] == slot.tokens == tokens
        assert sum(len(slot.cells) for slot in self._slots) >= len(self._holders) <= self.memory.size
        return slot, len(missing)


def text(number: int, size: int = 400) -> list[int]:
    return [number * 1000 + place for place in range(size)]


@pytest.fixture
def cache() -> Saving:
    return Saving()


def test_what_was_evicted_for_room_comes_back(cache: Saving) -> None:
    assert [cache.ask(text(number)) for number in range(4)] == [400] * 4
    assert [cache.ask([*text(number), 7]) for number in (0, 1)] == [1, 1]


def test_what_was_evicted_for_its_slot_comes_back() -> None:
    cache = Saving(10_000, slots=2)
    assert [cache.ask(text(number)) for number in range(3)] == [400] * 3
    assert cache.ask([*text(0), 7]) == 1


def test_a_conversation_that_branches_off_leaves_the_saved_one_for_others(cache: Saving) -> None:
    for number in range(4):
        cache.ask(text(number))
    assert cache.ask([*text(0, 300), 7, 8]) == 2
    for number in (4, 5):
        cache.ask(text(number))
    assert cache.ask([*text(0), 7]) == 1


def test_nobody_gets_what_another_salt_has_saved(cache: Saving) -> None:
    for number in range(4):
        cache.ask(text(number), salt="a")
    assert cache.ask([*text(0), 7], salt="b") == 401


def test_idle_sequences_are_evicted_where_they_crowd_and_come_back() -> None:
    cache = Saving(10_000, slots=8)
    for number in range(6):
        cache.ask(text(number))
    assert len(cache._holders) <= 400 + 512
    assert [cache.ask([*text(number), 7]) for number in range(6)] == [1] * 6


def evict_early(cache: Saving) -> int:
    """How many sequences are evicted while nothing else is done."""
    count = 0
    while cache.evict_early():
        count += 1
    return count


def test_what_the_next_prompt_would_evict_is_saved_before_it_comes() -> None:
    cache = Saving(10_000, slots=3)
    assert [(cache.ask(text(number, 150)), evict_early(cache)) for number in range(4)] == [
        (150, 0),
        (150, 0),
        (150, 1),
        (150, 1),
    ]
    saved = cache.memory.saved
    assert cache.ask(text(9, 150)) == 150
    assert cache.memory.saved == saved == 2, "nothing had to be saved for it"
    assert [cache.ask([*text(number, 150), 7]) for number in range(4)] == [1] * 4


def test_what_crowds_is_saved_but_for_what_was_used_last() -> None:
    cache = Saving(10_000, slots=8)
    for slot, _ in [cache.begin(text(number, 700)) for number in range(2)]:  # both at a time
        cache.park(slot, [])
    assert evict_early(cache) == 1
    saved = cache.memory.saved
    assert cache.ask([*text(1, 700), 7]) == 1
    assert cache.memory.saved == saved, "it goes on where it is"
    assert cache.ask([*text(0, 700), 7]) == 1


def test_nothing_is_in_the_way_while_somebody_decodes_or_where_nothing_can_be_saved() -> None:
    cache = Saving(10_000, slots=2)
    cache.ask(text(0))
    slot, _ = cache.begin(text(1))
    assert cache.next_to_evict() is None
    cache.park(slot, [])
    assert cache.next_to_evict() is not None
    unsaved = Cache(SavingMemory(10_000), 1)
    taken = unsaved.take(text(0))
    unsaved.grow(taken, text(0))
    unsaved.park(taken, [])
    assert unsaved.next_to_evict() is None


def test_what_live_sequences_share_stays() -> None:
    cache = Saving(10_000, slots=8)
    cache.ask(text(0, 2000))
    one, decoded = cache.begin([*text(0, 1999), 7])
    other, more = cache.begin([*text(0, 1999), 8])
    assert (decoded, more) == (1, 1)
    assert len(set(one.cells) & set(other.cells)) == 1999
    assert len(cache._holders) <= 2001 + 512


def test_where_a_copy_cannot_be_put_back_the_prompt_is_read_anew(cache: Saving) -> None:
    for number in range(4):
        cache.ask(text(number))
    cache.memory.is_torn = True
    assert cache.ask([*text(0), 7]) == 401
    assert cache.ask([*text(0), 7, 8]) == 1


def test_where_there_is_no_memory_for_a_copy_requests_go_on_without_it(cache: Saving, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(sequence: int) -> Copied:
        raise MemoryError

    monkeypatch.setattr(cache.memory, "save", save)
    assert [cache.ask(text(number)) for number in range(4)] == [400] * 4
    assert cache.ask([*text(0), 7]) == 401


def test_beside_live_sequences_that_leave_no_room_nothing_is_put_back(cache: Saving) -> None:
    for number in range(3):
        cache.ask(text(number))
    cache.begin(text(3, 700))
    assert cache.take([*text(0, 100), 7]).tokens == []


def test_no_more_is_saved_than_the_memory_holds_unless_that_is_little() -> None:
    cache = Saving(1000, least_bytes=0)
    for number in range(8):
        cache.ask(text(number))
    kept = [number for number in range(8) if any(item.tokens == text(number) for item in cache._saved_of(""))]
    assert kept == [4, 5]
    roomy = Saving(1000)
    for number in range(8):
        roomy.ask(text(number))
    assert len(roomy._saved_of("")) == 6


def test_what_belongs_to_a_session_is_given_up_last() -> None:
    cache = Saving(1000, least_bytes=0)
    cache.ask(text(0), session="mine")
    for number in range(1, 8):
        cache.ask(text(number))
    assert cache.ask([*text(0), 7], session="mine") == 1


def test_short_sequences_and_beginnings_of_saved_ones_are_not_saved(cache: Saving) -> None:
    cache.ask(text(0, 30))
    cache.ask(text(1, 500))
    for number in (2, 3, 4):
        cache.ask(text(number))
    saved = [item.tokens for item in cache._saved_of("")]
    assert text(0, 30) not in saved
    assert text(1, 500) in saved


def test_a_prompt_is_retold_in_the_tokens_in_which_it_is_saved(cache: Saving) -> None:
    cache.ask(text(0))
    for number in range(1, 4):
        cache.ask(text(number))
    both = 9999  # the first two in one
    letters = {both: b"0 1 "}
    retold = cache.with_cached_tokens([both, *text(0)[2:], 5], lambda token: letters.get(token, b"%d " % token))
    assert retold == [*text(0), 5]


def test_what_is_saved_to_make_room_for_a_copy_does_not_push_out_that_copy() -> None:
    cache = Saving(1000, least_bytes=0)
    for number in range(4):
        cache.ask(text(number))
    assert cache.ask([*text(0), 7]) == 1
    assert len(cache._saved_of("")) == 2, "no more than the memory holds"

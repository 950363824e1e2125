"""What of earlier prompts can be used again, and when it has to go."""

from collections.abc import Iterable

import pytest

from callsmith.engines.decoding.kv_cache import Cache, Slot, align

SLICE = 4


class Memory:
    """A context that only remembers which tokens each sequence holds."""

    size = 20
    slice = SLICE

    def __init__(self) -> None:
        self.cells: dict[int, list[int]] = {}
        self.forgets_parts = True

    def forget(self, sequence: int, start: int) -> bool:
        if start and start < len(self.cells.get(sequence, [])) and not self.forgets_parts:
            return False
        self.cells[sequence] = self.cells.get(sequence, [])[:start]
        return True

    def copy(self, source: int, target: int) -> None:
        assert not self.cells.get(target)
        self.cells[target] = self.cells[source][:]


class Filled(Cache):
    """A cache whose memory is told what is decoded."""

    def __init__(self, memory: Memory, slots: int = 3) -> None:
        super().__init__(memory, slots)
        self.memory = memory

    def decode(self, slot: Slot, tokens: Iterable[int]) -> None:
        tokens = [*tokens]
        self.memory.cells.setdefault(slot.number, []).extend(tokens)
        self.grow(slot, tokens)

    def answer(self, *tokens: int, exact: bool = False, session: str = "") -> Slot:
        """Take a slot, decode what is missing, park it."""
        slot = self.take([*tokens], exact=exact, session=session)
        self.decode(slot, tokens[len(slot.tokens) :])
        self.park(slot, [])
        assert self.memory.cells[slot.number] == slot.tokens == [*tokens]
        return slot


@pytest.fixture
def cache() -> Filled:
    return Filled(Memory())


def test_the_longest_common_beginning_is_taken_over_and_the_other_stays_as_it_was(cache: Filled) -> None:
    first = cache.answer(1, 2, 3, 4)
    slot = cache.take([1, 2, 9, 9])
    assert slot is not first
    assert slot.tokens == cache.memory.cells[slot.number] == [1, 2]
    assert first.tokens == cache.memory.cells[first.number] == [1, 2, 3, 4]


def test_a_sequence_that_goes_on_is_continued_in_place(cache: Filled) -> None:
    first = cache.answer(1, 2, 3)
    assert cache.take([1, 2, 3, 4]) is first
    assert first.tokens == [1, 2, 3]


def test_the_last_token_of_a_prompt_is_always_decoded(cache: Filled) -> None:
    cache.answer(1, 2, 3)
    assert cache.take([1, 2, 3]).tokens == [1, 2]


def test_a_live_sequence_lends_its_beginning_too(cache: Filled) -> None:
    live = cache.take([1, 2, 3, 4])
    cache.decode(live, [1, 2, 3])
    other = cache.take([1, 2, 3, 9])
    assert other is not live
    assert other.tokens == live.tokens == [1, 2, 3]


def test_shared_cells_count_once(cache: Filled) -> None:
    cache.answer(1, 2, 3, 4)
    assert cache.free == 16
    other = cache.take([1, 2, 9])
    assert cache.free == 16
    cache.decode(other, [9])
    assert cache.free == 15
    cache.drop(other)
    assert cache.free == 16


def test_the_longest_unused_goes_first_when_cells_are_needed(cache: Filled) -> None:
    old, new = cache.answer(1, 2, 3, 4), cache.answer(5, 6, 7, 8)
    cache.answer(1, 2, 3, 4, 5)  # continues the old one
    assert cache.evict_until_free(12)
    assert new.tokens == []
    assert old.tokens == [1, 2, 3, 4, 5]


def test_live_sequences_are_never_dropped_for_room(cache: Filled) -> None:
    live = cache.take([1, 2, 3])
    cache.decode(live, [1, 2, 3])
    assert not cache.evict_until_free(18)
    assert live.tokens == [1, 2, 3]


def test_when_all_slots_are_in_use_the_longest_unused_is_taken(cache: Filled) -> None:
    first, *_ = cache.answer(1, 1), cache.answer(2, 2), cache.answer(3, 3)
    assert cache.take([4, 4]) is first
    assert first.tokens == []


def test_what_fits_is_counted_with_what_is_shared(cache: Filled) -> None:
    live = cache.take(list(range(10)))
    cache.decode(live, range(10))
    cache.answer(*range(50, 60))
    assert cache.fits(list(range(70, 78)), 2)  # without the parked one
    assert not cache.fits(list(range(70, 78)), 3)
    assert cache.fits([*range(9), *range(70, 78)], 2)
    assert cache.fits([*range(50, 60)], 0)


def test_an_exact_reuse_is_of_whole_slices_decoded_from_the_start_with_nothing_else_around(cache: Filled) -> None:
    prompt = list(range(2 * SLICE + 2))
    slot = cache.take(prompt, exact=True)
    for start in range(0, len(prompt), SLICE):
        cache.decode(slot, prompt[start : start + SLICE])
    cache.park(slot, [])
    again = cache.take(prompt, exact=True)
    assert again.tokens == prompt[: 2 * SLICE]
    cache.park(again, [])
    cache.answer(7, 7)
    assert cache.take(prompt, exact=True).tokens == []
    assert cache.free == 20


def test_a_model_that_cannot_forget_a_part_begins_afresh_but_goes_on(cache: Filled) -> None:
    cache.memory.forgets_parts = False
    cache.answer(1, 2, 3)
    assert cache.take([1, 2, 3, 4]).tokens == [1, 2, 3]
    other = cache.take([1, 2, 4])
    assert other.tokens == cache.memory.cells[other.number] == []


def test_what_belongs_to_a_session_goes_last(cache: Filled) -> None:
    known = cache.answer(1, 1, 1, session="s")
    cache.answer(2, 2), cache.answer(3, 3), cache.answer(4, 4)
    assert known.tokens == [1, 1, 1]
    cache.evict_until_free(17)
    assert known.tokens == [1, 1, 1]
    assert cache.evict_until_free(18)
    assert known.tokens == []


def test_only_where_a_session_got_to_is_kept_for_it(cache: Filled) -> None:
    first = cache.answer(1, 2, 3, 4, session="s")
    second = cache.answer(1, 2, 9, 9, session="s")
    cache.evict_until_free(16)
    assert (first.tokens, second.tokens) == ([], [1, 2, 9, 9])


def test_nobody_else_goes_on_in_the_place_of_a_session(cache: Filled) -> None:
    known = cache.answer(1, 2, 3, session="s")
    for session in ("", "t"):
        other = cache.answer(1, 2, 3, 4, session=session)
        assert other is not known
        assert known.tokens == [1, 2, 3]
    assert cache.take([1, 2, 3, 7], session="s") is known


def test_of_two_alike_a_session_takes_its_own() -> None:
    for number in range(2):
        cache = Filled(Memory())
        slots = [cache.answer(1, 2, session=session) for session in "st"]
        assert cache.take([1, 2, 5], session="st"[number]) is slots[number]


WORDS = {1: b"{", 2: b'"a', 3: b'"', 4: b'{"', 5: b'a"', 6: b"}", 7: b"x", 8: b""}


@pytest.mark.parametrize(
    ("cells", "wanted", "known"),
    [
        ([1, 2, 3, 6, 7], [4, 5, 6, 7, 7], (5, 4)),  # {"a"}x in tokens of its own
        ([1, 2, 3, 7], [4, 5, 6, 7], (3, 2)),
        ([1, 2], [4, 5, 6], (0, 0)),  # no token ends there in both
        ([1, 2, 3], [4, 5], (0, 0)),  # the last one is to be decoded
        ([7, 8, 7], [7, 7, 7], (1, 1)),  # what says nothing is not the same as nothing
        ([7, 7], [7, 7, 7], (2, 2)),
        ([], [7], (0, 0)),
    ],
)
def test_the_same_text_in_other_tokens_is_known_again(cells: list[int], wanted: list[int], known: tuple[int, int]) -> None:
    assert align(cells, wanted, WORDS.__getitem__) == known


def test_a_prompt_is_retold_in_the_tokens_in_which_it_is_held(cache: Filled) -> None:
    cache.answer(1, 2, 3, 6)
    assert cache.with_cached_tokens([4, 5, 6, 7, 7], WORDS.__getitem__) == [1, 2, 3, 6, 7, 7]
    assert cache.with_cached_tokens([7, 4, 5], WORDS.__getitem__) == [7, 4, 5]
    cache.answer(4, 5, 6, 7)  # as the tokenizer has it is as good
    assert cache.with_cached_tokens([4, 5, 6, 7, 7], WORDS.__getitem__) == [4, 5, 6, 7, 7]


def test_what_was_said_in_the_end_can_be_decoded_later_while_there_is_room(cache: Filled) -> None:
    slot = cache.take([1, 2])
    cache.decode(slot, [1, 2])
    cache.park(slot, [3, 4])
    assert cache.pending_tail() is slot
    cache.take([1, 2, 5])  # it goes on otherwise
    assert cache.pending_tail() is None
    cache.decode(other := cache.take([9]), range(30, 46))
    cache.park(other, [5, 6, 7])
    assert cache.free < 3
    assert cache.pending_tail() is None


def test_nothing_is_reused_across_salts(cache: Filled) -> None:
    cache.answer(1, 2, 3, 4)
    assert cache.take([1, 2, 3, 4, 5], salt="other").tokens == []
    assert cache.with_cached_tokens([4, 5, 6, 7, 7], WORDS.__getitem__, "other") == [4, 5, 6, 7, 7]
    assert cache.take([1, 2, 3, 4, 5]).tokens == [1, 2, 3, 4]


def test_with_a_seed_nothing_is_reused_across_salts(cache: Filled) -> None:
    prompt = list(range(SLICE + 2))
    for salt, reused in (("a", 0), ("a", SLICE), ("b", 0)):
        slot = cache.take(prompt, exact=True, salt=salt)
        assert len(slot.tokens) == reused
        for start in range(len(slot.tokens), len(prompt), SLICE):
            cache.decode(slot, prompt[start : start + SLICE])
        cache.park(slot, [])


def test_a_conversation_of_another_salt_stays_known(cache: Filled) -> None:
    known = cache.answer(1, 2, 3, session="s")
    cache.park(cache.take([7, 8], session="s", salt="other"), [])
    assert known.session == "s"

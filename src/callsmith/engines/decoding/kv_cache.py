"""The KV cache: which tokens each sequence holds, which cells are shared, and which prefix a new prompt can reuse.

A finished sequence stays cached ("parked") until its cells are needed; those of known conversations are evicted last. A prompt
that begins like a cached sequence reuses that prefix: the cells are shared, nothing is computed or copied. Callers who must not
learn of each other's prompts have different salts: nothing is reused across salts.

Where the memory can copy sequences out, those that are evicted are saved, and copied back when a prompt begins like them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Protocol

_SAVED_BYTES: Final = 512 * 2**20  # that may be saved in any case
_LEAST_SAVED: Final = 64  # tokens; fewer are decoded again as soon
_IDLE_CELLS: Final = 512  # of parked slots, that may stay while others are decoded


class Memory(Protocol):
    """The KV cells of a context: `size` of them. At most `slice` tokens are decoded at once."""

    size: int
    slice: int

    def forget(self, sequence: int, start: int) -> bool:
        """Drop a sequence from a position on. False: this kind of model cannot forget a part."""
        ...

    def copy(self, source: int, target: int) -> None:
        """Let an empty sequence share all cells of another."""
        ...


class SavingMemory(Protocol):
    """`size` KV cells that can be copied out of the memory and back in."""

    size: int

    def save(self, sequence: int) -> Any:
        """What the sequence holds, as a copy with a size in `nbytes`."""
        ...

    def load(self, sequence: int, saved: Any) -> bool:
        """Fill an empty sequence with such a copy. False: that cannot be done now."""
        ...


class Slot:
    """A sequence of the KV memory and its tokens. `cells` numbers the cell of each token, so that shared ones count once.

    `session` is the conversation it belongs to, if known, `salt` who may reuse it. `tail` are the last tokens of a parked answer,
    not decoded yet.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.tokens: list[int] = []
        self.cells: list[int] = []
        self.tail: list[int] = []
        self.session = ""
        self.salt = ""
        self.live = False
        self.whole = 0  # how many tokens were decoded in whole slices from the start


@dataclass(slots=True, eq=False)
class SavedSequence:
    """A sequence outside the memory."""

    tokens: list[int]
    session: str
    salt: str
    copy: Any


class SavedSequences:
    """The sequences that were copied out of a memory, the least recently used first: as many tokens as it has cells, or more."""

    def __init__(self, memory: SavingMemory, least_bytes: int = _SAVED_BYTES) -> None:
        self._memory = memory
        self._least = least_bytes
        self._kept: list[SavedSequence] = []

    def of(self, salt: str) -> list[SavedSequence]:
        """Those that may be reused with this salt."""
        return [item for item in self._kept if item.salt == salt]

    def save(self, slot: Slot) -> None:
        """Keep a copy of the slot's sequence, unless it is short, or the beginning of one that is kept."""
        known = [(item, count_shared(item.tokens, slot.tokens, len(slot.tokens))) for item in self.of(slot.salt)]
        if len(slot.tokens) < _LEAST_SAVED or any(common == len(slot.tokens) for _, common in known):
            return
        try:
            state = self._memory.save(slot.number)
        except MemoryError:
            return  # then it is decoded again where it is wanted
        for saved, common in known:
            if common == len(saved.tokens) and saved.session in ("", slot.session):
                self._kept.remove(saved)  # this one goes on where that one ended
        self._kept.append(SavedSequence(slot.tokens[:], slot.session, slot.salt, state))
        while self._is_full:
            self._kept.remove(min(self._kept, key=lambda saved: saved.session != ""))

    @property
    def _is_full(self) -> bool:
        tokens = sum(len(item.tokens) for item in self._kept)
        return tokens > self._memory.size and sum(item.copy.nbytes for item in self._kept) > self._least

    def longest(self, tokens: list[int], session: str, salt: str) -> tuple[SavedSequence | None, int]:
        """The one with the longest common prefix, among equals the session's own."""
        candidates = [
            (count_shared(item.tokens, tokens, len(tokens) - 1), item.session == session, item) for item in self.of(salt)
        ]
        common, _, best = max(candidates, key=lambda candidate: candidate[:2], default=(0, False, None))
        return best, common

    def load(self, saved: SavedSequence, slot: Slot, *, keep: bool) -> bool:
        """Copy it into an empty slot; if it is not to be kept besides, it is gone here."""
        if not self._memory.load(slot.number, saved.copy):
            return False
        if saved in self._kept:  # what was evicted for it may have pushed it out
            self._kept.remove(saved)
        if keep:
            self._kept.append(saved)
        return True


class Cache:
    """The slots of one context. A live one belongs to a request; the others are parked, or empty.

    With `saved`, sequences that are evicted are saved, and those that are idle are evicted soon: their cells slow decoding down.
    """

    def __init__(self, memory: Memory, slots: int, saved: SavedSequences | None = None) -> None:
        self._memory = memory
        self._saved = saved
        self._slots = [Slot(number) for number in range(slots)]  # parked ones: the least recently used first
        self._holders: dict[int, int] = {}  # cell: how many slots hold it
        self._next = 0
        self._sole: Slot | None = None  # the one slot that was decoded since the memory was empty

    @property
    def free(self) -> int:
        """How many cells are free."""
        return self._memory.size - len(self._holders)

    def fits(self, tokens: list[int], more: int, salt: str = "") -> bool:
        """Whether these tokens and `more` cells fit beside the live slots, if need be after evicting all parked ones."""
        source, common = self._longest(tokens, salt=salt)
        bound = self._live_cells()
        bound.update(source.cells[:common] if source else ())
        return len(bound) + len(tokens) - common + more <= self._memory.size

    def with_cached_tokens(self, tokens: list[int], token_bytes: Callable[[int], bytes], salt: str = "") -> list[int]:
        """The same text with its prefix in the tokens that are cached, where those differ from the tokenizer's.

        A model may write its answer in other tokens than the tokenizer finds in the text. The two are joined where a token ends
        in both.
        """
        held = [item.tokens for item in chain(self._of(salt), self._saved_of(salt))]
        best, most = tokens, max((count_shared(item, tokens, len(tokens) - 1) for item in held), default=0)
        for item in held:
            cached, known = align(item, tokens, token_bytes)
            if known > most:
                best, most = [*item[:cached], *tokens[known:]], known
        return best

    def take(self, tokens: list[int], *, exact: bool = False, session: str = "", salt: str = "") -> Slot:
        """A live slot that reuses the longest cached prefix of these tokens, at most all but the last one.

        `exact`, for seeds, reuses only what is bit for bit as if decoded anew: rounding depends on how many tokens are decoded at
        once and on what else is in the memory. So only whole slices are reused, and all other slots are evicted.
        """
        slot = self._take_exact(tokens, salt) if exact else self._take(tokens, session, salt)
        for other in chain((item for item in self._of(salt) if not item.live), self._saved_of(salt)):
            if other.session == session:
                other.session = ""  # the conversation continues in the new slot
        slot.live, slot.session, slot.salt, slot.tail = True, session, salt, []
        if self._saved:
            self._evict_idle()
        return slot

    def grow(self, slot: Slot, tokens: list[int]) -> None:
        """Append tokens that were decoded."""
        if not self._holders:
            self._sole = slot
        elif self._sole is not slot:
            self._sole = None
        if slot.whole == len(slot.tokens) and len(tokens) == self._memory.slice:
            slot.whole += len(tokens)
        self._hold(slot, tokens)

    def _hold(self, slot: Slot, tokens: list[int]) -> None:
        slot.tokens += tokens
        cells = range(self._next, self._next + len(tokens))
        self._next += len(tokens)
        slot.cells += cells
        self._holders.update(dict.fromkeys(cells, 1))

    def restore(self, slot: Slot) -> None:
        """Remove what an aborted decode may have left behind the slot's tokens."""
        self._cut(slot, len(slot.tokens))

    def park(self, slot: Slot, tail: list[int]) -> None:
        """The request has finished: its slot stays cached. `tail` are tokens of the answer that were never decoded."""
        slot.live, slot.tail = False, tail
        self._slots.remove(slot)
        self._slots.append(slot)

    def drop(self, slot: Slot) -> None:
        """Free all cells of the slot."""
        slot.live = False
        self._cut(slot, 0)

    def evict_until_free(self, cells: int) -> bool:
        """Evict parked slots until so many cells are free; false if that is not enough."""
        for slot in self._list_parked():
            if self.free >= cells:
                break
            self._evict(slot)
        return self.free >= cells

    def pending_tail(self) -> Slot | None:
        """A parked slot with a tail to decode for which enough cells are free."""
        return next((slot for slot in reversed(self._slots) if slot.tail and len(slot.tail) <= self.free), None)

    def next_to_evict(self) -> Slot | None:
        """The parked slot that the next prompt would have to evict first, if it was not the last to be used; None while anything
        is decoded. Evicted early, it is saved while nobody waits for their first token."""
        if self._saved is None or any(slot.live for slot in self._slots):
            return None
        last = self._slots[-1]
        idle = len(self._holders) - len(last.cells)
        if idle <= _IDLE_CELLS and not all(slot.tokens for slot in self._slots):
            return None
        return next((slot for slot in self._list_parked() if slot.tokens and slot is not last), None)

    def evict_early(self) -> bool:
        """Evict the slot that is `next_to_evict`; false if there is none."""
        slot = self.next_to_evict()
        if slot:
            self._evict(slot)
        return slot is not None

    def _list_parked(self) -> list[Slot]:
        """The slots that are not live, in the order of eviction: without a session first, the least recently used first."""
        return sorted((slot for slot in self._slots if not slot.live), key=lambda slot: slot.session != "")

    def _of(self, salt: str) -> list[Slot]:
        return [slot for slot in self._slots if slot.salt == salt]

    def _live_cells(self) -> set[int]:
        return {cell for slot in self._slots if slot.live for cell in slot.cells}

    def _saved_of(self, salt: str) -> Sequence[SavedSequence]:
        return self._saved.of(salt) if self._saved else ()

    def _take(self, tokens: list[int], session: str, salt: str) -> Slot:
        if slot := self._load(tokens, session, salt):
            return slot
        source, common = self._longest(tokens, session, salt)
        if source is None:
            return self._empty()
        if not source.live and source.session in ("", session) and common >= len(source.tokens) - 1:
            self._cut(source, common)
            return source
        target = self._empty(keep=source)
        if target is source:  # it is the only parked one
            self._cut(source, common)
            return source
        self._memory.copy(source.number, target.number)
        target.tokens, target.cells, target.whole = source.tokens[:], source.cells[:], source.whole
        for cell in target.cells:
            self._holders[cell] += 1
        self._cut(target, common)
        return target

    def _load(self, tokens: list[int], session: str, salt: str) -> Slot | None:
        """A slot with a saved sequence whose common prefix is longer, if it is worth it and there is room."""
        best, known = self._saved.longest(tokens, session, salt) if self._saved else (None, 0)
        if self._saved is None or best is None or known < self._longest(tokens, session, salt)[1] + _LEAST_SAVED:
            return None
        if len(self._live_cells()) + len(best.tokens) > self._memory.size:
            return None
        slot = self._empty()
        self.evict_until_free(len(best.tokens))
        goes_on = known >= len(best.tokens) - 1 and best.session in ("", session)
        if not self._saved.load(best, slot, keep=not goes_on):
            return None
        self._hold(slot, best.tokens)
        self._cut(slot, known)
        return slot

    def _evict_idle(self) -> None:
        """Evict the slots that are not used, up to some cells: what is decoded is compared with them too."""
        live = self._live_cells()
        for slot in self._list_parked():
            if len(self._holders) - len(live) <= _IDLE_CELLS:
                return
            if not live.issuperset(slot.cells):
                self._evict(slot)

    def _evict(self, slot: Slot) -> None:
        if self._saved and slot.tokens:
            self._saved.save(slot)
        self._cut(slot, 0)

    def _take_exact(self, tokens: list[int], salt: str) -> Slot:
        reused = self._sole
        for slot in self._slots:
            if not slot.live and slot is not reused:
                self._evict(slot)
        if reused is None or reused.live:
            return self._empty()
        common = min(count_shared(reused.tokens, tokens, len(tokens) - 1), reused.whole) if reused.salt == salt else 0
        self._cut(reused, common // self._memory.slice * self._memory.slice)
        return reused

    def _longest(self, tokens: list[int], session: str = "", salt: str = "") -> tuple[Slot | None, int]:
        """The slot with the longest common prefix; among equals the session's own, a parked one, the most recently used."""
        best, most = None, 0
        for slot in self._of(salt):
            common = count_shared(slot.tokens, tokens, len(tokens) - 1)  # the last one must be decoded: its logits are wanted
            if common > most or (best and common == most > 0 and _rank(slot, session) >= _rank(best, session)):
                best, most = slot, common
        return best, most

    def _empty(self, keep: Slot | None = None) -> Slot:
        """An empty slot; if there is none, the parked one to evict first, `keep` only if it is the only one."""
        parked = self._list_parked()
        slot = next((slot for slot in parked if not slot.tokens), None)
        slot = slot or next((slot for slot in parked if slot is not keep), None) or parked[0]
        if slot is not keep:
            self._evict(slot)
        return slot

    def _cut(self, slot: Slot, size: int) -> None:
        if not self._memory.forget(slot.number, size) and size:
            size = 0
            self._memory.forget(slot.number, 0)
        for cell in slot.cells[size:]:
            if self._holders[cell] == 1:
                del self._holders[cell]
            else:
                self._holders[cell] -= 1
        del slot.tokens[size:]
        del slot.cells[size:]
        slot.tail = []
        slot.whole = min(slot.whole, size // self._memory.slice * self._memory.slice)


def _rank(slot: Slot, session: str) -> tuple[bool, bool, int]:
    return slot.session == session, not slot.live, -len(slot.tokens)


def count_shared(cached: list[int], wanted: list[int], most: int) -> int:
    """The length of the common prefix, at most `most`."""
    low, high = 0, min(len(cached), len(wanted), most)
    while low < high:  # comparing slices is quick, token by token is not
        middle = (low + high + 1) // 2
        if cached[low:middle] == wanted[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def align(cached: list[int], wanted: list[int], token_bytes: Callable[[int], bytes]) -> tuple[int, int]:
    """How many tokens the common text prefix has in each list, up to the last place where a token ends in both.

    The last token wanted is left out.
    """
    most = len(wanted) - 1
    one = two = count_shared(cached, wanted, most)
    best = one, two
    left, right = b"", b""  # the text that only one of them has so far
    while True:
        if not left and not right:
            best = one, two
        if not left and one < len(cached):
            more = token_bytes(cached[one])
            left, one = more, one + 1
        elif not right and left and two < most:
            more = token_bytes(wanted[two])
            right, two = more, two + 1
        else:
            return best
        size = min(len(left), len(right))
        if not more or left[:size] != right[:size]:
            return best
        left, right = left[size:], right[size:]

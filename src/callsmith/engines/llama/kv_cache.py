"""What the model's memory holds: whose tokens, which of them are shared, and what a new prompt can take over.

A finished answer stays parked here until its cells are needed; those of known conversations longest. A prompt that begins like
a held sequence takes that beginning over: the cells are shared, nothing is computed or copied.
"""

from collections.abc import Callable
from typing import Protocol


class Memory(Protocol):
    """The cells of a context. `size` is how many there are, `slice` how many tokens are decoded at once at most."""

    size: int
    slice: int

    def forget(self, sequence: int, start: int) -> bool:
        """Drop a sequence from a position on. False: this kind of model cannot forget a part."""
        ...

    def copy(self, source: int, target: int) -> None:
        """Let an empty sequence share all cells of another."""
        ...


class Slot:
    """A sequence of the memory, and the tokens it holds. `cells` names the cell of each, for counting shared ones once.

    `session` is the conversation it belongs to, if that is known; `tail`, what a parked answer has said besides its tokens.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.tokens: list[int] = []
        self.cells: list[int] = []
        self.tail: list[int] = []
        self.session = ""
        self.live = False
        self.whole = 0  # how many tokens were decoded in whole slices from the start


class Cache:
    """The slots of one context. A live one belongs to an answer in the making; the others are parked, or empty."""

    def __init__(self, memory: Memory, slots: int) -> None:
        self._memory = memory
        self._slots = [Slot(number) for number in range(slots)]  # parked ones in the order in which they were used
        self._holders: dict[int, int] = {}  # cell: how many slots hold it
        self._next = 0
        self._sole: Slot | None = None  # the one slot that was decoded since the memory was empty

    @property
    def free(self) -> int:
        """The cells nobody holds."""
        return self._memory.size - len(self._holders)

    def fits(self, tokens: list[int], more: int) -> bool:
        """Whether these tokens and as many more find room beside the live slots, if need be without any parked ones."""
        source, common = self._longest(tokens)
        bound = {cell for slot in self._slots if slot.live for cell in slot.cells}
        bound.update(source.cells[:common] if source else ())
        return len(bound) + len(tokens) - common + more <= self._memory.size

    def retold(self, tokens: list[int], said: Callable[[int], bytes]) -> list[int]:
        """The same text, its beginning in the tokens in which it is held.

        A model may spell its answer in other tokens than the tokenizer finds in it. They go over into the tokenizer's where both
        have a token end.
        """
        best, most = tokens, self._longest(tokens)[1]
        for slot in self._slots:
            held, known = aligned(slot.tokens, tokens, said)
            if known > most:
                best, most = [*slot.tokens[:held], *tokens[known:]], known
        return best

    def take(self, tokens: list[int], *, exact: bool = False, session: str = "") -> Slot:
        """A live slot that holds as much of the beginning of these tokens as is known, all but the last.

        `exact` takes over only what is bit for bit as if decoded afresh, for seeds: the rounding depends on how many tokens are
        decoded at once and on what else is in the memory. So that is whole slices, and all else is dropped.
        """
        slot = self._take_exactly(tokens) if exact else self._take(tokens, session)
        for other in self._slots:
            if other.session == session and not other.live:
                other.session = ""  # the conversation goes on elsewhere
        slot.live, slot.session, slot.tail = True, session, []
        return slot

    def grow(self, slot: Slot, tokens: list[int]) -> None:
        """These tokens were decoded behind the slot's own."""
        if not self._holders:
            self._sole = slot
        elif self._sole is not slot:
            self._sole = None
        if slot.whole == len(slot.tokens) and len(tokens) == self._memory.slice:
            slot.whole += len(tokens)
        slot.tokens += tokens
        cells = range(self._next, self._next + len(tokens))
        self._next += len(tokens)
        slot.cells += cells
        self._holders.update(dict.fromkeys(cells, 1))

    def restore(self, slot: Slot) -> None:
        """A decode was interrupted: forget what it may have left behind the slot's tokens."""
        self._cut(slot, len(slot.tokens))

    def park(self, slot: Slot, tail: list[int]) -> None:
        """The answer is over; what it held may be of use. `tail` it has said as well, but nobody has decoded it."""
        slot.live, slot.tail = False, tail
        self._slots.remove(slot)
        self._slots.append(slot)

    def drop(self, slot: Slot) -> None:
        """Forget all the slot holds."""
        slot.live = False
        self._cut(slot, 0)

    def make_room(self, cells: int) -> bool:
        """Drop parked slots until so many cells are free."""
        for slot in self._parked():
            if self.free >= cells:
                break
            self._cut(slot, 0)
        return self.free >= cells

    def unsettled(self) -> Slot | None:
        """A parked slot with something to decode behind it, for which there is room."""
        return next((slot for slot in reversed(self._slots) if slot.tail and len(slot.tail) <= self.free), None)

    def _parked(self) -> list[Slot]:
        """The slots that are not live, in the order in which they go: without a session first, the longest unused first."""
        return sorted((slot for slot in self._slots if not slot.live), key=lambda slot: slot.session != "")

    def _take(self, tokens: list[int], session: str) -> Slot:
        source, common = self._longest(tokens, session)
        if source is None:
            return self._empty()
        if not source.live and source.session in ("", session) and common >= len(source.tokens) - 1:
            self._cut(source, common)
            return source
        target = self._empty(keep=source)
        if target is source:  # nothing else is parked
            self._cut(source, common)
            return source
        self._memory.copy(source.number, target.number)
        target.tokens, target.cells, target.whole = source.tokens[:], source.cells[:], source.whole
        for cell in target.cells:
            self._holders[cell] += 1
        self._cut(target, common)
        return target

    def _take_exactly(self, tokens: list[int]) -> Slot:
        kept = self._sole
        for slot in self._slots:
            if not slot.live and slot is not kept:
                self._cut(slot, 0)
        if kept is None or kept.live:
            return self._empty()
        common = min(shared(kept.tokens, tokens, len(tokens) - 1), kept.whole)
        self._cut(kept, common // self._memory.slice * self._memory.slice)
        return kept

    def _longest(self, tokens: list[int], session: str = "") -> tuple[Slot | None, int]:
        """The slot that has most in common with the tokens; of those alike, the session's own, one that is parked, used last."""
        best, most = None, 0
        for slot in self._slots:
            common = shared(slot.tokens, tokens, len(tokens) - 1)  # the last one must be decoded: its logits are wanted
            if common > most or (best and common == most > 0 and _rank(slot, session) >= _rank(best, session)):
                best, most = slot, common
        return best, most

    def _empty(self, keep: Slot | None = None) -> Slot:
        """A slot with nothing in it: an empty one, else the parked one that goes first, `keep` only if it is alone."""
        parked = self._parked()
        slot = next((slot for slot in parked if not slot.tokens), None)
        slot = slot or next((slot for slot in parked if slot is not keep), None) or parked[0]
        if slot is not keep:
            self._cut(slot, 0)
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


def shared(held: list[int], wanted: list[int], most: int) -> int:
    """How many tokens both begin with, at most `most`."""
    low, high = 0, min(len(held), len(wanted), most)
    while low < high:  # comparing slices is quick, token by token is not
        middle = (low + high + 1) // 2
        if held[low:middle] == wanted[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def aligned(held: list[int], wanted: list[int], said: Callable[[int], bytes]) -> tuple[int, int]:
    """Of the text both begin with, how many tokens it has in each, up to the last place where both have a token end.

    The last token wanted is left out.
    """
    most = len(wanted) - 1
    one = two = shared(held, wanted, most)
    best = one, two
    left, right = b"", b""  # what one of them has said and the other has not
    while True:
        if not left and not right:
            best = one, two
        if not left and one < len(held):
            more = said(held[one])
            left, one = more, one + 1
        elif not right and left and two < most:
            more = said(wanted[two])
            right, two = more, two + 1
        else:
            return best
        size = min(len(left), len(right))
        if not more or left[:size] != right[:size]:
            return best
        left, right = left[size:], right[size:]

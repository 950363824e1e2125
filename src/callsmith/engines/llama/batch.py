"""Many answers at once: all that are live go forward in one decode per step, each with its own grammar and sampler.

Who comes is admitted in the order of coming, as soon as there is room. A step takes the next tokens of all who speak, and of the
prompts that are still to be read only so many that those who speak do not stall. Answers that begin alike read their common
beginning once. When the cells run out, parked sequences go first; then the youngest answer waits and is read again later.

The end of a call is often forced, and so is never decoded for the answer's sake. That is done when nobody wants anything, for the
turn that follows when the tool has run.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from callsmith.core.errors import ModelError
from callsmith.core.values import Usage
from callsmith.engines.llama.gguf import Flag, Logits, new_flag
from callsmith.engines.llama.kv_cache import Cache, Memory, Slot, shared
from callsmith.engines.port import Finished, Piece

BESIDE: Final = 64  # tokens of prompts a step takes while others speak: they wait no longer than for this
_MARGIN: Final = 256  # cells that must be free for an answer to begin
_WORTH: Final = 32  # tokens in common that are worth waiting for


class Decoder(Memory, Protocol):
    """A context: its memory, and the computing."""

    def decode(self, rows: Iterable[tuple[int, int, int, bool]]) -> bool: ...
    def logits(self, row: int) -> Logits: ...
    def interrupt_by(self, flag: Flag) -> None: ...


class Spoken(Protocol):
    """An answer in the making; `pending` is what has to be decoded before its next choice."""

    pending: list[int]
    finished: Literal["stop", "length"] | None

    @property
    def size(self) -> int: ...
    @property
    def matched(self) -> str: ...
    def begin(self) -> list[Piece]: ...
    def advance(self, logits: Logits) -> list[Piece]: ...


class Job(Protocol):
    """An answer somebody waits for. Whatever its methods raise is the end of this answer, and of no other.

    `session`: the conversation it belongs to, or empty. `exact`: the same every time, if nobody else is live. `flag` is set when
    nobody waits any more.
    """

    tokens: list[int]
    room: int
    flag: Flag

    @property
    def session(self) -> str: ...
    @property
    def exact(self) -> bool: ...
    @property
    def given_up(self) -> bool: ...
    @property
    def ready(self) -> bool:
        """Whether `begin` will not keep anybody waiting."""
        ...

    def begin(self) -> Spoken: ...
    def choosing(self) -> None:
        """The first token is about to be chosen."""
        ...

    def post(self, pieces: list[Piece]) -> None: ...
    def end(self, end: Finished | BaseException | None) -> None:
        """None: it was given up."""
        ...


@dataclass(slots=True, eq=False)
class Member:
    """One answer among the others. `rest` is what has to be decoded before its next choice."""

    job: Job
    rest: list[int]
    slot: Slot | None = None
    said: Spoken | None = None
    speaking: bool = False  # the prompt is read
    cached: int | None = None
    after: "tuple[Member, int] | None" = None  # waits until that one has read so many tokens that are its own as well

    @property
    def usage(self) -> Usage:
        return Usage(len(self.job.tokens), self.said.size if self.said else 0, self.cached or 0)


@dataclass(slots=True)
class Batch:
    """The answers that are live, and those that wait for it. `settles`: whether ends are decoded when there is nothing to do."""

    decoder: Decoder
    cache: Cache
    most: int
    settles: bool = True
    live: list[Member] = field(default_factory=list[Member])  # in the order of coming
    waiting: deque[Member] = field(default_factory=deque[Member])
    steps: int = 0  # decodes for answers
    stop: Flag = field(default_factory=new_flag)  # set: whatever is being decoded ends at once
    wanted: Flag = field(default_factory=new_flag)  # set: somebody comes, and there is something better to do than to settle

    @property
    def size(self) -> int:
        """How many answers are not finished."""
        return len(self.live) + len(self.waiting)

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.size or (self.settles and self.cache.unsettled()))

    def add(self, job: Job) -> None:
        """Somebody asks."""
        self.waiting.append(Member(job, list(job.tokens)))

    def step(self) -> bool:
        """One decode, and a token for all who speak. False if there is nothing to decode: all wait for their grammars."""
        self._part_with_given_up()
        if not self.size:
            return self._settle()
        self._admit()
        for member in [*self.live]:
            self._prepare(member)
        shares = self._shares()
        while shares and not self.cache.make_room(sum(shares.values())):
            self._set_back(self.live[-1])
            shares = self._shares()
        if not shares:
            return False
        self._decode(shares)
        return True

    def fail(self, error: BaseException) -> None:
        """End all there is."""
        for member in [*self.live, *self.waiting]:
            member.job.end(error)
            if member.slot:
                self.cache.drop(member.slot)
        self.live.clear()
        self.waiting.clear()

    # -- who takes part

    def _part_with_given_up(self) -> None:
        for member in [member for member in self.live if member.job.given_up]:
            self._end(member, None)
        for member in [member for member in self.waiting if member.job.given_up]:
            self.waiting.remove(member)
            member.job.end(None)

    def _admit(self) -> None:
        while self.waiting and len(self.live) < self.most:
            member = self.waiting[0]
            member.after = self._forerunner(member)
            if self.live and not self.cache.fits(member.rest, self._besides(member)):
                return
            self.live.append(self.waiting.popleft())
            if not member.after:
                self._take_slot(member)

    def _besides(self, member: Member) -> int:
        """The cells that are needed besides those for what this one has to read, so that it is worth beginning."""
        done = member.said.size if member.said else 0
        coming = sum(len(other.rest) - (other.after[1] if other.after else 0) for other in self.live)
        spared = member.after[1] - len(_slot_of(member.after[0]).tokens) if member.after else 0
        return min(_MARGIN, member.job.room - done) + coming - spared

    def _take_slot(self, member: Member) -> None:
        exact = member.job.exact and len(self.live) == 1
        slot = member.slot = self.cache.take(member.rest, exact=exact, session=member.job.session)
        member.cached = len(slot.tokens) if member.cached is None else member.cached
        del member.rest[: len(slot.tokens)]

    def _forerunner(self, member: Member) -> "tuple[Member, int] | None":
        """Somebody who is reading what this one would have to read as well."""
        best = None
        most = _WORTH - 1
        for other in self.live:
            if other is member or other.speaking or other.after or other.slot is None:
                continue
            common = shared([*other.slot.tokens, *other.rest], member.rest, len(member.rest) - 1)
            if common > max(most, len(other.slot.tokens)):
                best, most = (other, common), common
        return best

    def _prepare(self, member: Member) -> None:
        """Give it a slot as soon as there is no more to take over, and let it begin as soon as its grammar is there."""
        if member.after:
            other, common = member.after
            if other.slot and not other.speaking and len(other.slot.tokens) < common:
                return
            member.after = None
            self._take_slot(member)
        try:
            if member.said is None and member.job.ready:
                member.said = member.job.begin()
                self._tell(member, member.said.begin())
        except Exception as error:  # as a grammar that does not compile: whatever it is, one waits for it, and the others go on
            self._end(member, error)

    def _set_back(self, member: Member) -> None:
        """There is no room for it any more: it waits, and what it has is read again when there is."""
        if member.slot:
            member.rest[:0] = member.slot.tokens
            self.cache.drop(member.slot)
        member.slot, member.after, member.speaking = None, None, False
        self.live.remove(member)
        self.waiting.appendleft(member)

    # -- a step

    def _shares(self) -> dict[Member, int]:
        """How many tokens of each are decoded next. Of the prompts, the short ones are not held up by the long ones."""
        able = [member for member in self.live if member.slot and member.rest]
        speaking = [member for member in able if member.speaking]
        shares = {member: min(len(member.rest), self.decoder.slice // len(speaking)) for member in speaking}
        left = min(self.decoder.slice - sum(shares.values()), BESIDE if speaking else self.decoder.slice)
        reading = sorted((member for member in able if not member.speaking), key=lambda member: len(member.rest))
        for place, member in enumerate(reading):
            share = left // (len(reading) - place)
            if member.said is None and len(member.rest) <= share:
                share = 0  # its last part is decoded together with what the grammar forces
            if share := min(len(member.rest), share):
                shares[member] = share
                left -= share
        return shares

    def _decode(self, shares: dict[Member, int]) -> None:
        rows: list[tuple[int, int, int, bool]] = []
        chosen: list[tuple[Member, int]] = []
        for member, share in shares.items():
            slot = _slot_of(member)
            whole = share == len(member.rest)
            for place, token in enumerate(member.rest[:share], start=len(slot.tokens)):
                rows.append((token, place, slot.number, False))
            if whole:
                rows[-1] = (*rows[-1][:3], True)
                chosen.append((member, len(rows) - 1))
        # One alone is interrupted when it is given up; of several, the others would suffer.
        self.decoder.interrupt_by(self.live[0].job.flag if len(self.live) == 1 else self.stop)
        try:
            done = self.decoder.decode(rows)
        except ModelError as error:
            self._undo(shares, error)
            return
        self.steps += 1
        if not done:
            self._restore(shares)
            return
        for member, share in shares.items():
            self.cache.grow(_slot_of(member), member.rest[:share])
            del member.rest[:share]
        for member, row in chosen:
            self._choose(member, row)

    def _choose(self, member: Member, row: int) -> None:
        said = member.said
        assert said is not None  # else its last part would not have been decoded
        try:
            if not member.speaking:
                member.job.choosing()
            member.speaking = True
            self._tell(member, said.advance(self.decoder.logits(row)))
        except Exception as error:  # its grammar's or its sampler's: the others go on
            self._end(member, error)

    def _tell(self, member: Member, pieces: list[Piece]) -> None:
        said, usage = member.said, member.usage
        assert said is not None
        member.job.post([Piece(piece.text, piece.special, usage) for piece in pieces])
        member.rest += said.pending
        if said.finished:
            self._end(member, Finished(said.finished, usage, said.matched))

    def _restore(self, shares: Iterable[Member]) -> None:
        """As before the decode."""
        for member in shares:
            slot = _slot_of(member)
            held = [*slot.tokens]
            self.cache.restore(slot)
            member.rest[:0] = held[len(slot.tokens) :]

    def _undo(self, shares: Iterable[Member], error: ModelError) -> None:
        """The decode failed: for want of room, perhaps, and then there may be more of it; else all it was for are over."""
        if error.retryable and len(self.live) > 1:
            self._restore(shares)
            self.cache.make_room(self.decoder.size)
            self._set_back(self.live[-1])
            return
        for member in [*shares]:
            self._end(member, error)

    def _settle(self) -> bool:
        """Decode what a parked answer has said in the end, as far as one step goes."""
        slot = self.cache.unsettled() if self.settles else None
        if slot is None:
            return False
        tail, slot.tail = slot.tail[: self.decoder.slice], []
        rows = [(token, place, slot.number, False) for place, token in enumerate(tail, start=len(slot.tokens))]
        self.decoder.interrupt_by(self.wanted)
        try:
            done = self.decoder.decode(rows)
        except ModelError:
            self.cache.restore(slot)
            return True
        if done:
            self.cache.grow(slot, tail)
        else:
            self.cache.restore(slot)
            slot.tail = tail  # there may be time for it later
        return True

    def _end(self, member: Member, end: Finished | BaseException | None) -> None:
        self.live.remove(member)
        if member.slot:
            if isinstance(end, ModelError):
                self.cache.drop(member.slot)  # nothing is taken for granted
            else:
                self.cache.park(member.slot, member.rest if member.speaking else [])
            member.slot = None
        member.job.end(end)


def _slot_of(member: Member) -> Slot:
    assert member.slot is not None
    return member.slot

"""Continuous batching: chunked prefill beside decoding; the newest request is preempted when KV cells run out.

All live requests take part in one decode per step, each with its own grammar and sampler. Requests are admitted first come, first
served, as soon as enough cells are free. A step takes the next tokens of all requests that are decoding, and a chunk of the
prompts that are in prefill, small enough not to stall the others. A prefix that several prompts share is prefilled once. When the
KV cells run out, finished sequences are evicted first; then the newest request is preempted and prefilled again later.

The tail of a call is often forced by the grammar, and nothing of the answer depends on decoding it. It is decoded when the engine
is idle, so that the turn after the tool result finds it in the KV cache. What the next prompt would have to evict is saved then.
"""

import ctypes as C
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import starmap
from typing import Final, Literal, Protocol, TypeAlias

from callsmith.core.capability.origin import Origin
from callsmith.core.errors import ModelError
from callsmith.core.values import Usage
from callsmith.engines.decoding.kv_cache import Cache, Memory, Slot, count_shared
from callsmith.engines.decoding.pictures import count_rest, count_text
from callsmith.engines.decoding.vocabulary import Logits
from callsmith.engines.port import Finished, Piece

Flag: TypeAlias = "C.Array[C.c_char]"  # b"0", or b"1" once it is set: a C library may look at it without the interpreter lock

PREFILL_CHUNK: Final = 64  # of a processor that decodes about as many tokens in the time of a few
_MIN_FREE_CELLS: Final = 256  # KV cells that must be free for a request to be admitted
_MIN_SHARED_PREFIX: Final = 32  # tokens; a shared prefix at least this long is worth waiting for


def new_flag() -> Flag:
    """A flag that is not set."""
    return C.create_string_buffer(b"0")


class Decoder(Memory, Protocol):
    """A context: its KV memory, and the decoding."""

    def decode(self, rows: Iterable[tuple[int, int, int, bool]], *, exact: bool = False) -> bool:
        """`exact`: bit for bit as decoded before, whatever else the machine does. Rows of a picture come alone, all at once."""
        ...

    def logits(self, row: int) -> Logits: ...
    def interrupt_by(self, flag: Flag) -> None: ...


class Generation(Protocol):
    """An answer being generated; `pending` are the tokens to decode before the next one is sampled."""

    pending: list[int]
    finished: Literal["stop", "length"] | None

    @property
    def size(self) -> int: ...
    @property
    def matched(self) -> str: ...
    def begin(self) -> list[Piece]: ...
    def advance(self, logits: Logits) -> list[Piece]: ...


class BatchSampler(Protocol):
    """Samples the next token of several answers at once, each from the logits of its row in the last decode."""

    def advance(self, wanted: list[tuple[Generation, int]]) -> list[list[Piece] | Exception]:
        """The text of each answer, or the error of its grammar or its sampler."""
        ...


class BatchJob(Protocol):
    """A request to the engine. An exception in one of its methods ends this request and no other.

    Prefixes are shared between jobs of the same salt of their `origin` only. `exact`: with a seed the answer is the same every
    time, if no other request is live. `flag` is set when the request is cancelled.
    """

    tokens: list[int]
    room: int
    flag: Flag

    @property
    def origin(self) -> Origin: ...
    @property
    def exact(self) -> bool: ...
    @property
    def is_cancelled(self) -> bool: ...
    @property
    def ready(self) -> bool:
        """Whether the grammar is compiled, so that `begin` does not block."""
        ...

    def begin(self) -> Generation: ...
    def choosing(self) -> None:
        """Called before the first token is sampled."""
        ...

    def post(self, pieces: list[Piece]) -> None: ...
    def end(self, end: Finished | BaseException | None) -> None:
        """Finish the request; None: it was cancelled."""
        ...


@dataclass(slots=True, eq=False)
class BatchEntry:
    """A request in the batch. `rest` are the tokens to decode before its next one is sampled."""

    job: BatchJob
    rest: list[int]
    slot: Slot | None = None
    generation: Generation | None = None
    is_decoding: bool = False  # prefill is done
    cached: int | None = None
    after: "tuple[BatchEntry, int] | None" = None  # waits until that request has prefilled so many tokens that both share

    @property
    def usage(self) -> Usage:
        return Usage(len(self.job.tokens), self.generation.size if self.generation else 0, self.cached or 0)


@dataclass(slots=True)
class Batch:
    """The live requests and those waiting for admission. `settles`: whether forced tails are decoded when the engine is idle.

    `chunk` is how many prompt tokens a step takes while other requests are decoding: it bounds their delay. With a `sampler`
    tokens are sampled together, else one by one.
    """

    decoder: Decoder
    cache: Cache
    most: int
    settles: bool = True
    chunk: int = PREFILL_CHUNK
    sampler: BatchSampler | None = None
    live: list[BatchEntry] = field(default_factory=list[BatchEntry])  # in the order of arrival
    waiting: deque[BatchEntry] = field(default_factory=deque[BatchEntry])
    steps: int = 0  # decode calls for requests
    is_pictured: bool = False  # whether the last one was a picture's: before the next, those that are writing go on
    stop: Flag = field(default_factory=new_flag)  # set: the current decode is aborted
    wanted: Flag = field(default_factory=new_flag)  # set: a request has arrived, and idle work is aborted

    @property
    def size(self) -> int:
        """How many requests are not finished."""
        return len(self.live) + len(self.waiting)

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.size or (self.settles and self.cache.pending_tail()) or self.cache.next_to_evict())

    def prefill_progress(self) -> tuple[int, int]:
        """How many tokens of the prompts in prefill are done, and how many they have in all. May be called in any thread."""
        reading = [entry for entry in (*self.live, *self.waiting) if not entry.is_decoding]
        total = sum(len(entry.job.tokens) for entry in reading)
        return max(0, total - sum(len(entry.rest) for entry in reading)), total

    def add(self, job: BatchJob) -> None:
        """Add a request; it waits for admission."""
        self.waiting.append(BatchEntry(job, list(job.tokens)))

    def step(self) -> bool:
        """Run one decode, and sample a token for every request that is decoding. False: all wait for their grammars."""
        self._drop_cancelled()
        if not self.size:
            return self._decode_tail() or self.cache.evict_early()
        self._admit()
        for entry in [*self.live]:
            self._prepare(entry)
        shares = self._token_shares()
        while shares and not self.cache.evict_until_free(sum(shares.values())):
            self._preempt(self.live[-1])
            shares = self._token_shares()
        if not shares:
            return False
        self._decode(shares)
        return True

    def fail(self, error: BaseException) -> None:
        """Fail all requests."""
        for entry in [*self.live, *self.waiting]:
            entry.job.end(error)
            if entry.slot:
                self.cache.drop(entry.slot)
        self.live.clear()
        self.waiting.clear()

    # -- admission

    def _drop_cancelled(self) -> None:
        for entry in [entry for entry in self.live if entry.job.is_cancelled]:
            self._finish(entry, None)
        for entry in [entry for entry in self.waiting if entry.job.is_cancelled]:
            self.waiting.remove(entry)
            entry.job.end(None)

    def _admit(self) -> None:
        while self.waiting and len(self.live) < self.most:
            entry = self._next()
            entry.after = self._prefix_source(entry)
            if self.live and not self.cache.fits(entry.rest, self._cells_needed(entry), entry.job.origin.cache_salt):
                return
            self.waiting.remove(entry)
            self.live.append(entry)
            if not entry.after:
                self._take_slot(entry)

    def _next(self) -> BatchEntry:
        """The request to admit next: of the caller with the fewest live ones, and of those the first to come."""
        counts = Counter(entry.job.origin.caller for entry in self.live)
        return min(self.waiting, key=lambda entry: counts[entry.job.origin.caller])

    def _cells_needed(self, entry: BatchEntry) -> int:
        """The KV cells that admitting this request needs besides those of its own prompt."""
        done = entry.generation.size if entry.generation else 0
        coming = sum(len(other.rest) - (other.after[1] if other.after else 0) for other in self.live)
        spared = entry.after[1] - len(_slot_of(entry.after[0]).tokens) if entry.after else 0
        return min(_MIN_FREE_CELLS, entry.job.room - done) + coming - spared

    def _take_slot(self, entry: BatchEntry) -> None:
        exact, origin = entry.job.exact and len(self.live) == 1, entry.job.origin
        slot = entry.slot = self.cache.take(entry.rest, exact=exact, session=origin.session, salt=origin.cache_salt)
        entry.cached = len(slot.tokens) if entry.cached is None else entry.cached
        del entry.rest[: len(slot.tokens)]

    def _prefix_source(self, entry: BatchEntry) -> "tuple[BatchEntry, int] | None":
        """A request in prefill whose prompt shares a long prefix with this one."""
        best, most = None, _MIN_SHARED_PREFIX - 1
        salt = entry.job.origin.cache_salt
        for other in self.live:
            if other is entry or other.is_decoding or other.after or other.slot is None or other.job.origin.cache_salt != salt:
                continue
            common = count_shared([*other.slot.tokens, *other.rest], entry.rest, len(entry.rest) - 1)
            if common > max(most, len(other.slot.tokens)):
                best, most = (other, common), common
        return best

    def _prepare(self, entry: BatchEntry) -> None:
        """Give it a slot once the shared prefix is prefilled, and begin generating once its grammar is compiled."""
        if entry.after:
            other, common = entry.after
            if other.slot and not other.is_decoding and len(other.slot.tokens) < common:
                return
            entry.after = None
            self._take_slot(entry)
        try:
            if entry.generation is None and entry.job.ready:
                entry.generation = entry.job.begin()
                self._emit(entry, entry.generation.begin())
        except Exception as error:  # as a grammar that does not compile: it fails this request, and the others go on
            self._finish(entry, error)

    def _preempt(self, entry: BatchEntry) -> None:
        """Preempt the request: free its cells; it waits, and is prefilled again once there are enough."""
        if entry.slot:
            entry.rest[:0] = entry.slot.tokens
            self.cache.drop(entry.slot)
        entry.slot, entry.after, entry.is_decoding = None, None, False
        self.live.remove(entry)
        self.waiting.appendleft(entry)

    # -- a step

    def _token_shares(self) -> dict[BatchEntry, int]:
        """How many tokens of each request go into the next decode. Short prompts are not delayed by long ones."""
        able = [entry for entry in self.live if entry.slot and entry.rest]
        decoding = [entry for entry in able if entry.is_decoding]
        if not (decoding and self.is_pictured) and (pictured := next((entry for entry in able if entry.rest[0] < 0), None)):
            return {pictured: count_rest(pictured.rest[0])}
        shares = {entry: min(len(entry.rest), self.decoder.slice // len(decoding)) for entry in decoding}
        budget = min(self.decoder.slice - sum(shares.values()), self.chunk if decoding else self.decoder.slice)
        prefilling = sorted((entry for entry in able if not entry.is_decoding), key=lambda entry: len(entry.rest))
        for place, entry in enumerate(prefilling):
            share = budget // (len(prefilling) - place)
            if entry.generation is None and len(entry.rest) <= share:
                share = 0  # the last chunk is decoded together with the tokens that the grammar forces
            if share := count_text(entry.rest, share):
                shares[entry] = share
                budget -= share
        return shares

    def _decode(self, shares: dict[BatchEntry, int]) -> None:
        rows: list[tuple[int, int, int, bool]] = []
        chosen: list[tuple[BatchEntry, int]] = []
        for entry, share in shares.items():
            slot, last = _slot_of(entry), share - 1
            whole = share == len(entry.rest)
            for place in range(share):
                rows.append((entry.rest[place], len(slot.tokens) + place, slot.number, whole and place == last))
            if whole:
                chosen.append((entry, len(rows) - 1))
        # A decode for one request alone is aborted when that is cancelled; with several, the others would lose their work.
        self.decoder.interrupt_by(self.live[0].job.flag if len(self.live) == 1 else self.stop)
        self.is_pictured = rows[0][0] < 0
        try:
            done = self.decoder.decode(rows, exact=any(entry.job.exact for entry in shares))
        except ModelError as error:
            self._handle_failed_decode(shares, error)
            return
        self.steps += 1
        if not done:
            self._roll_back(shares)
            return
        for entry, share in shares.items():
            self.cache.grow(_slot_of(entry), entry.rest[:share])
            del entry.rest[:share]
        self._sample([(entry, row) for entry, row in chosen if self._begins(entry)])

    def _begins(self, entry: BatchEntry) -> bool:
        """Whether its next token can be sampled; false if it fails here."""
        try:
            if not entry.is_decoding:
                entry.job.choosing()
            entry.is_decoding = True
        except Exception as error:  # of one of its tools; the other requests go on
            self._finish(entry, error)
            return False
        return True

    def _sample(self, chosen: list[tuple[BatchEntry, int]]) -> None:
        wanted = [(_generation_of(entry), row) for entry, row in chosen]
        outcomes = self.sampler.advance(wanted) if self.sampler else [*starmap(self._advance, wanted)]
        for (entry, _), outcome in zip(chosen, outcomes, strict=True):
            if isinstance(outcome, Exception):
                self._finish(entry, outcome)
            else:
                self._emit(entry, outcome)

    def _advance(self, generation: Generation, row: int) -> list[Piece] | Exception:
        try:
            return generation.advance(self.decoder.logits(row))
        except Exception as error:  # of its grammar or its sampler: the other requests go on
            return error

    def _emit(self, entry: BatchEntry, pieces: list[Piece]) -> None:
        generation, usage = entry.generation, entry.usage
        assert generation is not None
        entry.job.post([Piece(piece.text, piece.special, usage, piece.tokens) for piece in pieces])
        entry.rest += generation.pending
        if generation.finished:
            self._finish(entry, Finished(generation.finished, usage, generation.matched))

    def _roll_back(self, shares: Iterable[BatchEntry]) -> None:
        """Undo a decode that was aborted."""
        for entry in shares:
            slot = _slot_of(entry)
            decoded = [*slot.tokens]
            self.cache.restore(slot)
            entry.rest[:0] = decoded[len(slot.tokens) :]

    def _handle_failed_decode(self, shares: Iterable[BatchEntry], error: ModelError) -> None:
        """A decode failed: where cells may be short, evict and preempt to try again; else fail the requests in it."""
        if error.retryable and len(self.live) > 1:
            self._roll_back(shares)
            self.cache.evict_until_free(self.decoder.size)
            self._preempt(self.live[-1])
            return
        for entry in [*shares]:
            self._finish(entry, error)

    def _decode_tail(self) -> bool:
        """Decode the forced tail of a finished sequence, at most one slice of it."""
        slot = self.cache.pending_tail() if self.settles else None
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
            slot.tail = tail  # tried again when the engine is idle
        return True

    def _finish(self, entry: BatchEntry, end: Finished | BaseException | None) -> None:
        self.live.remove(entry)
        if entry.slot:
            if isinstance(end, ModelError):
                self.cache.drop(entry.slot)  # its cells are in an unknown state
            else:
                self.cache.park(entry.slot, entry.rest if entry.is_decoding else [])
            entry.slot = None
        entry.job.end(end)


def _slot_of(entry: BatchEntry) -> Slot:
    assert entry.slot is not None
    return entry.slot


def _generation_of(entry: BatchEntry) -> Generation:
    assert entry.generation is not None  # else its last chunk would not have been decoded
    return entry.generation

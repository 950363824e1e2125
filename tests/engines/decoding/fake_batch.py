"""A decoder and jobs for a batch, without a model."""

from collections.abc import Iterable
from typing import Literal

import pytest

pytest.importorskip("numpy")

import numpy as np

from callsmith.core.capability.origin import Origin
from callsmith.core.errors import ModelError
from callsmith.engines.decoding.batch import Batch, new_flag
from callsmith.engines.decoding.kv_cache import Cache
from callsmith.engines.decoding.vocabulary import Logits
from callsmith.engines.port import Finished, Piece


class Decoder:
    """A context that checks each row against what it holds."""

    def __init__(self, size: int = 2000, slice: int = 256) -> None:
        self.size = size
        self.slice = slice
        self.cells: dict[int, list[int]] = {}
        self.batches: list[list[int]] = []  # the sequence of each row
        self.tokens = 0
        self.exact: list[bool] = []
        self.interrupted: list[bool] = []
        self.flag = new_flag()
        self.broken: ModelError | None = None

    def decode(self, rows: Iterable[tuple[int, int, int, bool]], *, exact: bool = False) -> bool:
        rows = [*rows]
        assert 0 < len(rows) <= self.slice
        if self.broken:
            error, self.broken = self.broken, None
            raise error
        for token, position, sequence, _ in rows:
            cells = self.cells.setdefault(sequence, [])
            assert position == len(cells)
            cells.append(token)
        self.batches.append([row[2] for row in rows])
        self.tokens += len(rows)
        self.exact.append(exact)
        return self.flag[0] == b"0"

    def logits(self, row: int) -> Logits:
        return np.zeros(1, np.float32)

    def forget(self, sequence: int, start: int) -> bool:
        self.cells[sequence] = self.cells.get(sequence, [])[:start]
        return True

    def copy(self, source: int, target: int) -> None:
        assert not self.cells.get(target)
        self.cells[target] = self.cells[source][:]

    def interrupt_by(self, flag: object) -> None:
        self.flag = flag  # type: ignore[assignment]


class Said:
    """An answer that counts: as many tokens as were wanted, after its own number."""

    def __init__(self, number: int, wanted: int, fails_at: int | None = None) -> None:
        self.pending: list[int] = []
        self.finished: Literal["stop", "length"] | None = None
        self.size = 0
        self.matched = ""
        self._number, self._wanted, self._fails_at = number, wanted, fails_at

    def begin(self) -> list[Piece]:
        return []

    def advance(self, logits: Logits) -> list[Piece]:
        if self.size == self._fails_at:
            raise ValueError("no such token")
        self.size += 1
        self.pending = [self._number * 10_000 + self.size]
        if self.size == self._wanted:
            self.finished = "stop"
        return [Piece(f"{self.size} ")]


class FakeSequence:
    """A job that keeps what it is told."""

    exact = False

    def __init__(
        self, number: int, tokens: list[int], wanted: int = 5, *, fails_at: int | None = None, session: str = "", caller: str = ""
    ) -> None:
        self.number, self.tokens, self.wanted, self.fails_at = number, tokens, wanted, fails_at
        self.room = 1000
        self.origin = Origin(session, caller=caller)
        self.flag = new_flag()
        self.ready = True
        self.pieces: list[Piece] = []
        self.ended: list[Finished | BaseException | None] = []

    @property
    def is_cancelled(self) -> bool:
        return self.flag[0] == b"1"

    def begin(self) -> Said:
        return Said(self.number, self.wanted, self.fails_at)

    def choosing(self) -> None:
        pass

    def post(self, pieces: list[Piece]) -> None:
        assert not self.ended
        self.pieces += pieces

    def end(self, end: Finished | BaseException | None) -> None:
        self.ended.append(end)

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def whole(self) -> bool:
        return self.text == "".join(f"{number} " for number in range(1, self.wanted + 1)) and isinstance(self.ended[0], Finished)


def batch_of(*jobs: FakeSequence, most: int = 8, decoder: Decoder | None = None) -> Batch:
    decoder = decoder or Decoder()
    batch = Batch(decoder, Cache(decoder, 3 * most), most)
    for job in jobs:
        batch.add(job)
    return batch


def finish(batch: Batch, most: int = 10_000) -> None:
    for _ in range(most):
        if not batch.size:
            return
        batch.step()
    raise AssertionError("it never ends")


def prompt(number: int, size: int = 20) -> list[int]:
    return [number * 1000 + place for place in range(size)]

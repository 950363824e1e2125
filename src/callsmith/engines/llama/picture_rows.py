"""Pictures in llama.cpp's batches: their rows, the positions they take, and where positions and places in a sequence differ."""

import ctypes as C
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from callsmith.core.errors import ModelError
from callsmith.engines.decoding.pictures import Picture
from callsmith.engines.llama.libllama import LlamaBatch

LARGEST_WHOLE: Final = 1280  # rows of a picture that are decoded together, where they see each other


class PictureRows:
    """The pictures of requests that are not finished, by their first token. `largest` is how many rows of a picture are decoded
    together."""

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self._pictures: WeakValueDictionary[int, Picture] = WeakValueDictionary()

    def add(self, picture: Picture) -> Picture:
        """The picture, or the same one if somebody has it already: there is one of each, for as long as anybody has it."""
        return self._pictures.setdefault(picture.tokens[0], picture)

    def of(self, token: int) -> Picture:
        picture = self._pictures.get(token)
        if picture is None:
            raise ModelError("a picture is gone before it was decoded")  # a bug of ours: fails the request, not the process
        return picture


class Gaps:
    """How far positions are behind places, in each sequence: the rows of a picture may share positions."""

    def __init__(self) -> None:
        self._ends: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)  # from this place on: how far behind

    def position(self, sequence: int, place: int) -> int:
        """The position of what is at this place."""
        ends = self._ends[sequence] if self._ends else None
        return place - ends[bisect_right(ends, (place, place)) - 1][1] if ends and place >= ends[0][0] else place

    def add(self, sequence: int, end: int, less: int) -> None:
        """A picture that ends at this place takes fewer positions than places."""
        if less:
            ends = self._ends[sequence]
            ends.append((end, less + (ends[-1][1] if ends else 0)))

    def cut(self, sequence: int, place: int) -> int:
        """The position of this place, from which on the sequence is forgotten."""
        position = self.position(sequence, place)
        if self._ends:
            self._ends[sequence] = [end for end in self._ends[sequence] if end[0] <= place]
        return position

    def copy(self, source: int, target: int) -> None:
        if self._ends:
            self._ends[target] = [*self._ends[source]]


def picture_batches(picture: Picture, begin: int, sequence: int, most: int) -> Iterator[LlamaBatch]:
    """The rows of a picture as batches of at most so many, or one if they see each other. Its first position is `begin`."""
    count = len(picture.tokens)
    step = count if picture.is_whole else most
    positions = picture.positions_at(begin)
    own = (C.c_int32 * 1)(sequence)
    for start in range(0, count, step):
        rows = np.ascontiguousarray(picture.rows[start : start + step])
        own_positions = np.ascontiguousarray(positions[:, start : start + step]).reshape(-1)
        size = len(rows)
        batch = LlamaBatch(n_tokens=size, token=None, embd=rows.ctypes.data)
        batch.pos = _pointer(own_positions)
        batch.n_seq_id = (C.c_int32 * size)(*[1] * size)
        batch.seq_id = (C.POINTER(C.c_int32) * size)(*[own] * size)
        batch.logits = (C.c_int8 * size)()
        yield batch


def _pointer(array: NDArray[np.int32]) -> Any:
    return array.ctypes.data_as(C.POINTER(C.c_int32))

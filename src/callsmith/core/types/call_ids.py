"""Ids of calls: the one place where it is seen to that no two calls have the same."""

from collections.abc import Iterable
from itertools import count


class CallIds:
    """The ids of the calls of an answer, or of a conversation. `used` are those of earlier calls.

    >>> ids = CallIds(["call_1"])
    >>> ids.claim("call_2"), ids.claim("call_2"), ids.claim("call_1", "another")
    ('call_2', 'call_2_2', 'another')
    """

    def __init__(self, used: Iterable[str] = ()) -> None:
        self._taken = set(used)

    def __len__(self) -> int:
        return len(self._taken)

    def claim(self, id: str, otherwise: str = "") -> str:
        """The id for a call: this one if it is free, else the other one, else one with a number behind it."""
        claimed = id if id and id not in self._taken else otherwise
        if not claimed or claimed in self._taken:
            copies = (f"{id or otherwise or 'call'}_{number}" for number in count(2))
            claimed = next(copy for copy in copies if copy not in self._taken)
        self._taken.add(claimed)
        return claimed

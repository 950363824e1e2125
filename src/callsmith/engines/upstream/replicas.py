"""Replicas: the servers that answer for one model, and which of them is asked next.

Requests of a conversation go to the same one, which has their beginning in its cache: the first by a rendezvous hash, so that few
conversations move when a server comes or goes. One that has more than its share passes some on to the next. Servers that are
down, that want to be left alone or that are draining are not asked. This module decides; `client.py` sends.
"""

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil
from typing import Final

from callsmith.core.errors import ModelError, Rejected, Unavailable, UnknownName, UsageError
from callsmith.core.ports import UpstreamState, UpstreamStatus
from callsmith.core.values import Completion, Message, Request
from callsmith.engines.upstream.errors import NotReached

_log = logging.getLogger(__name__)

_FAILURES: Final = 3  # in a row, after which a server is taken to be down
_SHARE: Final = 1.25  # times the mean of requests that one server may be answering
_FEW: Final = 8  # requests that drown no server
_BUSY: Final = (1.0, 60.0)  # seconds that a busy server is left alone: where it does not say, and at most
_PROBES: Final = (0.25, 5.0)  # seconds between two probes: first, and at most
_OVERLOADED: Final = frozenset({429, 503, 529})
_BROKEN: Final = frozenset({502, 504})
_BEGINNING = 1024  # characters of a text that is continued as it is: what is behind them may have been added later
_NO_KEY = "@"  # before the address of a caller who has no key


@dataclass(slots=True, eq=False)
class Replica:
    """One server, and what is known of how it is. Times are those of the clock of its `Replicas`."""

    url: str
    answering: int = 0
    requests: int = 0
    failures: int = 0
    is_draining: bool = False
    is_down: bool = False
    busy_until: float = 0.0
    last_error: str = ""
    failed_in_a_row: int = 0
    probes: int = 0  # since it is down
    probed_at: float = 0.0
    next_probe: float = 0.0


class Replicas:
    """The servers of one model. A single one is always asked: there is no other."""

    def __init__(self, urls: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        if len(set(urls)) != len(urls):
            raise UsageError(f"the same server twice: {', '.join(urls)}", field="url")
        self.all = [Replica(url) for url in urls]
        self.clock = clock

    def choose(self, session: str = "", tried: Iterable[Replica] = ()) -> Replica | None:
        """The server to ask: by the session if there is one, else the least busy. None if there is none besides those tried."""
        usable = [item for item in self.all if self._is_usable(item)]
        open = [item for item in usable if item not in tried]
        if not session:
            return min(open, key=lambda replica: (replica.answering, random.random()), default=None)
        most = max(_FEW, ceil(_SHARE * (sum(item.answering for item in usable) + 1) / max(1, len(usable))))

        def rank(replica: Replica) -> tuple[bool, bytes]:
            return replica.answering < most, blake2b(f"{replica.url} {session}".encode(), digest_size=8).digest()

        return max(open, key=rank, default=None)

    def down(self) -> list[Replica]:
        return [item for item in self.all if item.is_down]

    def due_now(self) -> list[Replica]:
        """The servers that are down and may be probed at once, where there are no others: each now and then, by one request."""
        now = self.clock()
        due = [item for item in self.down() if not item.is_draining and now - item.probed_at >= _PROBES[0]]
        for item in due:
            item.probed_at = now
        return due

    def note_success(self, replica: Replica) -> None:
        """Enter that a server has given a whole answer, or answers a probe."""
        replica.is_down, replica.failed_in_a_row, replica.probes, replica.last_error = False, 0, 0, ""

    def note_failure(self, replica: Replica, error: ModelError) -> None:
        """Enter that a request has failed at a server. Not every error says something about the server."""
        replica.failures += 1
        if isinstance(error, Rejected):
            if error.status in _OVERLOADED:
                seconds = _BUSY[0] if error.seconds is None else min(error.seconds, _BUSY[1])
                replica.busy_until = self.clock() + seconds
            if error.status not in _BROKEN:
                return
        replica.failed_in_a_row += 1
        replica.last_error = error.message
        if isinstance(error, NotReached) or replica.failed_in_a_row >= _FAILURES:
            self.note_failed_probe(replica)

    def note_failed_probe(self, replica: Replica) -> None:
        """Enter that a server is down, or still is. It is probed again after a while, and after longer ones each time."""
        first, most = _PROBES
        pause = min(first * 2 ** min(replica.probes, 10), most) * random.uniform(0.8, 1.2)
        replica.probes += 1
        replica.is_down, replica.next_probe = True, self.clock() + pause

    def none_usable(self) -> Unavailable:
        """The error where no server can be asked, and when to come again. What is wrong with each is in the log: where servers
        are is not a client's business."""
        now = self.clock()
        waits = [item.next_probe - now if item.is_down else item.busy_until - now for item in self.all if not item.is_draining]
        states = [item.last_error if self._state(item) == "down" else f"{item.url} is {self._state(item)}" for item in self.all]
        _log.warning("no server can be asked now: %s", "; ".join(states))
        counts = Counter(self._state(item) for item in self.all)
        tally = ", ".join(f"{count} {state}" for state, count in counts.items())
        return Unavailable(
            f"no server can be asked now: of {len(self.all)}, {tally}",
            retryable=True,
            seconds=max(1.0, min(waits, default=_BUSY[1])),
        )

    def status(self) -> list[UpstreamStatus]:
        return [UpstreamStatus(item.url, self._state(item), item.answering, item.requests, item.failures) for item in self.all]

    def drain(self, url: str, draining: bool) -> None:
        """Send a server no new requests, or send it some again."""
        known = {item.url: item for item in self.all}
        if url.rstrip("/") not in known:
            raise UnknownName("upstream", url, known, field="url")
        known[url.rstrip("/")].is_draining = draining

    def _is_usable(self, replica: Replica) -> bool:
        return self._state(replica) == "up" or (len(self.all) == 1 and not replica.is_draining)

    def _state(self, replica: Replica) -> UpstreamState:
        if replica.is_draining:
            return "draining"
        if replica.is_down:
            return "down"
        return "busy" if replica.busy_until > self.clock() else "up"


def affinity_id(request: Request | Completion) -> str:
    """The id of the conversation that this is a part of, in hexadecimal digits: the same for each of its requests.

    It is made of the name that the client gives it; without one, of what all requests of a conversation have in common: the
    system prompt, the names of the tools and the first message of the user. Callers with different keys never have the same.
    """
    origin = request.origin
    owner = "" if origin.caller.startswith(_NO_KEY) else origin.caller
    if name := origin.affinity or origin.session:
        return _digest("named", owner, name)
    if isinstance(request, Request):
        return _digest("begins", owner, *(tool.name for tool in request.tools), "", *_beginning(request.messages))
    begun = request.prompt[:_BEGINNING]
    return _digest("text", owner, begun if isinstance(begun, str) else repr(begun))


def _beginning(messages: Iterable[Message]) -> Iterator[str]:
    """The messages up to the first one of the user."""
    for message in messages:
        yield message.role
        yield message.content
        if message.role == "user":
            return


def _digest(*parts: str) -> str:
    digest = blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()

"""`UpstreamAnswer`: what another server sends for one answer, read as events."""

import time
from collections.abc import Iterable, Sequence
from typing import Final

from callsmith.core.errors import ModelError, TimedOut
from callsmith.core.events import ModelEvent
from callsmith.core.values import Call, Json
from callsmith.engines.upstream import BrokeOff, Upstream
from callsmith.models.answers.normalizer import AnswerNormalizer
from callsmith.models.answers.reading import Stage, pass_through
from callsmith.models.remote.calls import UpstreamCalls
from callsmith.wire.upstream.dialects import AnswerDecoder, UpstreamDialect

_MOST_BYTES: Final = 64 * 1024 * 1024  # of one answer


class UpstreamAnswer:
    """Reads the bytes of one answer. The events go through `calls` and `normalizer`; the stages `before` them see what the server
    has sent, those `behind` what has become of it."""

    def __init__(
        self,
        upstream: Upstream,
        dialect: UpstreamDialect,
        calls: UpstreamCalls,
        normalizer: AnswerNormalizer,
        before: Sequence[Stage],
        behind: Sequence[Stage],
    ) -> None:
        self._upstream = upstream
        self._decoder = AnswerDecoder(dialect)
        self._calls = calls
        self._normalizer = normalizer
        self._stages = (*before, calls.filter, normalizer.filter, *behind)
        self._size = 0
        self._heard = time.monotonic()

    @property
    def is_done(self) -> bool:
        """Whether nothing more is to come."""
        return self._decoder.is_done

    @property
    def signed(self) -> tuple[Sequence[Call], Json]:
        """The calls, and what the server has signed of the answer; None if that does not fit them."""
        has_same_ids = self._normalizer.calls and not self._calls.has_changed_ids
        return self._normalizer.calls, self._decoder.signed if has_same_ids else None

    def feed(self, data: bytes) -> Iterable[ModelEvent]:
        """The events that these bytes complete."""
        url, seconds = self._upstream.url, self._upstream.retry_policy.begin
        self._size += len(data)
        if self._size > _MOST_BYTES:
            raise ModelError(f"the answer of {url} does not end: it has more than {_MOST_BYTES:,} bytes")
        if events := self._decoder.feed(data):
            self._heard = time.monotonic()
        elif time.monotonic() - self._heard > seconds:
            raise TimedOut(f"{url} keeps the connection open, but has said nothing for {seconds:g} s")
        return pass_through(self._stages, events)

    def close(self) -> Iterable[ModelEvent]:
        """The last events."""
        events = self._decoder.close()
        if not self._decoder.has_ended:
            raise BrokeOff(self._upstream.url)
        return pass_through(self._stages, events)

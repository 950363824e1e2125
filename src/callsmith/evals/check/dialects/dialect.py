"""What the probes need of a dialect: how it is asked, and how its answers are read."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from callsmith.core.types.tables import as_object
from callsmith.core.values import Json, Request
from callsmith.evals.check.exchange import Answer, Exchange
from callsmith.wire.signed import NOTHING_SIGNED
from callsmith.wire.sse import FrameReader, SseFrame
from callsmith.wire.upstream.dialects import DIALECTS, UpstreamDialect
from callsmith.wire.upstream.quirks import Quirks


@dataclass(frozen=True, slots=True)
class CheckedDialect:
    """A dialect, and how its answers are read. `has_seed`: whether its requests have one; strict servers refuse it elsewhere."""

    name: str
    title: str
    read_whole: Callable[[Answer], None]
    read_stream: Callable[[Answer], None]
    has_seed: bool = False

    @property
    def spoken(self) -> UpstreamDialect:
        return DIALECTS[self.name]

    def write(self, model: str, request: Request, *, stream: bool) -> dict[str, Json]:
        """The body of a request. It says whether a stream is wanted: some servers stream where it does not."""
        if not self.has_seed:
            request = replace(request, sampling=replace(request.sampling, seed=None))
        return {**self.spoken.write(model, request, NOTHING_SIGNED, Quirks(streams=stream, history="")), "stream": stream}

    def read(self, exchange: Exchange, *, stream: bool) -> Answer:
        """The answer in an exchange that went well."""
        answer = Answer(exchange)
        if exchange.failure:
            answer.fault("frames", exchange.failure)
        (self.read_stream if stream else self.read_whole)(answer)
        return answer


def whole(answer: Answer) -> Mapping[str, Any]:
    """The object that a whole answer is."""
    value = answer.exchange.json()
    if not isinstance(value, dict):
        answer.fault("frames", "the answer is no JSON object")
    return as_object(value)


def sse_frames(answer: Answer) -> list[SseFrame]:
    """The server-sent events of a stream."""
    kind = answer.exchange.headers.get("content-type", "")
    if not kind.startswith("text/event-stream"):
        answer.fault("frames", f"a stream was asked for, and what came is {kind or 'of no type'}")
    reader = FrameReader()
    frames = reader.feed(answer.exchange.received)
    if (rest := reader.feed(b"\n\n")) and not answer.exchange.received.endswith(b"\n\n"):
        answer.fault("frames", "the last event has no empty line behind it")
        frames += rest
    return frames


def json_frames(answer: Answer, frames: list[SseFrame]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The events that are JSON objects, with their names."""
    for frame in frames:
        try:
            value = json.loads(frame.data)
        except (ValueError, RecursionError):
            answer.fault("frames", f"an event is no JSON: {frame.data[:80]}")
            continue
        if isinstance(value, dict):
            yield frame.event, as_object(value)
        else:
            answer.fault("frames", f"an event is no JSON object: {frame.data[:80]}")

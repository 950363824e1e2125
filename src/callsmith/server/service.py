"""Service: what routes are made with. Each takes the parts it needs."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from callsmith.server.http.body_reader import BodyReader
from callsmith.server.http.sockets import OpenSockets
from callsmith.server.http.streams import EventStream
from callsmith.server.pipeline import AnswerPipeline
from callsmith.server.served_models import ServedModels
from callsmith.server.settings import Settings
from callsmith.server.store import Store
from callsmith.server.store.audit_log import AuditLog
from callsmith.server.tools.planner import ToolPlanner

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Service:
    """The models, the tools, the pipeline that answers with them, and what reads requests and stores what is remembered.

    `parts` are those of `server/parts`. `on_shutdown` is what is left to be done when the server ends.
    """

    settings: Settings
    models: ServedModels
    tools: ToolPlanner
    answers: AnswerPipeline
    audit: AuditLog | None = None
    bodies: BodyReader = field(default_factory=BodyReader)
    sockets: OpenSockets = field(default_factory=OpenSockets)
    parts: tuple[Any, ...] = ()
    on_shutdown: list[Callable[[], Awaitable[None]]] = field(default_factory=list[Callable[[], Awaitable[None]]])

    def part(self, kind: type[T]) -> T:
        return next(part for part in self.parts if isinstance(part, kind))

    @property
    def store(self) -> Store:
        """What is remembered: responses, conversations, approvals, jobs."""
        return self.answers.store

    def stream(self, frames: AsyncIterator[bytes], failure: Callable[[BaseException], bytes], **options: Any) -> EventStream:
        settings = self.settings
        return EventStream(frames, failure, keep_alive=settings.keep_alive, stalled=settings.stalled_seconds, **options)

"""Requests of the Responses dialect, read and answered: the same whether they come over HTTP or WebSocket."""

import time
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from uuid import uuid4

from callsmith.core.errors import UsageError
from callsmith.core.events import Stopped
from callsmith.core.ports import model_info
from callsmith.core.values import Json
from callsmith.engines.port import with_defaults
from callsmith.engines.upstream.replicas import affinity_id
from callsmith.server.http.request_context import caller, client_session
from callsmith.server.routes.responses.answer import LiveResponse
from callsmith.server.routes.responses.mcp import answer_events, decided_in, sources_of, with_outcomes
from callsmith.server.routes.responses.stored import EarlierItems, RecentResponses, StoredResponses
from callsmith.server.service import Service
from callsmith.wire.extensions import ToolOptions, read_extensions
from callsmith.wire.kinds import kinds_of
from callsmith.wire.openai.mcp_events import McpEvent, McpWriter
from callsmith.wire.openai.responses import ResponsesRequest, read_references, read_request
from callsmith.wire.openai.responses_events import ResponsesHeading


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A request as it was read: what is asked, what it builds on, and how it uses the server's tools."""

    request: ResponsesRequest
    before: EarlierItems
    options: ToolOptions


@dataclass(frozen=True, slots=True)
class ResponsesDialect:
    """Reads requests and answers them. `running` are the answers being given: by who asked, and by their ids."""

    service: Service
    running: dict[str, dict[str, LiveResponse]] = field(default_factory=lambda: defaultdict[str, dict[str, LiveResponse]](dict))

    def open_stored(self, recent: RecentResponses | None = None) -> StoredResponses:
        """The responses of the caller; `recent` are those that only a connection knows."""
        return StoredResponses(self.service.store, caller(), recent)

    async def read(self, body: Json, stored: StoredResponses) -> ReadRequest:
        """Read a request, with what it refers to."""
        bodies, limits = self.service.bodies, self.service.settings.requests
        before, approvals = await stored.before(await bodies.read_with(read_references, body)), self.service.answers.approvals()
        decided = decided_in(body)
        if len(decided) > limits.approvals:
            raise UsageError(f"input: decides on {len(decided)} approvals, more than {limits.approvals}", field="input")
        if len(before.earlier) > limits.messages:
            why = f"the conversation has {len(before.earlier)} items, more than the {limits.messages} that are allowed"
            raise UsageError(f"previous_response_id: {why}", field="previous_response_id")
        earlier = await with_outcomes(list(before.earlier.values()), approvals, decided)
        if isinstance(body.get("input"), list):
            body["input"] = await with_outcomes(body["input"], approvals, decided)
        parsed = await bodies.read_with(read_request, body, earlier, before.known)
        if parsed.store and not before.is_stored:
            raise UsageError("store: what goes on from a response that was not stored cannot be stored", field="store")
        if parsed.store:
            await self.service.store.ensure()  # before an answer is given that could not be stored
        options, session = read_extensions(body)
        name = self.service.models.resolve(parsed.model)
        parsed = replace(parsed, model=name, request=parsed.request.in_session(session or before.conversation))
        shows_items = bool(parsed.servers) or options.shows_events
        options = replace(options, sources=sources_of(parsed.servers), shows_tool_items=shows_items)
        return ReadRequest(parsed, before, options)

    def answer(self, parsed: ReadRequest, stored: StoredResponses, *, generates: bool = True) -> LiveResponse:
        """The answer to a request, about to be given; an empty one, if it is only there to be gone on from."""
        request = parsed.request
        tools = self.service.tools.for_request().limit_calls(request.max_tool_calls, parsed.options)
        model = self.service.models.get(request.model)
        sampling = with_defaults(request.request.sampling, model_info(model).sampling)
        heading = ResponsesHeading(
            f"resp_{uuid4().hex}",
            request.model,
            int(time.time()),
            request.repeated,
            request.namespaces,
            sampling,
            time.time,
            kinds_of(request.request.tools),
            request.notices,
        )
        writer = McpWriter(heading, shows_events=parsed.options.shows_events)
        if not request.request.origin.session:  # the first response of a conversation names it
            own = request.request
            # Of what is not stored, no later request can know that name.
            affinity = own.origin.affinity or client_session() or ("" if request.store else affinity_id(own))
            request = replace(request, request=replace(own, origin=replace(own.origin, session=heading.id, affinity=affinity)))
        options = replace(parsed.options, response_id=heading.id)
        events = (
            answer_events(self.service.answers.with_tools(tools), model, request, options, writer) if generates else _no_events()
        )

        async def keep(response: Json) -> None:
            if request.background and not await stored.has(heading.id):
                return  # it was deleted meanwhile, at another server
            await stored.keep(response, parsed.before, request.input, store=request.store)

        return LiveResponse(events, writer, keep, self.running[caller()])


async def _no_events() -> AsyncIterator[McpEvent]:
    yield Stopped("stop")

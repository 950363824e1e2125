"""`/v1/approvals`: the calls that wait for a person's decision, and where it is made.

    GET  /v1/approvals?status=pending            (also: limit, after, order; status=all for all of them)
    GET  /v1/approvals/confirm_1f…
    POST /v1/approvals/confirm_1f…   {"approve": true, "arguments": {…}, "remember": true}
                                     {"approve": false, "reason": "Too expensive."}

A key with the scope `approver` sees the calls of other keys too, and decides on them.

Once it is decided the run is resumed, to its end, whether or not the client waits for that, and what the model then says is
under `answer`. Where a stream waits for the decision, the run goes on there and `answer` is null. The first decision counts: a
later one gets status 409, and under `approval` what was decided.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.approval import Approved, Decision, Denied
from callsmith.core.closing import closing
from callsmith.core.errors import CallsmithError
from callsmith.core.events import CallReady, ConfirmationNeeded, Stopped, Text, Thought, Unreadable
from callsmith.core.values import Json
from callsmith.server.approvals.approvals import AlreadyAnswered, Approval, Approvals, Status, write_view
from callsmith.server.http.keys import check_may_approve, visible_callers
from callsmith.server.http.pagination import paginate
from callsmith.server.http.request_context import act_for, caller
from callsmith.server.http.streams import JsonResponse
from callsmith.server.service import Service
from callsmith.server.tools.one_answer import AnswerEvent
from callsmith.wire.extensions import write_tool_event
from callsmith.wire.fields import Fields
from callsmith.wire.openai.common import write_error, write_failure, write_usage

PATH = "/v1/approvals"
_STATUSES = (*get_args(Status), "all")


def routes(service: Service) -> list[Route]:
    """The routes."""
    endpoints = _Endpoints(service)
    return [
        Route(PATH, endpoints.list, methods=["GET"]),
        Route(f"{PATH}/{{id}}", endpoints.retrieve, methods=["GET"]),
        Route(f"{PATH}/{{id}}", endpoints.answer, methods=["POST"]),
    ]


class _Endpoints:
    """The endpoints, and the runs that are being resumed."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._running: set[asyncio.Task[Json]] = set()  # an event loop does not keep its tasks alive by itself

    async def list(self, request: Request) -> Response:
        wanted = request.query_params.get("status", "pending")
        if wanted not in _STATUSES:
            raise Fields({}).error("status", f"unknown status {wanted!r}; expected one of {', '.join(_STATUSES)}")
        views = [
            _body(one, subject)
            for subject in visible_callers(self._service.settings.keys)
            for one in await self._service.answers.approvals(subject).all()
        ]
        views.sort(key=lambda view: view["created_at"])
        return JsonResponse(paginate([view for view in views if wanted in (view["status"], "all")], request))

    async def retrieve(self, request: Request) -> Response:
        found = await self._find(request.path_params["id"])
        return _not_found(request) if found is None else JsonResponse(_body(found[1], found[0].subject))

    async def answer(self, request: Request) -> Response:
        decision = _read_decision(Fields.of(await self._service.bodies.read(request), ""))
        id = request.path_params["id"]
        known = await self._find(id)
        if known is None:
            return _not_found(request)
        approvals, found = known
        by = caller()
        if approvals.subject == by:
            check_may_approve(decision)
        else:
            act_for(approvals.subject, self._service.settings.keys[approvals.subject])
        paused = await approvals.paused(found.run)
        if paused is not None:
            self._service.models.get(paused.model)  # if it is not there any more, nothing is decided
        try:
            is_waiting = paused is not None and any(one.id == id for one in paused.saved.pending)
            decided = await _decide(approvals, found, decision, by, is_waiting=is_waiting)
        except AlreadyAnswered as error:
            failure = write_failure(409, str(error), code="already_answered")
            now = _body(error.approval, approvals.subject)
            return JsonResponse({**failure.body, "approval": now}, status_code=failure.status)
        if not found.run:  # a question in the middle of a call: whoever asked it is waiting
            return JsonResponse({**_body(decided, approvals.subject), "answer": None})
        resuming = asyncio.create_task(self._resume(approvals, id))
        self._running.add(resuming)
        resuming.add_done_callback(self._running.discard)
        answer = await asyncio.shield(resuming)
        now = (await approvals.get(id)).get(id, decided)
        return JsonResponse({**_body(now, approvals.subject), "answer": answer})

    async def _find(self, id: str) -> tuple[Approvals, Approval] | None:
        """The approval of this id that the caller may see, and among whose it is."""
        for subject in visible_callers(self._service.settings.keys):
            approvals = self._service.answers.approvals(subject)
            if found := (await approvals.get(id)).get(id):
                return approvals, found
        return None

    async def _resume(self, approvals: Approvals, id: str) -> Json:
        """What the model says now that it is decided; None where somebody else resumes the run."""
        async with AsyncExitStack() as leases:
            if not await approvals.take_leases([id], leases, unless_running=True):
                return None
            found = (await approvals.get(id)).get(id)  # None: deleted in the meantime
            paused = None if found is None else await approvals.paused(found.run)
            if paused is None or all(one.id != id for one in paused.saved.pending):
                return None
            return await _answer(self._service.answers.resume(paused))


async def _decide(approvals: Approvals, found: Approval, decision: Decision, by: str, *, is_waiting: bool) -> Approval:
    """Enter the decision. The same once more is welcome where whoever was to resume from the first is gone, and a run waits."""
    is_open = found.result is None or is_waiting
    if is_open and type(found.decision) is type(decision) and await approvals.is_abandoned(found):
        return found
    return await approvals.decide(found, decision, by)


async def _answer(events: AsyncIterator[AnswerEvent]) -> Json:
    texts, thoughts, reason, usage = list[str](), list[str](), "stop", None
    calls, waiting = list[Json](), list[Json]()
    try:
        async with closing(events):
            async for event in events:
                match event:
                    case Text(text) | Unreadable(text):
                        texts.append(text)
                    case Thought(text):
                        thoughts.append(text)
                    case CallReady(call=call):
                        calls.append({"id": call.id, "name": call.name, "arguments": dict(call.arguments)})
                    case ConfirmationNeeded():
                        waiting.append(write_tool_event(event))
                    case Stopped():
                        reason, usage = event.reason, write_usage(event.usage)
                    case _:
                        pass
    except CallsmithError as error:  # what was decided has been done all the same
        return write_error(error).body
    return {
        "text": "".join(texts),
        "reasoning": "".join(thoughts) or None,
        "approvals": waiting,
        "calls": calls,
        "stop_reason": "confirmation" if waiting else reason,
        "usage": usage,
    }


def _read_decision(fields: Fields) -> Decision:
    approve, arguments = fields.flag("approve"), fields.object("arguments")
    if approve is None:
        raise fields.error("approve", "is required: true or false")
    if approve:
        return Approved(None if arguments is None else arguments.data, fields.flag("remember") or False)
    return Denied(fields.text("reason") or "")


def _body(approval: Approval, subject: str) -> dict[str, Json]:
    """An approval as whoever decides sees it, with whose call it is where callers have names."""
    return {**write_view(approval), **({"caller": subject} if subject else {})}


def _not_found(request: Request) -> Response:
    failure = write_failure(404, f"there is no approval {request.path_params['id']!r}")
    return JsonResponse(failure.body, status_code=failure.status)

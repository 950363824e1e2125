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
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import get_args

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.approval import Approved, Decision, Denied
from callsmith.core.closing import closing
from callsmith.core.errors import CallsmithError
from callsmith.core.events import ConfirmationNeeded
from callsmith.core.values import Json
from callsmith.runtime.loop import AnswerBuilder
from callsmith.server.approvals.approvals import AlreadyAnswered, Approval, Approvals, Status, write_view
from callsmith.server.http.keys import check_may_approve, visible_callers
from callsmith.server.http.pagination import paginate, read_choice
from callsmith.server.http.request_context import act_for, caller
from callsmith.server.http.streams import JsonResponse
from callsmith.server.service import Service
from callsmith.server.tools.one_answer import AnswerEvent
from callsmith.wire.extensions import TOOL_EVENTS, write_tool_event
from callsmith.wire.openai.common import write_error, write_failure, write_usage
from callsmith.wire.schemas.own import DecisionFields

PATH = "/v1/approvals"
_STATUSES = (*get_args(Status), "all")
_OPEN = ("pending", "approved", "running")  # nothing has come of these yet


def routes(service: Service) -> list[Route]:
    running: set[asyncio.Task[Json]] = set()  # an event loop does not keep its tasks alive by itself

    async def list_approvals(request: Request) -> Response:
        wanted = read_choice(request, "status", "pending", _STATUSES)
        listed = list[tuple[Approval, str]]()
        for subject in visible_callers(service.settings.keys):
            approvals = await service.answers.approvals(subject).all(only_open=wanted in _OPEN)
            listed += [(approval, subject) for approval in approvals if wanted in (approval.status_at(time.time()), "all")]
        listed.sort(key=lambda item: int(item[0].created))
        page = paginate([{"id": approval.id} for approval, _ in listed], request)
        by_id = {approval.id: (approval, subject) for approval, subject in listed}
        return JsonResponse({**page, "data": [_body(*by_id[item["id"]]) for item in page["data"]]})

    async def retrieve(request: Request) -> Response:
        approvals, approval = await _find(service, request.path_params["id"])
        return JsonResponse(_body(approval, approvals.subject))

    async def answer(request: Request) -> Response:
        decision = _read_decision(DecisionFields.of(await service.bodies.read(request), ""))
        id, by = request.path_params["id"], caller()
        approvals, approval = await _find(service, id)
        if approvals.subject == by:
            check_may_approve(decision)
        else:
            act_for(approvals.subject, service.settings.keys[approvals.subject])
        paused = await approvals.get_run(approval.run)
        if paused is not None:
            service.models.get(paused.model)  # if it is not there any more, nothing is decided
        try:
            decided = await _decide(approvals, approval, decision, by, is_waiting=paused is not None and paused.waits_for(id))
        except AlreadyAnswered as error:
            failure = write_failure(409, str(error), code="already_answered")
            now = _body(error.approval, approvals.subject)
            return JsonResponse({**failure.body, "approval": now}, status_code=failure.status)
        if not approval.run:  # a question in the middle of a call: whoever asked it is waiting
            return JsonResponse({**_body(decided, approvals.subject), "answer": None})
        resuming = asyncio.create_task(_resume(service, approvals, id))
        running.add(resuming)
        resuming.add_done_callback(running.discard)
        answer_body = await asyncio.shield(resuming)
        now = (await approvals.get(id)).get(id, decided)
        return JsonResponse({**_body(now, approvals.subject), "answer": answer_body})

    path = f"{PATH}/{{id}}"
    return [Route(PATH, list_approvals), Route(path, retrieve), Route(path, answer, methods=["POST"])]


async def _find(service: Service, id: str) -> tuple[Approvals, Approval]:
    """The approval of this id that the caller may see, and among whose it is."""
    for subject in visible_callers(service.settings.keys):
        approvals = service.answers.approvals(subject)
        if approval := (await approvals.get(id)).get(id):
            return approvals, approval
    raise HTTPException(404, f"there is no approval {id!r}")


async def _resume(service: Service, approvals: Approvals, id: str) -> Json:
    """What the model says now that it is decided; None where somebody else resumes the run."""
    async with AsyncExitStack() as leases:
        if not await approvals.take_leases([id], leases, unless_running=True):
            return None
        approval = (await approvals.get(id)).get(id)  # None: deleted in the meantime
        paused = approval and await approvals.get_run(approval.run)
        return await _answer(service.answers.resume(paused)) if paused and paused.waits_for(id) else None


async def _decide(approvals: Approvals, approval: Approval, decision: Decision, by: str, *, is_waiting: bool) -> Approval:
    """Enter the decision. The same once more is welcome where whoever was to resume from the first is gone, and a run waits."""
    is_open = approval.result is None or is_waiting
    if is_open and type(approval.decision) is type(decision) and await approvals.is_abandoned(approval):
        return approval
    return await approvals.decide(approval, decision, by)


async def _answer(events: AsyncIterator[AnswerEvent]) -> Json:
    answer, waiting = AnswerBuilder(), list[Json]()
    try:
        async with closing(events):
            async for event in events:
                if isinstance(event, ConfirmationNeeded):
                    waiting.append(write_tool_event(event))
                elif not isinstance(event, TOOL_EVENTS):
                    answer.add(event)
    except CallsmithError as error:  # what was decided has been done all the same
        return write_error(error).body
    return {
        "text": "".join(answer.text),
        "reasoning": "".join(answer.thought) or None,
        "approvals": waiting,
        "calls": [{"id": call.id, "name": call.name, "arguments": dict(call.arguments)} for call in answer.calls],
        "stop_reason": "confirmation" if waiting else answer.reason,
        "usage": write_usage(answer.usage),
    }


def _read_decision(fields: DecisionFields) -> Decision:
    approve, arguments = fields.approve, fields.arguments
    if approve:
        return Approved(None if arguments is None else arguments.data, fields.remember or False)
    return Denied(fields.reason or "")


def _body(approval: Approval, subject: str) -> dict[str, Json]:
    """An approval as whoever decides sees it, with whose call it is where callers have names."""
    return {**write_view(approval), **({"caller": subject} if subject else {})}

"""`/v1/jobs`: calls of tools that run in the background, and the results of those that have ended.

    GET    /v1/jobs?status=running            (also: limit, after, order)
    GET    /v1/jobs/job_1f…
    GET    /v1/jobs/job_1f…/events            progress as server-sent events, and at last the job
    DELETE /v1/jobs/job_1f…                   stops it

A caller sees its own, an admin's key those of all. The result of a job comes into its conversation by itself.
"""

import time
from collections.abc import AsyncIterator
from typing import get_args

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.closing import closing
from callsmith.core.events import ToolProgress
from callsmith.core.values import Json
from callsmith.runtime.jobs.job import Job, JobStatus
from callsmith.server.http.pagination import paginate, read_choice
from callsmith.server.http.request_context import caller, is_admin
from callsmith.server.http.streams import JsonResponse, encode
from callsmith.server.service import Service
from callsmith.wire.openai.common import write_error
from callsmith.wire.sse import write_frame

PATH = "/v1/jobs"
_STATUSES = (*get_args(JobStatus), "all")


def routes(service: Service) -> list[Route]:
    jobs = service.tools.jobs

    async def list_jobs(request: Request) -> Response:
        wanted = read_choice(request, "status", "all", _STATUSES)
        known = [job for subject in _visible_callers(service) for job in await jobs.list(subject)]
        views = [_view(service, job) for job in sorted(known, key=lambda job: job.created) if wanted in (job.status, "all")]
        return JsonResponse(paginate(views, request))

    async def retrieve(request: Request) -> Response:
        return JsonResponse(_view(service, await _find(service, request)))

    async def cancel(request: Request) -> Response:
        after = await jobs.cancel(await _find(service, request))
        if after is None:
            raise _not_found(request)
        return JsonResponse(_view(service, after))

    async def events(request: Request) -> Response:
        return service.stream(_frames(service, await _find(service, request)), _failure)

    return [
        Route(PATH, list_jobs),
        Route(f"{PATH}/{{id}}", retrieve),
        Route(f"{PATH}/{{id}}", cancel, methods=["DELETE"]),
        Route(f"{PATH}/{{id}}/events", events),
    ]


async def _frames(service: Service, job: Job) -> AsyncIterator[bytes]:
    async with closing(service.tools.jobs.follow(job)) as items:
        async for item in items:
            if not isinstance(item, ToolProgress):
                yield write_frame(encode(_view(service, item)), b"done")
            elif job.subject == caller():
                yield write_frame(encode({**_progress(item), "id": job.id}), b"tool_progress")


async def _find(service: Service, request: Request) -> Job:
    """The job that the request names, if the caller may see it."""
    for subject in _visible_callers(service):
        if job := await service.tools.jobs.get(subject, request.path_params["id"]):
            return job
    raise _not_found(request)


def _visible_callers(service: Service) -> tuple[str, ...]:
    """Those whose jobs the caller may see."""
    own, keys = caller(), service.settings.keys
    return (own, *(name for name in keys if name != own)) if keys and is_admin() else (own,)


def _view(service: Service, job: Job) -> dict[str, Json]:
    result, progress = job.result, service.tools.jobs.progress(job.id)
    view: dict[str, Json] = {
        "id": job.id,
        "object": "job",
        "status": job.status,
        "tool": job.call.name,
        "created_at": int(job.created),
        "seconds": round(max(0.0, (job.ended or time.time()) - job.created), 3),
        **({"caller": job.subject} if job.subject else {}),
    }
    if job.subject != caller():  # an admin sees that there is one, and may end it
        return view
    return view | {
        "arguments": dict(job.call.arguments),
        "session_id": job.conversation or None,
        "progress": _progress(progress) if progress else None,
        "result": result and {"ok": result.ok, "content": result.text, "code": result.code or None},
    }


def _progress(progress: ToolProgress) -> dict[str, Json]:
    return {"text": progress.text, "current": progress.current, "total": progress.total}


def _failure(error: BaseException) -> bytes:
    return write_frame(encode(write_error(error).body), b"error")


def _not_found(request: Request) -> HTTPException:
    return HTTPException(404, f"there is no job {request.path_params['id']!r}")

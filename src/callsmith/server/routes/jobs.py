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

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.closing import closing
from callsmith.core.events import ToolProgress
from callsmith.core.values import Json
from callsmith.runtime.jobs.job import Job, JobStatus
from callsmith.server.http.pagination import paginate
from callsmith.server.http.request_context import caller, is_admin
from callsmith.server.http.streams import JsonResponse
from callsmith.server.service import Service
from callsmith.wire.fields import Fields
from callsmith.wire.openai.common import write_error, write_failure
from callsmith.wire.sse import write_frame

PATH = "/v1/jobs"
_STATUSES = (*get_args(JobStatus), "all")


def routes(service: Service) -> list[Route]:
    """The routes."""
    endpoints = _Endpoints(service)
    return [
        Route(PATH, endpoints.list, methods=["GET"]),
        Route(f"{PATH}/{{id}}", endpoints.retrieve, methods=["GET"]),
        Route(f"{PATH}/{{id}}", endpoints.cancel, methods=["DELETE"]),
        Route(f"{PATH}/{{id}}/events", endpoints.events, methods=["GET"]),
    ]


class _Endpoints:
    """The endpoints."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def list(self, request: Request) -> Response:
        wanted = request.query_params.get("status", "all")
        if wanted not in _STATUSES:
            raise Fields({}).error("status", f"unknown status {wanted!r}; expected one of {', '.join(_STATUSES)}")
        jobs = [job for subject in self._callers() for job in await self._service.tools.jobs.list(subject)]
        views = [self._view(job) for job in sorted(jobs, key=lambda job: job.created) if wanted in (job.status, "all")]
        return JsonResponse(paginate(views, request))

    async def retrieve(self, request: Request) -> Response:
        job = await self._find(request)
        return _not_found(request) if job is None else JsonResponse(self._view(job))

    async def cancel(self, request: Request) -> Response:
        job = await self._find(request)
        after = None if job is None else await self._service.tools.jobs.cancel(job)
        return _not_found(request) if after is None else JsonResponse(self._view(after))

    async def events(self, request: Request) -> Response:
        job = await self._find(request)
        return _not_found(request) if job is None else self._service.stream(self._frames(job), _failure)

    async def _frames(self, job: Job) -> AsyncIterator[bytes]:
        async with closing(self._service.tools.jobs.follow(job)) as items:
            async for item in items:
                if isinstance(item, ToolProgress) and job.subject != caller():
                    continue
                if isinstance(item, ToolProgress):
                    progress = {**_progress(item), "id": job.id}
                    yield write_frame(msgspec.json.encode(progress), b"tool_progress")
                else:
                    yield write_frame(msgspec.json.encode(self._view(item)), b"done")

    async def _find(self, request: Request) -> Job | None:
        """The job that the request names, if the caller may see it."""
        for subject in self._callers():
            if found := await self._service.tools.jobs.get(subject, request.path_params["id"]):
                return found
        return None

    def _callers(self) -> tuple[str, ...]:
        """Those whose jobs the caller may see."""
        own, keys = caller(), self._service.settings.keys
        return (own, *(name for name in keys if name != own)) if keys and is_admin() else (own,)

    def _view(self, job: Job) -> dict[str, Json]:
        result, progress = job.result, self._service.tools.jobs.progress(job.id)
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
    return write_frame(msgspec.json.encode(write_error(error).body), b"error")


def _not_found(request: Request) -> Response:
    failure = write_failure(404, f"there is no job {request.path_params['id']!r}")
    return JsonResponse(failure.body, status_code=failure.status)

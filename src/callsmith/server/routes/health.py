"""`/health` and `/ready`, for monitoring; `/v1/upstreams`: the other servers that answer for models.

    GET  /v1/upstreams     {"upstreams": {"m": [{"url": "http://gpu1:8000/v1", "state": "up", "answering": 3, …}]}}
    POST /v1/upstreams     {"url": "http://gpu1:8000/v1", "draining": true}: it finishes what it is answering, and gets no more

Only an admin's key may see and change upstreams.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.errors import CallsmithError, UnknownName
from callsmith.core.ports import UpstreamStatus, model_info
from callsmith.core.values import Json
from callsmith.models.router import model_status
from callsmith.server.http.request_context import caller, is_admin
from callsmith.server.http.shutdown import DRAINING
from callsmith.server.http.streams import JsonResponse
from callsmith.server.service import Service
from callsmith.server.store import Store
from callsmith.tools.mcp import Status
from callsmith.wire.schemas.own import DrainFields

_CHECK_SECONDS = 2.0  # that a check of the store may take
_PATIENCE = 2.0  # seconds tools may take to say that they are there


def routes(service: Service) -> list[Route]:
    """The routes for watchers.

    Ready is more than alive: every model is there, one of them at least can answer, the store works, and the server is not about
    to leave. A model that is loaded when it is asked for counts as there; that it could not be loaded the last time is said in
    `/health`. A key that is not an admin's is shown its own models and tools. `/ready?without=store,upstreams` leaves out what
    all servers share: a load balancer should not take every one of them away because a database or an upstream is.
    """
    probe = StoreProbe(service.store)

    async def health(request: Request) -> Response:
        statuses = {name: model_status(model) for name, model in service.models.all.items()}
        models = {name: "ready" if model_state.state == "loaded" else model_state.state for name, model_state in statuses.items()}
        servers = service.tools.mcp.status() if service.tools.mcp else ()
        starts = any(server.state in ("configured", "starting") for server in servers)
        tools = {} if starts else await _tools(service)  # they would wait for the servers
        problem = await probe.problem()
        failed = problem or "error" in tools or "failed" in models.values()
        is_loading = not all(model_info(model).ready for model in service.models.all.values())
        states = {*(server.state for server in servers), *(["failed"] if failed else []), *(["starting"] if is_loading else [])}
        status = "degraded" if "failed" in states else "starting" if states & {"configured", "starting"} else "ok"
        if service.settings.keys and not caller():
            return JsonResponse({"status": status})
        body: dict[str, Json] = {"status": status, "models": models, "tools": tools}
        body["store_is_lasting"] = service.store.is_lasting
        if not is_admin():
            body["models"] = {name: models[name] for name in service.models.visible()}
        else:
            body |= {"store": problem or "ok", "answering": service.answers.gate.active}
            body |= {"upstreams": upstreams} if (upstreams := describe_upstreams(service)) else {}
            errors = {name: model_state.error for name, model_state in statuses.items() if model_state.error}
            body |= {"model_errors": errors} if errors else {}
            body |= {"mcp": {server.name: _status_body(server) for server in servers}} if service.tools.mcp else {}
        return JsonResponse(body)

    async def ready(request: Request) -> Response:
        if DRAINING in request.scope and request.scope[DRAINING].is_set():
            return _not_ready("the server is shutting down")
        loading = [name for name, model in service.models.all.items() if not model_info(model).ready]
        if loading:
            return _not_ready(f"loading: {', '.join(loading)}" if is_admin() else "loading")
        without = request.query_params.get("without", "").split(",")
        if "upstreams" not in without and (away := _without_upstream(service)):
            return _not_ready(f"no server answers for: {', '.join(away)}" if is_admin() else "no server answers")
        return _not_ready("store") if "store" not in without and await probe.problem() else JsonResponse({"ready": True})

    async def upstreams(request: Request) -> Response:
        if not is_admin():
            raise HTTPException(403, "only a key with the scope admin may see the upstreams")
        return JsonResponse({"upstreams": describe_upstreams(service)})

    async def drain(request: Request) -> Response:
        if not is_admin() or (service.settings.open and not service.settings.keys):
            raise HTTPException(403, "only a key with the scope admin may drain an upstream")
        fields = DrainFields.of(await service.bodies.read(request), "")
        _drain(service, fields.url, fields.draining)
        return JsonResponse({"upstreams": describe_upstreams(service)})

    return [
        Route("/health", health),
        Route("/ready", ready),
        Route("/v1/upstreams", upstreams),
        Route("/v1/upstreams", drain, methods=["POST"]),
    ]


def visible_upstreams(service: Service) -> dict[str, Sequence[UpstreamStatus]]:
    """The upstreams of each model that has some, where the caller may see them."""
    upstreams_of = {name: model_info(model).upstreams for name, model in service.models.all.items()} if is_admin() else {}
    return {name: upstreams.status() for name, upstreams in upstreams_of.items() if upstreams is not None}


def describe_upstreams(service: Service) -> dict[str, Json]:
    """The upstreams of each model, as JSON."""
    return {name: [asdict(server) for server in servers] for name, servers in visible_upstreams(service).items()}


def _drain(service: Service, url: str, draining: bool) -> None:
    """Drain a server for every model that it answers for."""
    known = visible_upstreams(service)
    meant = [name for name, servers in known.items() if url.rstrip("/") in {server.url for server in servers}]
    if not meant:
        raise UnknownName("upstream", url, {server.url for servers in known.values() for server in servers}, field="url")
    for name in meant:
        upstreams = model_info(service.models.all[name]).upstreams
        if upstreams is not None:
            upstreams.drain(url, draining)


class StoreProbe:
    """Has the store checked at most once in so many seconds; in between the last outcome holds."""

    def __init__(self, store: Store, *, seconds: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._seconds = seconds
        self._clock = clock
        self._lock = asyncio.Lock()
        self._checked_at: float | None = None
        self._problem = ""

    async def problem(self) -> str:
        """What is wrong with the store; empty if nothing is."""
        async with self._lock:
            if self._checked_at is None or self._clock() - self._checked_at >= self._seconds:
                self._problem = await self._check()
                self._checked_at = self._clock()
            return self._problem

    async def _check(self) -> str:
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                await self._store.check()
        except TimeoutError:
            return f"the store did not answer within {_CHECK_SECONDS:g} s"
        except CallsmithError as error:
            return str(error)
        return ""


def _status_body(status: Status) -> dict[str, Json]:
    """How an MCP server is, without what is empty."""
    return {name: value for name, value in asdict(status).items() if name != "name" and value not in ("", ())}


def _without_upstream(service: Service) -> list[str]:
    """The models, where there is none that could answer: of each, all the servers that answer for it are down or draining."""
    known = {name: model_info(model).upstreams for name, model in service.models.all.items()}
    states = {name: {upstream.state for upstream in upstreams.status()} for name, upstreams in known.items() if upstreams}
    away = [name for name, known_states in states.items() if known_states <= {"down", "draining"}]
    return away if len(away) == len(known) else []


def _not_ready(why: str) -> Response:
    return JsonResponse({"ready": False, "why": why}, status_code=503)


async def _tools(service: Service) -> dict[str, Json]:
    """How many tools the caller has, by where they come from; or what is wrong."""
    if service.tools.toolset is None:
        return {}
    try:
        async with asyncio.timeout(_PATIENCE):
            known = await (service.tools.toolset.tools() if is_admin() else service.tools.open_tools().tools())
    except Exception as error:  # whatever a source of tools does wrong, the server lives
        return {"error": type(error).__name__}
    return dict(Counter(tool.source or "functions" for tool in known))

"""`/health` and `/ready`, for monitoring."""

import asyncio
from collections import Counter
from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.ports import model_info
from callsmith.core.values import Json
from callsmith.models.router import model_status
from callsmith.server.http.request_context import caller, is_admin
from callsmith.server.http.shutdown import DRAINING
from callsmith.server.http.streams import JsonResponse
from callsmith.server.routes.upstreams import describe_upstreams
from callsmith.server.service import Service
from callsmith.server.store.probe import StoreProbe
from callsmith.tools.mcp import Status

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

    return [Route("/health", health), Route("/ready", ready)]


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

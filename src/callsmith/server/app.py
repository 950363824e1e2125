"""The server: `uvicorn.run(create_app({"qwen": model}, tools=[weather]))`."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from importlib import import_module

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

from callsmith.core.errors import CallsmithError, UsageError
from callsmith.core.ports import Model
from callsmith.models.router import Aliases, LazyModel
from callsmith.runtime.jobs.jobs import Jobs
from callsmith.server.http.body_reader import BodyReader
from callsmith.server.http.errors import Dialect, on_disconnect, on_error, on_http_error, refuse
from callsmith.server.http.keys import KeyMiddleware
from callsmith.server.http.request_context import HEADER, RequestContextMiddleware, request_id
from callsmith.server.http.streams import cancel_all
from callsmith.server.jobs import StoredJobs, recover_jobs
from callsmith.server.network.origins import OriginMiddleware, allowed_hosts
from callsmith.server.parts import Part, open_parts
from callsmith.server.pipeline import AnswerPipeline, RecentTurns
from callsmith.server.routes import route_modules
from callsmith.server.served_models import ServedModels
from callsmith.server.service import Service
from callsmith.server.settings import Settings
from callsmith.server.store import Store, StoreLimits
from callsmith.server.store.audit_log import AuditLog
from callsmith.server.store.sqlite import SqliteStore
from callsmith.server.tools.planner import ToolPlanner
from callsmith.server.tools.tool_selection import wrap_server_tools
from callsmith.tools.functions import Tools, as_toolset
from callsmith.tools.mcp import McpHost
from callsmith.tools.starter import starter_toolset

STANDARD_SETTINGS = Settings()


def create_app(
    models: Mapping[str, Model],
    *,
    tools: Tools | None = None,
    settings: Settings = STANDARD_SETTINGS,
    store: Store | None = None,
    mcp: McpHost | None = None,
    parts: Sequence[Part] = (),
) -> Starlette:
    """The ASGI application that serves these models, and runs these tools for requests that bring none of their own.

    What has to be remembered is in the store; if none is given, in memory. MCP servers live as long as the application. Every
    part of `server/parts` is opened as the settings describe it, unless it is given.
    """
    if not models:
        raise UsageError("a server needs at least one model")
    if settings.llm.tools_code:
        import_module("callsmith.code")  # says what is missing, before anybody asks
    store = store or SqliteStore(limits=StoreLimits(bytes=settings.store_bytes))
    audit = AuditLog(store, settings.audit, request_id)
    audited = None if settings.audit == "off" else audit
    parts = open_parts(settings, parts)
    dialects = [dialect for module in route_modules() if isinstance(dialect := vars(module).get("DIALECT"), Dialect)]
    toolset = wrap_server_tools(
        None if tools is None else as_toolset(tools),
        settings.llm,
        mcp,
        audited,
        {part.name: tools for part in parts if (tools := part.tools(settings)) is not None},
    )
    has_starter = toolset is None and settings.page
    starter = wrap_server_tools(starter_toolset(), settings.llm, audit=audited) if has_starter else None
    jobs = Jobs(StoredJobs(store, settings.jobs), settings.jobs, settings.limits.result_characters)
    served, planner = ServedModels(models, Aliases(settings.aliases, models)), ToolPlanner(settings, toolset, starter, mcp, jobs)
    answers = AnswerPipeline(settings, served, planner, store, turns=RecentTurns(settings.recent_turns))
    bodies = BodyReader(settings.requests, [field for dialect in dialects for field in dialect.wrappers])
    service = Service(settings, served, planner, answers, audit, bodies, parts=parts)
    for part in parts:
        part.attach(service)
    app = Starlette(
        routes=[route for module in route_modules() for route in module.routes(service)],
        exception_handlers={
            CallsmithError: on_error,
            HTTPException: on_http_error,
            ClientDisconnect: on_disconnect,
        },
        middleware=_middleware(settings, [HEADER, *(dialect.id_header for dialect in dialects if dialect.id_header)]),
        lifespan=lambda _: _lifespan(service, parts),
    )
    app.state.dialects = dialects
    # Behind those of the routes: these are used by what they end.
    service.on_shutdown.extend((*(part.close for part in parts), jobs.close, audit.close))
    return app


@asynccontextmanager
async def _lifespan(service: Service, parts: Iterable[Part]) -> AsyncGenerator[None, None]:
    for model in service.models.all.values():
        if isinstance(model, LazyModel):
            model.count_idle_time()
    async with service.tools.mcp or nullcontext(), AsyncExitStack() as stack:
        for part in parts:
            await stack.enter_async_context(part.running())
        recovery = asyncio.create_task(recover_jobs(service))
        yield
        await cancel_all(recovery)
        for finish in service.on_shutdown:
            await finish()


def _middleware(settings: Settings, id_headers: list[str]) -> list[Middleware]:
    """The middleware of every route, from the outside to the inside."""
    middleware = [
        Middleware(RequestContextMiddleware, on_error, access=settings.log.access, id_headers=id_headers),
        Middleware(OriginMiddleware, refuse, host=settings.host, hosts=allowed_hosts(settings), origins=settings.cors_origins),
    ]
    if settings.cors_origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=[*id_headers, "retry-after"],
        )
        middleware.insert(0, cors)  # a browser asks beforehand, without a key
    if settings.keys:
        most, most_open = settings.connections_per_address, settings.connections // 4
        middleware.append(Middleware(KeyMiddleware, settings.keys, most=most, most_open=most_open))
    return middleware

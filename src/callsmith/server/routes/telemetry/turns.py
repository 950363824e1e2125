"""`/v1/turns` and `/v1/telemetry`: a caller's latest turns, and what they come to; an admin's key sees those of all.

    GET /v1/turns?limit=20
    GET /v1/telemetry?minutes=60

The latest turns of each caller are in memory (`server.recent_turns`). What was said is in none of them.
"""

import time
from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.values import Json
from callsmith.runtime.telemetry.summary import summarize
from callsmith.server.http.pagination import read_number
from callsmith.server.http.request_context import caller, is_admin
from callsmith.server.http.streams import JsonResponse
from callsmith.server.recent_turns import CallerTurn
from callsmith.server.service import Service
from callsmith.wire.extensions import write_decision

_MOST_TURNS = 1_000  # in one answer
_MOST_MINUTES = 24 * 60


def turn_routes(service: Service) -> list[Route]:
    """The routes of turns."""

    async def turns(request: Request) -> Response:
        limit = read_number(request, "limit", 20, _MOST_TURNS)
        return JsonResponse({"object": "list", "data": [_view(recorded) for recorded in _visible(service)[:limit]]})

    async def telemetry(request: Request) -> Response:
        minutes = read_number(request, "minutes", 60, _MOST_MINUTES)
        return JsonResponse(asdict(summarize((recorded.turn for recorded in _visible(service)), time.time(), minutes)))

    return [Route("/v1/turns", turns), Route("/v1/telemetry", telemetry)]


def _visible(service: Service) -> list[CallerTurn]:
    """The turns that the caller may see, the latest first."""
    return service.answers.turns.latest(None if is_admin() else (caller(),))


def _view(recorded: CallerTurn) -> Json:
    decided = write_decision(recorded.turn.decision)
    return {
        **asdict(recorded.turn),
        **decided,
        "request_id": recorded.request,
        **({"caller": recorded.caller} if recorded.caller else {}),
    }

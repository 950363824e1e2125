"""What is known of the turns so far: `/metrics` for monitoring, `/v1/turns` and `/v1/telemetry` for persons."""

from starlette.routing import Route

from callsmith.server.routes.telemetry.metrics import metrics_routes
from callsmith.server.routes.telemetry.turns import turn_routes
from callsmith.server.service import Service


def routes(service: Service) -> list[Route]:
    """The routes."""
    return [*metrics_routes(service), *turn_routes(service)]

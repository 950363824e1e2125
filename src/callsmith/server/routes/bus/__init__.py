"""The capability bus over HTTP, SSE and WebSocket."""

from callsmith.server.routes.bus.dialect import DIALECT
from callsmith.server.routes.bus.endpoints import routes

__all__ = ["DIALECT", "routes"]

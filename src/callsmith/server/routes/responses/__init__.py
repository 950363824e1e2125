"""`/v1/responses`."""

from callsmith.server.routes.responses.endpoints import routes

__all__ = ["routes"]

"""`/openapi.json`: every route of this server with its schemas, as OpenAPI 3.1."""

from callsmith.server.routes.openapi.endpoints import routes

__all__ = ["routes"]

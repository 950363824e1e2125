"""A bus whose capabilities are those of a server, called over HTTP and WebSocket."""

from callsmith.bus.http.transport import HttpTransport

__all__ = ["HttpTransport"]

"""`/v1/responses`."""

from functools import partial

from callsmith.server.http.dialects import Dialect
from callsmith.server.routes.responses.endpoints import PATH, routes
from callsmith.wire.openai.common import write_error, write_failure

DIALECT = Dialect(partial(write_error, prompt="input"), write_failure, paths=(PATH,))

__all__ = ["DIALECT", "routes"]

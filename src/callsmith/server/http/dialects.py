"""Which API dialect a request speaks.

A dialect is found by listing `server/routes`: see `DIALECT` in its modules. The application has them in `app.state.dialects`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from starlette.requests import HTTPConnection

from callsmith.core.values import Json
from callsmith.wire.errors import Failure
from callsmith.wire.model_list import ListedModel
from callsmith.wire.openai import common as openai


@dataclass(frozen=True, slots=True)
class Dialect:
    """How clients of one API read errors and the list of models, and which requests are theirs.

    `paths` are the beginnings of paths that no other dialect has. `headers` only its clients send: they decide on
    a path that several dialects have, such as `/v1/models`. `error_event` is the name of the event that ends a stream with an
    error, where the body of the error does not say it. `id_header` is a header for the id of a request, besides ours. `wrappers`
    are fields that hold a request in another one, whose parts are measured like those of any request.
    """

    write_error: Callable[[BaseException], Failure]
    write_failure: Callable[[int, str], Failure]
    paths: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    error_event: str = ""
    id_header: str = ""
    wrappers: tuple[str, ...] = ()
    write_model: Callable[[ListedModel], Json] = openai.write_model
    write_models: Callable[[Iterable[ListedModel]], dict[str, Json]] = openai.write_models

    def owns(self, path: str) -> bool:
        """Whether this path is in one of `paths`."""
        return any(path == start or path.startswith(f"{start}/") for start in self.paths)


DEFAULT = Dialect(openai.write_error, openai.write_failure)  # also where there is no dialect: `/health`, unknown paths


def dialect_of(request: HTTPConnection) -> Dialect:
    """The dialect of a request: by its path, or else by a header; otherwise OpenAI's."""
    known: Sequence[Dialect] = request.app.state.dialects if "app" in request.scope else ()
    by_path = (dialect for dialect in known if dialect.owns(request.url.path))
    by_header = (dialect for dialect in known if any(header in request.headers for header in dialect.headers))
    return next(by_path, None) or next(by_header, DEFAULT)

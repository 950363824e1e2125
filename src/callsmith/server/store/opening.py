"""The store that a setting names: a file, a database, or memory."""

import re
from urllib.parse import urlsplit

from callsmith.core.errors import UsageError
from callsmith.server.store import DEFAULT_LIMITS, Store, StoreLimits
from callsmith.server.store.sqlite import SqliteStore

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_PASSWORD = re.compile(r"(://[^:@/?]*:).*(?=@)|([?&](?:ssl)?password=)[^&]*")
_EXPECTED = "expected a file, or postgresql://USER@HOST:PORT/DATABASE"


def open_store(where: str | None, *, limits: StoreLimits = DEFAULT_LIMITS, connections: int = 8) -> Store:
    """Open the store: `postgresql://…` is a database, other texts are files of SQLite, and without any it is in memory."""
    scheme = _SCHEME.match(where or "")
    if scheme is None:
        return SqliteStore(where or ":memory:", limits=limits)
    assert where is not None
    _check_url(where, scheme[1].lower())
    from callsmith.server.store.postgres import PostgresStore

    store = PostgresStore(where, limits=limits, connections=connections)
    try:
        store.open()
    except BaseException:
        store.close()
        raise
    return store


def without_password(where: str) -> str:
    """The name of a store as it may be shown."""
    return _PASSWORD.sub(lambda match: f"{match[1] or match[2]}***", where) if _SCHEME.match(where) else where


def _check_url(url: str, scheme: str) -> None:
    problem = ""
    try:
        parts = urlsplit(url)
        if scheme not in ("postgresql", "postgres"):
            problem = f"{scheme} is no store"
        elif not parts.path.strip("/"):
            problem = "names no database"
        elif "," not in parts.netloc:  # several hosts are the driver's matter
            _ = parts.port
    except ValueError as error:
        problem = str(error)
    if problem:
        raise UsageError(f"server.store: {without_password(url)}: {problem}; {_EXPECTED}", field="server.store")

"""The store of a server: what must outlive a request. SQLite in a file or in memory, or PostgreSQL for several servers.

    store = SqliteStore("callsmith.db")
    await store.put(Document("response", "resp_1", {"status": "completed"}))

`Store` is the port (`port.py`); `open_store` makes the one that the settings name.
"""

from callsmith.server.store.audit_log import AuditLog
from callsmith.server.store.leases import Leases
from callsmith.server.store.opening import open_store, without_password
from callsmith.server.store.outage import put_through_outage, wait_until
from callsmith.server.store.port import (
    DEFAULT_LIMITS,
    AuditEntry,
    Document,
    Stale,
    Store,
    StoreLimits,
    caller_kind,
    list_all,
)
from callsmith.server.store.sqlite import SqliteStore

__all__ = [
    "DEFAULT_LIMITS",
    "AuditEntry",
    "AuditLog",
    "Document",
    "Leases",
    "SqliteStore",
    "Stale",
    "Store",
    "StoreLimits",
    "caller_kind",
    "list_all",
    "open_store",
    "put_through_outage",
    "wait_until",
    "without_password",
]

"""The store of a server: what must outlive a request. SQLite in a file or in memory, or PostgreSQL for several servers.

    store = SqliteStore("callsmith.db")
    await store.put(Document("response", "resp_1", {"status": "completed"}))

`Store` is the port (`port.py`); `open_store` makes the one that the settings name.
"""

from callsmith.server.store.audit_log import AuditLog
from callsmith.server.store.opening import open_store, without_password
from callsmith.server.store.port import DEFAULT_LIMITS, AuditEntry, Document, Stale, Store, StoreLimits
from callsmith.server.store.sqlite import SqliteStore

__all__ = [
    "DEFAULT_LIMITS",
    "AuditEntry",
    "AuditLog",
    "Document",
    "SqliteStore",
    "Stale",
    "Store",
    "StoreLimits",
    "open_store",
    "without_password",
]

"""A store in PostgreSQL, for several servers: `PostgresStore("postgresql://callsmith@db/callsmith")`."""

from callsmith.server.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]

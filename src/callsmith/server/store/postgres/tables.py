"""The tables of the store in PostgreSQL, and how they are made and upgraded, by one server at a time."""

from typing import Any

from callsmith.server.store.postgres.database import UnfitDatabase

# Keys of advisory locks: for the tables, for numbers of audit entries in the order of their commits, and for pruning.
LAYOUT_LOCK, AUDIT_LOCK, PRUNING_LOCK = 0x63616C6C736D01, 0x63616C6C736D02, 0x63616C6C736D03

# One script a version of the layout: tables of an older one are upgraded by those behind it. Servers of the version before still
# run while that is done, so that a script may add, and may not take away what they use.
#
# `key` is the id of a document, or a hash of an id that PostgreSQL does not take as a key; then `id` has it as JSON.
LAYOUTS = (
    """
    CREATE TABLE callsmith_documents (
        kind text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, id text, data text NOT NULL, version bigint NOT NULL,
        written double precision NOT NULL, expires double precision, PRIMARY KEY (kind, key));
    CREATE INDEX callsmith_documents_by_age ON callsmith_documents (kind, written);
    CREATE INDEX callsmith_documents_written ON callsmith_documents (written);
    CREATE INDEX callsmith_documents_expiring ON callsmith_documents (expires) WHERE expires IS NOT NULL;
    CREATE TABLE callsmith_audit (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at double precision NOT NULL, data text NOT NULL);
    CREATE FUNCTION callsmith_audit_stays() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'the audit is never changed'; END $$;
    CREATE TRIGGER callsmith_audit_stays BEFORE UPDATE ON callsmith_audit
        FOR EACH ROW EXECUTE FUNCTION callsmith_audit_stays();
    """,
)


async def prepare(connection: Any) -> None:
    """Create or upgrade the tables, if they are not there as this version needs them. Others who want to wait for it."""
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise UnfitDatabase(f"the database has the encoding {encoding}, and UTF8 is needed")
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LAYOUT_LOCK)
        # Asked first: a role that may use the tables need not be one that may create any.
        if await connection.fetchval("SELECT to_regclass('callsmith_layout') IS NULL"):
            await connection.execute("CREATE TABLE callsmith_layout (version integer NOT NULL)")
        layout = await connection.fetchval("SELECT max(version) FROM callsmith_layout") or 0
        if layout > len(LAYOUTS):
            raise UnfitDatabase(f"the layout of its tables is version {layout}, and only {len(LAYOUTS)} is known here")
        for version in range(layout, len(LAYOUTS)):
            await connection.execute(LAYOUTS[version])
            await connection.execute("INSERT INTO callsmith_layout VALUES ($1)", version + 1)

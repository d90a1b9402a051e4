"""Choose the schema of a PostgreSQL connection, and never one of temporary tables.

A schema in the search path that does not exist is skipped without an error. With `pg_temp` behind it, new tables would
be temporary, and vanish with the connection. So `pg_temp` is never in the search path, and the server's answer is
checked.
"""

from typing import TYPE_CHECKING, Any, Final

from strandline.errors import SinkError

if TYPE_CHECKING:
    import psycopg

_WITHOUT_TEMPORARY: Final = (
    "SELECT set_config('search_path', (SELECT coalesce(string_agg(quote_ident(name), ', ' ORDER BY place), '\"\"') "
    "FROM unnest(current_schemas(false)) WITH ORDINALITY AS found (name, place) WHERE name NOT LIKE 'pg\\_%'), false)"
)
"""Replaces the search path by its existing schemas without those of the system."""


def choose_schema(connection: "psycopg.Connection[Any]", schema: str | None, place: str, *, create: bool) -> None:
    """Set the search path to a schema, or to the permanent schemas of the server's own; raise if there is none."""
    if schema is None:
        connection.execute(_WITHOUT_TEMPORARY)
        if _current(connection) is None:
            raise SinkError(
                f"{place} has no schema to write to",
                detail="no schema of the search path exists, or the user may not use it",
                hint="name one with schema=…, or set the user's search_path",
            )
        return
    if _is_missing(connection, schema) and create:
        _create(connection, schema, place)
    if _is_missing(connection, schema):
        raise SinkError(
            f"{place} has no schema {schema!r}",
            hint=f'create it (CREATE SCHEMA "{schema}"), or let the sink create it: create_schema=True',
        )
    connection.execute("SELECT set_config('search_path', quote_ident(%s), false)", [schema])
    if _current(connection) != schema:
        raise SinkError(
            f"{place} does not allow the use of the schema {schema!r}", hint=f'GRANT USAGE ON SCHEMA "{schema}"'
        )


def _is_missing(connection: "psycopg.Connection[Any]", schema: str) -> bool:
    return connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [schema]).fetchone() is None


def _create(connection: "psycopg.Connection[Any]", schema: str, place: str) -> None:
    import psycopg
    from psycopg.sql import SQL, Identifier

    try:
        connection.execute(SQL("CREATE SCHEMA IF NOT EXISTS {}").format(Identifier(schema)))
    except psycopg.errors.UniqueViolation:
        return  # another process created it at the same time
    except psycopg.Error as problem:
        detail = problem.diag.message_primary or type(problem).__name__
        raise SinkError(
            f"{place} cannot create the schema {schema!r}", detail=detail, hint="let its owner create it"
        ) from None


def _current(connection: "psycopg.Connection[Any]") -> str | None:
    found = connection.execute("SELECT current_schema()").fetchone()
    return None if found is None else found[0]

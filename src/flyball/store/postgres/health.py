"""How a database is, without a change to it: whether it can be reached, what may be done in it, whether it is sound. It
makes no tables, and takes none to another version."""

from dataclasses import dataclass
from typing import Any, Final

from flyball.core.time import Instant
from flyball.store.postgres import check, schema, trouble
from flyball.store.postgres.link import Link, to_number
from flyball.store.postgres.trouble import Lost, Refused

VERSION: Final = schema.VERSION

_LOOK: Final = b"""
    SELECT pg_is_in_recovery(), current_setting('fsync') = 'on', current_setting('max_connections')::bigint,
        has_database_privilege(current_database(), 'CREATE'),
        coalesce(has_schema_privilege(to_regnamespace('flyball'), 'USAGE'), false),
        coalesce(has_schema_privilege(to_regnamespace('flyball'), 'CREATE'), false),
        (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
"""
_MAY_WRITE: Final = b"""
    SELECT bool_and(has_table_privilege(format('flyball.%I', name), right_))
    FROM unnest(ARRAY['state', 'journal', 'mark', 'undo', 'head', 'writer']) AS name,
        unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS right_
"""
_HEAD: Final = b"SELECT seq, at FROM flyball.head"
_TRUE: Final = b"\1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What was seen of a database."""

    server: int
    """170002 is 17.2."""
    version: int
    """Of our tables; 0: there are none."""
    standby: bool
    fsync: bool
    connections_max: int
    may_make: bool
    """Tables, where there are none: in a schema that it may make, or in the one that there is."""
    may_write: bool
    """Into the tables that there are."""
    now: Instant
    """The database's time."""
    last_at: Instant | None = None
    entries: int = 0
    problems: tuple[str, ...] = ()


def health(dsn: str) -> Health:
    """Look. StoreError says why that cannot be."""
    where = trouble.place(dsn)
    link = Link(dsn, reads=True)
    try:
        return _seen(link, where)
    except (Refused, Lost) as error:
        raise trouble.explain(error, where) from error
    finally:
        link.close()


def _seen(link: Link, where: str) -> Health:
    row = link.ask(_LOOK)
    value: list[Any] = [row.get_value(0, column) for column in range(7)]
    version = schema.version_of(link, where)
    usable = value[4] == _TRUE
    may_write = bool(version) and usable and link.ask(_MAY_WRITE).get_value(0, 0) == _TRUE
    head = link.ask(_HEAD) if may_write else None
    seq, at = (
        (to_number(head.get_value(0, column)) for column in (0, 1)) if head is not None and head.ntuples else (0, 0)
    )
    return Health(
        server=link.server_version,
        version=version,
        standby=value[0] == _TRUE,
        fsync=value[1] == _TRUE,
        connections_max=to_number(value[2]),
        may_make=value[3] == _TRUE or value[5] == _TRUE,
        may_write=may_write,
        now=to_number(value[6]),
        last_at=at if seq else None,
        entries=seq,
        problems=tuple(check.problems(link)) if may_write else (),
    )

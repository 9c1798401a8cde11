"""The tables and functions in a database, and how they become those of this version. Only SQL and the walk over it.

Everything is in a schema of its own, `flyball`: plain columns and JSON text, so that people can look with any tool. A
step that was released is never edited: a database of the first version must open for ever.

Whoever writes holds one lock, from before it looks until it has committed: so journal order is commit order, for every
reader. A group of wishes is one call of `commit_drafts`, which is one transaction and one round trip.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from flyball.errors import StoreCorrupt, StoreError, StoreTooNew
from flyball.store.postgres import trouble
from flyball.store.postgres.link import Link
from flyball.store.postgres.trouble import Lost, Refused

SERVER_MIN: Final = 140_000
"""PostgreSQL 14 is the oldest one that its makers still mend."""

LOCK: Final = 0x666C7962
"""`flyb`: the advisory lock of whoever writes. With 1 behind it for the journal, with 2 for sweeping."""

TAKE_TURN: Final = b"SELECT pg_advisory_xact_lock(%d, 1)" % LOCK


class Step(NamedTuple):
    """What takes a database of version n to version n + 1."""

    sql: str
    oldest: int
    """The oldest version of flyball's tables that may still be written by after this: a fleet is not upgraded in one
    moment. Who is older is refused from then on."""


STEPS: Final = (
    Step(
        """
    CREATE TABLE version (application text NOT NULL, version integer NOT NULL);
    INSERT INTO version VALUES ('flyball', 0);

    CREATE TABLE state (
        policy text COLLATE "C" NOT NULL, by text COLLATE "C" NOT NULL, subject text COLLATE "C" NOT NULL,
        -- Of the commit that wrote it.
        version bigint NOT NULL,
        data text NOT NULL,
        PRIMARY KEY (subject, by, policy)
    ) WITH (fillfactor = 70);
    CREATE INDEX state_policy ON state (policy);

    CREATE TABLE journal (
        seq bigint PRIMARY KEY, at bigint NOT NULL,
        unit text COLLATE "C" NOT NULL, event text COLLATE "C" NOT NULL, verb text COLLATE "C" NOT NULL,
        body text NOT NULL
    );
    CREATE INDEX journal_unit ON journal (unit, seq);

    -- Places in the journal at which the states can be told. The first of them is where the journal begins.
    CREATE TABLE mark (seq bigint PRIMARY KEY, at bigint NOT NULL);
    INSERT INTO mark VALUES (0, 0);

    -- What a record was at a mark, written when it is first changed after it. NULL: there was none.
    CREATE TABLE undo (
        mark bigint NOT NULL,
        policy text COLLATE "C" NOT NULL, by text COLLATE "C" NOT NULL, subject text COLLATE "C" NOT NULL,
        data text,
        PRIMARY KEY (mark, subject, by, policy)
    );

    -- The end of the journal; how many commits there were; where it begins; the newest mark, and the commit before it.
    CREATE TABLE head (
        seq bigint NOT NULL, at bigint NOT NULL, version bigint NOT NULL,
        base bigint NOT NULL, mark bigint NOT NULL, marked bigint NOT NULL,
        -- The oldest version of flyball's tables that may still write.
        oldest integer NOT NULL
    ) WITH (fillfactor = 10);
    INSERT INTO head VALUES (0, 0, 0, 0, 0, 0, 0);

    -- The last commit of each connection that writes: when one breaks, this says what came of it.
    CREATE TABLE writer (
        id bigint PRIMARY KEY, token bigint NOT NULL DEFAULT 0, seq bigint NOT NULL DEFAULT 0,
        at timestamptz NOT NULL DEFAULT now()
    ) WITH (fillfactor = 10);
    """,
        oldest=1,
    ),
)

VERSION: Final = len(STEPS)

FUNCTIONS: Final = Path(__file__).with_name("functions.sql").read_text()

_LOOK = b"""
    SELECT (SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'flyball'),
        (
            SELECT count(*) FROM information_schema.columns WHERE table_schema = 'flyball'
            AND (table_name, column_name) IN (('version', 'application'), ('head', 'oldest'))
        ) = 2
"""
_VERSION = b"SELECT version.version, head.oldest FROM flyball.version, flyball.head WHERE application = 'flyball'"


def prepare(link: Link, where: str, views: Mapping[str, str]) -> None:
    """Make the tables where there are none, or take them to this version; refuse what is not ours or too new. All of it
    in one transaction, while nobody writes; a fleet that runs waits for so long."""
    if link.server_version < SERVER_MIN:
        text = f"{where}: PostgreSQL {link.server_version // 10_000} is too old"
        raise StoreError(text, remedy=f"Use PostgreSQL {SERVER_MIN // 10_000} or newer.")
    version = version_of(link, where)
    if version >= VERSION and not _other_views(link, views):
        return
    link.run("BEGIN")
    try:
        link.run(TAKE_TURN.decode())
        version = version_of(link, where)  # somebody else may have been quicker
        # Who may not make a schema may have been given one.
        if link.ask(b"SELECT to_regnamespace('flyball') IS NULL").get_value(0, 0) == b"\1":
            link.run("CREATE SCHEMA flyball")
        if version < VERSION:
            for step in STEPS[version:]:
                link.run(step.sql)
            link.run(FUNCTIONS)
            link.run(f"UPDATE version SET version = {VERSION}; UPDATE head SET oldest = {STEPS[-1].oldest}")  # noqa: S608 - our numbers
        for name, select in _other_views(link, views).items():
            _make_view(link, name, select)
        link.run("COMMIT")
    except BaseException:
        link.run("ROLLBACK")
        raise


def explain(error: Refused, link: Link, where: str, knows: int) -> StoreError:
    """What an error means. Where something is not as it should be, a newer flyball may have changed it."""
    if error.state in trouble.OTHER_TABLES:
        try:
            found = link.ask(_VERSION)
            if found.ntuples and int.from_bytes(found.get_value(0, 1), "big") > knows:
                return too_new(where)
        except (Lost, Refused):
            pass  # then it is more than that
    return trouble.explain(error, where)


def too_new(where: str) -> StoreTooNew:
    """What a host is told that was not upgraded with the others."""
    return StoreTooNew(f"{where} was upgraded by a newer flyball, which this one cannot write with")


def version_of(link: Link, where: str) -> int:
    """The version of the tables that are there; 0: there are none."""
    there, ours = (link.ask(_LOOK).get_value(0, column) for column in (0, 1))
    if not int.from_bytes(there, "big"):
        return 0
    found = link.ask(_VERSION) if ours == b"\1" else None
    if found is None or not found.ntuples:
        raise StoreCorrupt(
            f"{where} has a schema flyball with tables of another program",
            remedy="Use a database of its own for flyball; what is there was left untouched.",
        )
    version, oldest = (int.from_bytes(found.get_value(0, column), "big") for column in (0, 1))
    if oldest > VERSION:
        raise StoreTooNew(f"{where} has version {version}; this flyball knows versions up to {VERSION}")
    return version


def _other_views(link: Link, views: Mapping[str, str]) -> dict[str, str]:
    """Those of the views that are not there as they should be."""
    found = {}
    for name, select in views.items():
        text = link.ask(b"SELECT obj_description(to_regclass($1::text), 'pg_class')", (_quoted(name).encode(),))
        if (text.get_value(0, 0) or b"").decode() != select:
            found[name] = select
    return found


def _make_view(link: Link, name: str, select: str) -> None:
    said = select.replace("'", "''")
    link.run(
        f"DROP VIEW IF EXISTS {_quoted(name)}; CREATE VIEW {_quoted(name)} AS {select};"
        f"COMMENT ON VIEW {_quoted(name)} IS E'{said.replace(chr(92), chr(92) * 2)}'"
    )


def _quoted(name: str) -> str:
    return 'flyball."' + name.replace('"', '""') + '"'

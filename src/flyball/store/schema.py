"""The tables, and how a file of an older version becomes one of this version. Only SQL and the walk over it; what a
missing, damaged or foreign file means is the business of `file`.

Everything is plain columns and JSON text, so that people can look with any SQLite tool. A step that was released is
never edited: a file of the first version must open for ever.
"""

from collections.abc import Mapping
from typing import Final

import apsw

APPLICATION_ID: Final = 0x666C7962
"""`flyb`: how a file says that it is ours."""

STEPS: Final = (
    """
    CREATE TABLE state (
        policy TEXT NOT NULL, "by" TEXT NOT NULL, subject TEXT NOT NULL,
        data TEXT NOT NULL,
        -- By subject first: all states of one unit lie on one page, and a decision touches only that.
        PRIMARY KEY (subject, "by", policy)
    ) WITHOUT ROWID;

    CREATE TABLE journal (
        seq INTEGER PRIMARY KEY, at INTEGER NOT NULL,
        unit TEXT NOT NULL, event TEXT NOT NULL, verb TEXT NOT NULL, body TEXT NOT NULL
    );
    CREATE INDEX journal_unit ON journal (unit, seq);

    -- Places in the journal at which the states can be told. The first of them is where the journal begins.
    CREATE TABLE mark (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL);
    INSERT INTO mark VALUES (0, 0);

    -- What a record was at a mark, written when it is first changed after it. NULL: there was none.
    CREATE TABLE undo (
        mark INTEGER NOT NULL, policy TEXT NOT NULL, "by" TEXT NOT NULL, subject TEXT NOT NULL,
        data TEXT,
        PRIMARY KEY (mark, subject, "by", policy)
    ) WITHOUT ROWID;
    """,
)
"""Step n takes a file of version n to version n + 1."""

VERSION: Final = len(STEPS)


def migrate(connection: apsw.Connection) -> None:
    """Take the file to this version, step by step, each in one transaction."""
    while (version := connection.pragma("user_version")) < VERSION:
        with connection:
            connection.execute(STEPS[version])
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", version + 1)


def make_views(connection: apsw.Connection, views: Mapping[str, str]) -> None:
    """Make each view (its name, its SELECT) anew if its text differs from the one in the file."""
    for name, select in views.items():
        quoted = '"' + name.replace('"', '""') + '"'
        made = f"CREATE VIEW {quoted} AS {select}"
        there = connection.execute("SELECT sql FROM sqlite_schema WHERE type = 'view' AND name = ?", (name,)).get
        if there == made:
            continue
        with connection:
            connection.execute(f"DROP VIEW IF EXISTS {quoted}")
            connection.execute(made)
            connection.execute(f"SELECT * FROM {quoted} LIMIT 0")  # noqa: S608 - the name is quoted; a wrong SELECT fails here

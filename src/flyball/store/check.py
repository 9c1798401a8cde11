"""Whether a file is sound: what SQLite says of it, and what must be true of our tables. It only looks."""

from typing import Any, Final

import apsw

PROBLEMS_MAX: Final = 20
"""Problems of one kind that are told. Whoever has more of them needs a copy of the file, not a longer list."""

_NEIGHBOURS = """
    SELECT seq, before, at, before_at FROM (
        SELECT seq, at, lag(seq) OVER journal_order AS before, lag(at) OVER journal_order AS before_at
        FROM journal WINDOW journal_order AS (ORDER BY seq)
    ) WHERE seq <> before + 1 OR at < before_at LIMIT ?
"""
_NOT_JSON = """
    SELECT 'the state of ' || policy || ' for ' || "by" || ' ' || subject FROM state WHERE NOT json_valid(data)
    UNION ALL
    SELECT 'the kept state of ' || policy || ' for ' || "by" || ' ' || subject FROM undo WHERE NOT json_valid(data)
    UNION ALL
    SELECT 'the body of entry ' || seq FROM journal WHERE NOT json_valid(body)
    LIMIT ?
"""
_STRAY = """
    SELECT DISTINCT mark FROM undo
    WHERE mark > (SELECT min(seq) FROM mark) AND mark NOT IN (SELECT seq FROM mark) LIMIT ?
"""


def problems(connection: apsw.Connection) -> list[str]:
    """What is wrong; empty if nothing is. To be asked within a read transaction. What the tables say is asked only if
    SQLite can read them."""
    said = [str(text) for (text,) in connection.execute(f"PRAGMA integrity_check({PROBLEMS_MAX})")]
    if said != ["ok"]:
        return said
    return _journal(connection) + _marks(connection) + _json(connection)


def _journal(connection: apsw.Connection) -> list[str]:
    found = []
    for seq, before, at, before_at in connection.execute(_NEIGHBOURS, (PROBLEMS_MAX,)):
        if seq != before + 1:
            found.append(f"the journal has a gap: after entry {before} comes {seq}")
        if at < before_at:
            found.append(f"the journal's time runs back: entry {before} is of {before_at}, entry {seq} of {at}")
    return found


def _marks(connection: apsw.Connection) -> list[str]:
    marks: list[Any] = connection.execute("SELECT seq, at FROM mark ORDER BY seq").fetchall()
    if not marks:
        return ["nothing says where the journal begins"]
    found = []
    first: int | None
    last: int | None
    first, last = connection.execute("SELECT min(seq), max(seq) FROM journal").get
    base, base_at = marks[0]
    if first is not None:
        if first > base + 1:
            found.append(f"the journal has a gap: it begins after entry {base}, and its first entry is {first}")
        first_at = connection.execute("SELECT at FROM journal WHERE seq = ?", (base + 1,)).get
        if first_at is not None and first_at < base_at:
            found.append(f"the journal's time runs back: it begins at {base_at}, and its first entry is of {first_at}")
    if marks[-1][0] > max(last or 0, base):
        found.append(f"the journal ends at entry {last or 0}, though there is a mark after entry {marks[-1][0]}")
    strays = connection.execute(_STRAY, (PROBLEMS_MAX,))
    return found + [f"states are kept for entry {mark}, which is no mark" for (mark,) in strays]


def _json(connection: apsw.Connection) -> list[str]:
    return [f"{what} is not JSON" for (what,) in connection.execute(_NOT_JSON, (PROBLEMS_MAX,))]

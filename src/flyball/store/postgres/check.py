"""Whether a database is sound: what must be true of our tables. It only looks."""

from typing import Final

from flyball.store.postgres.link import Link

PROBLEMS_MAX: Final = 20
"""Problems of one kind that are told. Whoever has more of them needs a copy of the database, not a longer list."""

_PROBLEMS: Final = (
    # The journal: numbers rise by one, instants never fall.
    """
    SELECT CASE WHEN seq <> before + 1 THEN format('the journal has a gap: after entry %s comes %s', before, seq)
        ELSE format('the journal''s time runs back: entry %s is of %s, entry %s of %s', before, before_at, seq, at) END
    FROM (
        SELECT seq, at, lag(seq) OVER journal_order AS before, lag(at) OVER journal_order AS before_at
        FROM flyball.journal WINDOW journal_order AS (ORDER BY seq)
    ) AS entry WHERE seq <> before + 1 OR at < before_at
    """,
    "SELECT 'nothing says where the journal begins' WHERE NOT EXISTS (SELECT FROM flyball.mark)",
    "SELECT 'nothing says where the journal ends' WHERE (SELECT count(*) FROM flyball.head) <> 1",
    # Where it begins and ends.
    """
    SELECT format('the journal has a gap: it begins after entry %s, and its first entry is %s', base, first)
    FROM (SELECT (SELECT min(seq) FROM flyball.mark) AS base, (SELECT min(seq) FROM flyball.journal) AS first) AS ends
    WHERE first > base + 1
    """,
    """
    SELECT format('the journal''s time runs back: it begins at %s, and its first entry is of %s', mark.at, entry.at)
    FROM (SELECT seq, at FROM flyball.mark ORDER BY seq LIMIT 1) AS mark
    JOIN flyball.journal AS entry ON entry.seq = mark.seq + 1 WHERE entry.at < mark.at
    """,
    """
    SELECT format('the journal ends at entry %s, and should at entry %s', coalesce(last, 0), head.seq)
    FROM flyball.head, (SELECT max(seq) AS last FROM flyball.journal) AS entry
    WHERE head.seq <> coalesce(last, head.base)
    """,
    """
    SELECT format('the marks are not those that the end of the journal names: %s to %s, and %s to %s',
        head.base, head.mark, first, last)
    FROM flyball.head, (SELECT min(seq) AS first, max(seq) AS last FROM flyball.mark) AS mark
    WHERE head.base <> first OR head.mark <> last
    """,
    """
    SELECT DISTINCT format('states are kept for entry %s, which is no mark', undo.mark) FROM flyball.undo, flyball.head
    WHERE undo.mark > head.base AND NOT EXISTS (SELECT FROM flyball.mark WHERE mark.seq = undo.mark)
    """,
    """
    SELECT format('the state of %s for %s %s is of a commit that is not there', policy, by, subject)
    FROM flyball.state, flyball.head WHERE state.version > head.version
    """,
    # JSON.
    """
    SELECT format('the state of %s for %s %s is not JSON', policy, by, subject)
    FROM flyball.state WHERE NOT flyball.is_json(data)
    """,
    """
    SELECT format('the kept state of %s for %s %s is not JSON', policy, by, subject)
    FROM flyball.undo WHERE NOT flyball.is_json(data)
    """,
    "SELECT format('the body of entry %s is not JSON', seq) FROM flyball.journal WHERE NOT flyball.is_json(body)",
)


def problems(link: Link) -> list[str]:
    """What is wrong; empty if nothing is. All as of one instant."""
    found: list[str] = []
    link.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        for sql in _PROBLEMS:
            result = link.run(f"{sql} LIMIT {PROBLEMS_MAX}")[-1]
            found += [result.get_value(row, 0).decode() for row in range(result.ntuples)]
    finally:
        link.run("ROLLBACK")
    return found

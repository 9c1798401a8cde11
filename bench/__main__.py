"""`make bench`: all comparisons, a row each. `python -m bench.heart`, `.api`, `.calls`, `.conditions`, `.fleet`,
`.graphs`, `.metrics`, `.page`, `.postgres`, `.rules`, `.store`, `.processes` run a part."""

import sys

from bench import api, calls, conditions, fleet, graphs, heart, metrics, page, postgres, processes, rules, store
from bench.measure import Row


def main() -> int:
    """Print all rows. A missed goal is no error: the figures are there to be read."""
    rows = []
    for title, measure in (
        ("In memory", heart.rows),
        ("Guarded calls", calls.rows),
        ("Conditions of rules", conditions.rows),
        ("Graphs", graphs.rows),
        ("Rules", rules.run),
        ("Durable (SQLite)", store.run),
        ("Durable (PostgreSQL)", postgres.run),
        ("Processes", processes.run),
        ("A fleet on many hosts", fleet.run),
        ("Metrics", metrics.run),
        ("The API", api.run),
        ("The page", page.run),
    ):
        print(f"\n{title}\n")
        for row in measure():
            print(row, flush=True)
            if isinstance(row, Row):
                rows.append(row)
    missed = [row.name for row in rows if not row.met]
    print(
        f"\n{len(rows) - len(missed)} of {len(rows)} goals met" + (f"; missed: {'; '.join(missed)}" if missed else "")
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`make bench`: every comparison, one row each. `python -m bench.heart` and `python -m bench.store` run a part."""

import sys

from bench import heart, store


def main() -> int:
    """Print all rows. A missed goal is no error: the figures are there to be read."""
    rows = []
    for title, measure in (("In memory", heart.rows), ("Durable (SQLite)", store.run)):
        print(f"\n{title}\n")
        for row in measure():
            print(row, flush=True)
            rows.append(row)
    missed = [row.name for row in rows if not row.met]
    print(
        f"\n{len(rows) - len(missed)} of {len(rows)} goals met" + (f"; missed: {'; '.join(missed)}" if missed else "")
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the guard costs a DBOS workflow: a step under it beside a bare one, in one run, on SQLite and on PostgreSQL.

The steps do nothing, so that all that is measured is DBOS, which keeps a checkpoint of each, and the guard. flyball's
own store is of the same kind, and each commit of either is on disk when it is answered. Bare and guarded take turns.
What a step costs is what a long workflow takes longer than a short one.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from dbos import DBOS, DBOSConfig
from tests.servers.postgres import postgres

import flyball
from bench.measure import Row, best_of_each
from flyball.config import Settings
from flyball.integrations.dbos import Guarded

SHORT, LONG = 16, 112
"""Steps of a workflow."""
WORKFLOWS = 6
"""Of each, of which the best counts."""
STEPS = 10**6
"""More than a workflow makes: it is not what is measured."""


def workflows(guarded: Guarded) -> list[Callable[[int], None]]:
    """A bare one; one whose steps ask many at a time; and one whose steps cost, and ask each by itself."""

    def nothing(number: int) -> int:
        return number

    def looping(step: Callable[[int], int]) -> Callable[[int], None]:
        def loop(steps: int) -> None:
            for number in range(steps):
                step(number)

        return loop

    bare = DBOS.workflow(name="bare")(looping(DBOS.step(name="bare step")(nothing)))
    free = guarded.step(name="free step")(nothing)
    paid = guarded.step(name="paid step", cost="0.000001")(nothing)
    limits: dict[str, Any] = {"steps": STEPS, "deadline": 3600, "budget": "1000"}
    return [
        bare,
        guarded.workflow(unit="free", name="free", **limits)(looping(free)),
        guarded.workflow(unit="paid", name="paid", **limits)(looping(paid)),
    ]


@contextmanager
def launched(folder: Path, url: str, store: str) -> Iterator[list[Callable[[int], None]]]:
    """DBOS on that database, and flyball on one of the same kind."""
    settings = Settings.model_validate({"store": store} if store else {})
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": url,
        "application_version": "1",
        "log_level": "ERROR",
    }
    with flyball.open("bench", settings=settings, state_dir=folder) as guard:
        found = workflows(Guarded(guard))
        DBOS(config=config)
        DBOS.launch()
        try:
            yield found
        finally:
            DBOS.destroy(destroy_registry=True)


def measured(where: str, folder: Path, url: str, store: str = "") -> Iterator[Row]:
    """The rows of one database."""
    with launched(folder, url, store) as found:
        works: list[Callable[[], object]] = [partial(work, steps) for work in found for steps in (SHORT, LONG)]
        times = best_of_each(works, WORKFLOWS)
    step, once = [], []
    for short, long in zip(times[::2], times[1::2], strict=True):
        step.append((long - short) / (LONG - SHORT) * 1e3)
        once.append(short * 1e3 - SHORT * step[-1])
    bare, free, paid = step
    yield Row(f"a guarded step, {where}", free, "bare DBOS", bare, "ms", "at most 1.2 x", free <= 1.2 * bare)
    yield Row(f"one that costs, so asks by itself, {where}", paid, "bare DBOS", bare, "ms", "-", True)
    yield Row(f"once a workflow, {where}", once[1], "bare DBOS", once[0], "ms", "-", True)


def run() -> Iterator[Row]:
    """All rows of this file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield from measured("SQLite", folder / "sqlite", f"sqlite:///{folder / 'dbos.sqlite'}")
        with postgres(fsync=True) as server:
            yield from measured("PostgreSQL", folder / "postgres", server.database(), server.database())


if __name__ == "__main__":
    for row in run():
        print(row, flush=True)

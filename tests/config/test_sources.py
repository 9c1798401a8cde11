"""Whether the files of settings changed."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flyball.config.plan import Plan
from flyball.config.sources import SourceWatch


def plan_of(*sources: Path, read_at: int) -> Plan:
    """A plan that was read from these, then."""
    names = tuple(str(source) for source in sources)
    return Plan(
        units=(),
        sources=names,
        read_at=read_at,
        policies=(),
        own={},
        jitter=0,
        quarantined_at=6,
        journal_max=1,
        source="",
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A file, and a folder with another one."""
    (tmp_path / "flyball.yaml").write_text("rules: {}")
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "one.yaml").write_text("{}")
    return tmp_path


def _replace(place: Path) -> None:
    (place / "new").write_text("rules: {}")
    os.utime(place / "new", (0, 0))  # a file may be older than the one whose place it takes
    (place / "new").replace(place / "flyball.yaml")


CHANGES: dict[str, Callable[[Path], object]] = {
    "written": lambda place: (place / "flyball.yaml").write_text("rules: {a: 1}"),
    "replaced": _replace,
    "written in the folder": lambda place: (place / "rules" / "one.yaml").write_text("{a: 1}"),
    "came": lambda place: (place / "rules" / "two.yaml").write_text("{}"),
    "went": lambda place: (place / "rules" / "one.yaml").unlink(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_change(change: Callable[[Path], object], place: Path) -> None:
    """A change is said once, and only when it is at rest."""
    plan = plan_of(place / "flyball.yaml", place / "rules", read_at=time.time_ns() + 10**9)
    watch = SourceWatch(plan)
    assert not watch.has_changed()
    change(place)
    assert [watch.has_changed() for _ in range(4)] == [False, True, False, False]
    watch.use(plan)
    assert not watch.has_changed()


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_before_the_first_look(change: Callable[[Path], object], place: Path) -> None:
    """What changed after the plan was read, and before anybody looked, is a change, too."""
    read_at = max(file.stat().st_ctime_ns for file in place.rglob("*")) + 1
    while time.time_ns() < read_at + 20_000_000:  # file systems count in ticks of some milliseconds
        time.sleep(0.001)
    change(place)
    watch = SourceWatch(plan_of(place / "flyball.yaml", place / "rules", read_at=read_at))
    assert [watch.has_changed() for _ in range(3)] == [True, False, False]

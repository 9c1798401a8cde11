"""Whether the files that settings came from are still the same, and whether more than rules is different in them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from flyball.config.plan import Plan, RuleLimits


class _Mark(NamedTuple):
    written: int
    size: int
    inode: int
    changed: int


_Marks = dict[str, _Mark]


class SourceWatch:
    """Looks at files and folders now and then. A change is one when two looks in a row saw the same: whoever is still
    writing is left to it."""

    def __init__(self, plan: Plan) -> None:
        self._sources: tuple[str, ...] = ()
        self._known: _Marks = {}
        self._last: _Marks = {}
        self.use(plan)

    def use(self, plan: Plan) -> None:
        """Look at the files of that plan from now on. What changed after it was read is a change."""
        if plan.sources != self._sources:
            self._sources = plan.sources
            self._last = _marks(self._sources)
            self._known = {file: mark for file, mark in self._last.items() if mark.changed < plan.read_at}

    def has_changed(self) -> bool:
        """Whether they changed, and are at rest. Said once."""
        now, before = _marks(self._sources), self._last
        self._last = now
        if now != before or now == self._known:
            return False
        self._known = now
        return True


def _marks(sources: Sequence[str]) -> _Marks:
    """Of each file, and of all that are in a folder: when it was written, how long it is, and which one it is."""
    marks: _Marks = {}
    for source in sources:
        path = Path(source)
        files = [path]
        try:
            if path.is_dir():
                files += sorted(path.iterdir())
        except OSError:
            continue
        for file in files:
            try:
                stat = file.stat()
            except OSError:
                continue
            marks[str(file)] = _Mark(stat.st_mtime_ns, stat.st_size, stat.st_ino, stat.st_ctime_ns)
    return marks


def same_but_rules(one: Plan, other: Plan) -> bool:
    """Whether two plans differ in their rules alone."""
    return _without_rules(one) == _without_rules(other)


def _without_rules(plan: Plan) -> Plan:
    units = {unit.name for unit in plan.units}
    own = {name: policies for name, policies in plan.own.items() if name in units}
    return replace(plan, rules=(), limits=RuleLimits(), sources=(), read_at=0, own=own)

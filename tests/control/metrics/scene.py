"""Metrics of a fleet whose past is made through the governor, and what they come to as a table."""

import re
from collections.abc import Iterable
from typing import Any

from flyball.control.metrics.metrics import Metrics
from flyball.control.metrics.picture import look_at
from flyball.control.past import Past
from flyball.control.views import Look
from flyball.governor import Governor
from flyball.store import Store
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene

LINE = re.compile(r"(?P<name>[a-z_]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
ESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


class Ticks:
    """A clock of seconds that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Scraped:
    """A fleet, and a scraper that is never too early."""

    def __init__(self, store: Store | None = None, named: Iterable[str] = (), **more: Any) -> None:
        self.scene = Scene(store or MemoryStore())
        policies = more.pop("policies", None)
        if policies is not None:  # also none at all
            self.scene.governor = Governor(policies, self.scene.governor.store, self.scene.clock)
        self.ticks = Ticks()
        self.metrics = measured(self.scene.governor, named, clock=self.ticks, **more)

    @property
    def governor(self) -> Governor:
        return self.scene.governor

    def text(self) -> str:
        """What a scraper reads."""
        self.ticks.now += 15
        return self.metrics.render().decode()

    def table(self) -> dict[tuple[str, ...], float]:
        """By name and values of labels, these in the order of the labels' names."""
        return parsed(self.text())


def measured(governor: Governor, named: Iterable[str] = (), **more: Any) -> Metrics:
    """Metrics with a picture that is looked at anew each time."""
    past = Past()
    return Metrics(governor, lambda: look_at(Look(governor, past)), version="1.2.3", named=named, **more)


def parsed(text: str) -> dict[tuple[str, ...], float]:
    """A text for Prometheus as a table."""
    table = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        found = LINE.fullmatch(line)
        assert found is not None, line
        values = [_plain(value) for _, value in sorted(LABEL.findall(found["labels"] or ""))]
        place = (found["name"], *values)
        assert place not in table, line
        table[place] = float(found["value"])
    return table


def _plain(value: str) -> str:
    return re.sub(r"\\.", lambda found: ESCAPED[found[0]], value)

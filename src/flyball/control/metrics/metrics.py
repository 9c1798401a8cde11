"""Metrics: what Prometheus is told when it asks. Counters from the tally, gauges from the picture and the states, and
what other parts of the daemon tell of themselves.

`render` blocks, for a fraction of a second with ten thousand units: it is called in a thread of its own, never in an
event loop. Nothing of Prometheus' client is in memory before somebody asks for the first time.
"""

import logging
import platform
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from flyball.control import circuits, hosts
from flyball.control.metrics.budgets import in_whole, purses
from flyball.control.metrics.labels import Values
from flyball.control.metrics.names import BUCKETS, METRICS
from flyball.control.metrics.picture import Picture
from flyball.control.metrics.readings import Reading, Source
from flyball.control.metrics.tally import Tally
from flyball.control.shapes import HostView
from flyball.control.views import states_of
from flyball.core.decision import Verb
from flyball.core.event import Start
from flyball.core.time import seconds
from flyball.governor import Governor
from flyball.policies import Storm

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

log = logging.getLogger(__name__)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Of what `render` gives."""
FRESH: Final = 1.0
"""Seconds for which what was told is told again: who asks more often than Prometheus ever does costs no more."""
BREAKERS_MAX: Final = 200
"""Circuits with a series of their own: one for each provider, or whatever else has one."""

METRICS_CONSUMER: Final = "metrics"


class Metrics:
    """What is told at each scrape. Safe to use from several threads."""

    def __init__(
        self,
        governor: Governor,
        picture: Callable[[], Picture | None],
        *,
        version: str = "",
        named: Iterable[str] = (),
        trouble: Callable[[], str] = lambda: "",
        sources: Iterable[Source] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._governor = governor
        self._picture = picture
        self._version = version
        self._trouble = trouble
        self._sources = tuple(sources)
        self._silent: list[Source] = []
        """Parts that could not tell of themselves the last time."""
        self._clock = clock
        self._tally = Tally(governor, named)
        self._values: dict[str, Values] = {"unit": self._tally.units}
        self._breakers = Values(most=BREAKERS_MAX)
        self._lock = threading.Lock()
        self._registry: CollectorRegistry | None = None
        self._text, self._made, self._took = b"", float("-inf"), 0.0

    def reserve(self, named: Iterable[str]) -> None:
        """These units are in the settings now: they come before others that have no series yet. Waits for nothing."""
        self._tally.units.reserve(named)

    def render(self) -> bytes:
        """What Prometheus reads. Blocks."""
        with self._lock:
            began = self._clock()
            if began - self._made >= FRESH:
                from prometheus_client import generate_latest  # noqa: PLC0415 - see above

                self._text = generate_latest(self._registered())
                self._made = self._clock()
                self._took = self._made - began
            return self._text

    def _registered(self) -> "CollectorRegistry":
        if self._registry is None:
            from importlib.metadata import version  # noqa: PLC0415 - see above

            from prometheus_client import CollectorRegistry, ProcessCollector  # noqa: PLC0415 - see above

            self._version = self._version or version("flyball-governor")
            self._registry = CollectorRegistry(auto_describe=False)
            self._registry.register(self)
            ProcessCollector(registry=self._registry)
        return self._registry

    def collect(self) -> "Iterator[Metric]":
        """All of it, as Prometheus' client has it. Called by `render`."""
        from prometheus_client.core import (  # noqa: PLC0415 - see above
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        told: dict[str, list[Reading]] = {name: [] for name in METRICS}
        for reading in self._readings():
            told[reading.name].append(reading)
        for name, readings in told.items():
            metric = METRICS[name]
            if metric.kind == "histogram":
                yield HistogramMetricFamily(name, metric.help, buckets=self._buckets(), sum_value=self._tally.recovered)
            elif readings:
                kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
                family = kind(name.removesuffix("_total"), metric.help, labels=metric.labels)
                for reading in readings:
                    family.add_metric(reading.labels, reading.value)
                yield family

    def _buckets(self) -> list[tuple[str, float]]:
        """As Prometheus has them: each with all that took less."""
        rows, total = [], 0
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self._tally.buckets, strict=True):
            total += count
            rows.append((bound, float(total)))
        return rows

    # What is told.

    def _readings(self) -> Iterator[Reading]:
        yield Reading("flyball_up", 1)
        yield Reading("flyball_build_info", 1, (self._version, platform.python_version()))
        yield Reading("flyball_store_trouble", bool(self._trouble()))
        yield Reading("flyball_scrape_seconds", self._took)
        for part in (self._counters, self._units, self._fleet, self._budgets, *self._sources):
            yield from self._told_by(part)

    def _told_by(self, part: Source) -> list[Reading]:
        """What a part tells of itself. One that cannot keeps nobody from hearing of the others; that is logged once."""
        try:
            readings = [reading for reading in part() if reading.name in METRICS]
        except Exception:  # whatever it is, it is the part's own
            if part not in self._silent:
                log.exception("a part of the metrics cannot be told")
                self._silent.append(part)
            return []
        if part in self._silent:
            self._silent.remove(part)
        return readings

    def _counters(self) -> Iterator[Reading]:
        tally = self._tally
        left = tally.catch_up()
        for name, counts in (
            ("flyball_starts_total", tally.starts),
            ("flyball_restarts_total", tally.restarts),
            ("flyball_exits_total", tally.exits),
            ("flyball_decisions_total", tally.decisions),
            ("flyball_layer_fired_total", tally.layers),
            ("flyball_sessions_ended_total", tally.sessions),
            ("flyball_takeovers_total", tally.takeovers),
        ):
            for labels, count in counts.items():
                yield Reading(name, count, labels)
        for (meter,), amount in tally.spent.items():
            yield Reading("flyball_spent_total", in_whole(meter, amount), (meter,))
        yield Reading("flyball_faults_total", tally.faults)
        yield from self._journal(tally.seq + left, left)

    def _journal(self, last: int, left: int) -> Iterator[Reading]:
        yield Reading("flyball_journal_entries_total", last)
        yield Reading("flyball_journal_lag_entries", left, (METRICS_CONSUMER,))
        yield Reading("flyball_journal_missed_entries_total", self._tally.missed, (METRICS_CONSUMER,))

    def _units(self) -> Iterator[Reading]:
        picture = self._picture()
        if picture is None:
            return
        for state, count in picture.states.items():
            yield Reading("flyball_units", count, (state,))
        yield Reading("flyball_units_running", picture.running)
        yield Reading("flyball_units_waiting_for_person", picture.held)
        for severity, count in picture.problems.items():
            yield Reading("flyball_problems", count, (severity,))
        yield from self._hosts(picture.hosts)

    def _hosts(self, views: Sequence[HostView]) -> Iterator[Reading]:
        """Of a fleet on many hosts. Of those without a series of their own nothing is told: their sum says nothing."""
        if not views:
            return
        now, records = self._governor.clock.now(), hosts.known(self._governor.store)
        for view in views:
            label = (self._tally.hosts.of(view.name),)
            if label != (view.name,):
                continue
            yield Reading("flyball_host_up", view.state != hosts.LOST, label)
            self._tally.takeovers[label] += 0  # there before it first happens, for `increase`
            if view.name in records and view.state != hosts.LOST:
                yield Reading("flyball_host_units", view.units, label)
                yield Reading("flyball_host_lease_seconds", seconds(max(0, records[view.name].until - now)), label)

    def _fleet(self) -> Iterator[Reading]:
        governor = self._governor
        now, opinions = governor.clock.now(), governor.opinions(Start())
        storm = any(state.paused for _, state, _ in states_of(Storm, opinions, "fleet"))
        yield Reading("flyball_storm", storm)
        yield Reading("flyball_fleet_held", any(said.verb is Verb.HOLD for _, _, said in opinions))
        worst: dict[str, int] = {}
        for circuit in circuits.known(governor, now):
            name = self._breakers.of(circuit.view.name)
            worst[name] = max(worst.get(name, 0), circuits.WORDS.index(circuit.view.state))
        for name, state in worst.items():
            yield Reading("flyball_breaker_state", state, (name,))

    def _budgets(self) -> Iterator[Reading]:
        now = self._governor.clock.now()
        for labels, purse in purses(self._governor, now, self._values).items():
            for name, amount in (("spent", purse.spent), ("reserved", purse.reserved), ("limit", purse.limit)):
                if amount or name != "limit":  # one that nobody knows here is not told
                    yield Reading(f"flyball_budget_{name}", in_whole(labels[2], amount), labels)

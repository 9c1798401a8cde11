"""Every metric: its name, its kind, its labels, and what it says. A table, so that the text that Prometheus reads, the
reference in the docs, the rules for alerts and the dashboard cannot name different things.

Names keep their meaning; labels are few, and the values of each are bounded. Lengths are seconds, money is whole units
(dollars), as Prometheus has it.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """One of them. A counter's name ends with `_total`."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


_LIST: Final = (
    Metric("flyball_up", "gauge", (), "1: the daemon answers. Prometheus' own `up` says whether it was reached."),
    Metric("flyball_build_info", "gauge", ("version", "python"), "1, with the versions of flyball and of Python."),
    Metric("flyball_store_trouble", "gauge", (), "1: the daemon cannot write down what happens, and starts nothing."),
    # Units.
    Metric("flyball_units", "gauge", ("state",), "Units that are this, in one word: healthy, cooling, quarantined, …"),
    Metric("flyball_units_running", "gauge", (), "Units with a run that lives."),
    Metric("flyball_units_waiting_for_person", "gauge", (), "Units that are held, and go on only when a person says."),
    Metric("flyball_problems", "gauge", ("severity",), "Problems that nobody acknowledged, as the page lists them."),
    Metric("flyball_fleet_held", "gauge", (), "1: the whole fleet is held: by a person, a storm or a clock."),
    Metric("flyball_storm", "gauge", (), "1: a restart storm was detected, and the fleet waits for a person."),
    Metric("flyball_breaker_state", "gauge", ("name",), "A circuit: 0 closed, 1 half-open, 2 open."),
    # Hosts of a fleet.
    Metric("flyball_host_up", "gauge", ("host",), "1: the host's lease holds; 0: it was lost within the last day."),
    Metric("flyball_host_lease_seconds", "gauge", ("host",), "What is left of a host's lease, by the store's clock."),
    Metric("flyball_host_units", "gauge", ("host",), "Units that run on a host."),
    Metric(
        "flyball_takeovers_total",
        "counter",
        ("host",),
        "How often a host was given up, and others took over what it ran.",
    ),
    # What happened.
    Metric("flyball_starts_total", "counter", ("unit",), "Runs that were begun."),
    Metric(
        "flyball_restarts_total",
        "counter",
        ("unit", "reason"),
        "Runs that were begun after an exit; the reason is the cause of that exit, or person, or resume.",
    ),
    Metric("flyball_exits_total", "counter", ("unit", "cause"), "Runs that ended, by cause: done, stopped, error, …"),
    Metric(
        "flyball_decisions_total",
        "counter",
        ("policy", "verdict"),
        "What each policy said that had something to say; `(none)`: nobody had anything to say against it.",
    ),
    Metric("flyball_layer_fired_total", "counter", ("layer", "name"), "Runs that one of the five layers ended."),
    Metric("flyball_faults_total", "counter", (), "Policies that failed when they were asked; it was answered STOP."),
    Metric("flyball_recovery_seconds", "histogram", (), "Time to recovery: from a run's exit to the next start."),
    Metric(
        "flyball_sessions_ended_total",
        "counter",
        ("outcome",),
        "Runs of sessions and graphs that ended, paused ones left out, by outcome: completed, timed_out, …",
    ),
    # Money, and other meters.
    Metric("flyball_spent_total", "counter", ("meter",), "What all units used of a meter; usd in dollars."),
    Metric(
        "flyball_budget_spent",
        "gauge",
        ("by", "subject", "meter"),
        "Spent of a budget in its period; usd in dollars. Of a budget by run: of the runs that live.",
    ),
    Metric("flyball_budget_reserved", "gauge", ("by", "subject", "meter"), "Reserved of a budget; usd in dollars."),
    Metric("flyball_budget_limit", "gauge", ("by", "subject", "meter"), "The limit of a budget; usd in dollars."),
    # The journal, and who reads it.
    Metric("flyball_journal_entries_total", "counter", (), "The number of the journal's last entry."),
    Metric("flyball_journal_lag_entries", "gauge", ("consumer",), "Entries that a reader of the journal has not read."),
    Metric(
        "flyball_journal_missed_entries_total",
        "counter",
        ("consumer",),
        "Entries that were trimmed from the journal before a reader came to them.",
    ),
    # Other parts of the control plane.
    Metric(
        "flyball_alert_deliveries_total",
        "counter",
        ("channel", "result"),
        "Messages that a channel was to deliver, by result: delivered, given_up.",
    ),
    Metric("flyball_alert_failures", "gauge", ("channel",), "How often in a row a channel did not take a message."),
    Metric("flyball_alerts_waiting", "gauge", (), "Messages in the outbox that are not delivered yet."),
    Metric("flyball_http_streams", "gauge", (), "Open event streams: pages, and whoever else watches."),
    Metric("flyball_logins_failed_total", "counter", (), "Wrong tokens and login codes."),
    # This endpoint.
    Metric("flyball_scrape_seconds", "gauge", (), "How long the scrape before this one took to make."),
)
METRICS: Final[Mapping[str, Metric]] = {metric.name: metric for metric in _LIST}

PROCESS: Final = (
    "process_virtual_memory_bytes",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_max_fds",
)
"""What Prometheus' own client says of the daemon's process, on Linux."""

BUCKETS: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0)
"""Bounds of the histogram of times to recovery, in seconds: the rungs of the ladders, and what lies below them."""

"""The settings of a drill: the user's own numbers, with times of a drill's own.

Counts, amounts, thresholds and what is switched on stay as they are. Waits become short, and windows are as long as the
exercise needs: a window that another safeguard would speak up in is so short that nothing falls into it. Whatever
reaches out of the scratch folder is left out: units, rules, alerts, the page, Telegram, the store, hosts.
"""

from collections.abc import Mapping
from typing import Any, Final

from flyball.config import Settings

SECTIONS: Final = (
    "quarantine",
    "circuit_breaker",
    "safety",
    "retry",
    "supervisor",
    "restart_policy",
    "crash_policy",
    "stall",
    "graph",
    "budget",
    "anomaly",
    "daemon",
    "rule",
    "exclusive",
)
"""What is taken from the user."""

WAIT: Final = 0.05
"""Seconds of every wait that flyball imposes: long enough to be told from none."""
LONG: Final = 60.0
"""Seconds of a window that an exercise has to stay within, also on a machine that is busy."""
NOTHING: Final = 0.000_001
"""Seconds of a window that nothing is to fall into: a microsecond, and no two runs end that close."""
PERIOD: Final = 0.25
"""Seconds of a period whose spending is learned from."""

TIMES: Final[Mapping[str, Mapping[str, float]]] = {
    "circuit_breaker": {"window_seconds": NOTHING, "recovery_timeout_seconds": WAIT},
    "safety": {"global_failure_window_seconds": NOTHING, "loop_window_seconds": LONG},
    "retry": {"base_delay_seconds": WAIT},
    "restart_policy": {
        "initial_backoff_seconds": WAIT,
        "max_backoff_seconds": WAIT,
        "starved_wait_seconds": WAIT,
    },
    "crash_policy": {
        "flap_window_seconds": NOTHING,
        "transient_delay_seconds": WAIT / 5,
        "flapping_delay_seconds": WAIT / 5,
    },
    "graph": {"timeout_seconds": LONG},
    "anomaly": {"period_seconds": PERIOD},
    "rule": {"timeout_seconds": LONG},
    "exclusive": {"lease_seconds": LONG},
}
"""The times of every fleet."""

FLEETS: Final[Mapping[str, Mapping[str, Mapping[str, float]]]] = {
    "main": {},
    "crashes": {},
    "restart": {},
    "money": {},
    "flapping": {"crash_policy": {"flap_window_seconds": LONG}},
    "breaker": {"circuit_breaker": {"window_seconds": LONG, "recovery_timeout_seconds": LONG}},
    "storm": {"safety": {"global_failure_window_seconds": LONG}},
    "clock": {},
    "kill": {},
    "left": {},
}
"""Each fleet has a daemon of its own, and what it has other times for. Some safeguards speak for the whole fleet, and
some speak up sooner than the one that is looked at would."""

SAID: Final = (
    "Your own counts, amounts and thresholds; short waits and windows of the drill's own; SQLite in scratch folders. "
    "Your units, rules, alerts, store and hosts are left out."
)


def settings_of(user: Settings, fleet: str) -> dict[str, Any]:
    """The settings file of a fleet, without its units."""
    dumped = user.model_dump(mode="json", by_alias=True, include=set(SECTIONS), exclude_none=True)
    for times in (TIMES, FLEETS[fleet]):
        for section, values in times.items():
            dumped[section] |= values
    ladder = dumped["quarantine"]["cooldown_ladder_seconds"]
    dumped["quarantine"]["cooldown_ladder_seconds"] = [min(WAIT, rung) for rung in ladder]
    dumped["daemon"]["sessionRecovery"]["pauseSeconds"] = WAIT
    del dumped["rule"]["listen"]
    return dumped | {"http": {"listen": "off"}}


def merged(below: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Both, section by section."""
    both = dict(below)
    for key, value in over.items():
        nested = isinstance(value, Mapping) and isinstance(both.get(key), Mapping)
        both[key] = merged(both[key], value) if nested else value
    return both


def restarts(user: Settings) -> bool:
    """Whether what fails is started again by itself."""
    policy = user.restart_policy
    return user.supervisor.enabled and policy.enabled and policy.restart_on_error

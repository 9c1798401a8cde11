"""The cast of the demo: who goes wrong in which way, under which settings, and what has to become of each.

A member is one misbehaviour, of one unit or of several. What is expected of it is a state that `flyball status` shows
and a reason code that the journal has; nothing here says when or how.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Final

EXTRAS: Final[Mapping[str, Sequence[str]]] = {
    "rules": ("cel", "cronsim", "watchfiles"),
    "langgraph": ("langgraph",),
    "browser": ("playwright",),
}
"""What an extra is known by: packages that it brings."""

SETTINGS: Final[Mapping[str, Any]] = {
    # Seconds where the defaults have minutes and hours: else it would take a night.
    "quarantine": {"cooldown_ladder_seconds": [1, 1.5, 2, 2.5, 3]},
    "restart_policy": {"initial_backoff_seconds": 1, "max_backoff_seconds": 3},
    "crash_policy": {"transient_delay_seconds": 1, "flapping_delay_seconds": 2},
    # Of those that fail for reasons of their own there are four: it takes one more, which is what the shop is for.
    "circuit_breaker": {"failure_threshold": 5, "min_units": 5, "window_seconds": 15, "recovery_timeout_seconds": 4},
    "retry": {"max_attempts": 1},
    "budget": {"per_fleet": "20.00", "period": "day"},
}
"""In force for all of the cast. What is not said here is as by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One misbehaviour, and what has to become of it."""

    name: str
    does: str
    """What it does wrong, in a few words."""
    state: str
    """What each of its units has to be in the end."""
    code: str = ""
    """The reason that has to have been given for it; nothing: none has to."""
    units: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Its units as `flyball.yaml` has them. None: a program of its own makes them."""
    rules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    program: str = ""
    """The module that it is, if it is a program beside the daemon."""
    extra: str = ""
    """What has to be installed for it."""
    shares_shop: bool = False
    """It needs the shop, which goes down and comes back: then the circuit has to open, and to close again."""

    @property
    def names(self) -> tuple[str, ...]:
        """What its units are called."""
        return (*self.units, *self.rules) or (self.name,)


def is_installed(extra: str) -> bool:
    """Whether what that extra brings is there."""
    return all(find_spec(package) is not None for package in EXTRAS[extra])


def install(extra: str) -> str:
    """What to type for an extra that is not there."""
    return f"pip install 'flyball-governor[{extra}]'"


def worker(temper: str, *arguments: str) -> list[str]:
    """The command of a unit of that temper."""
    return [sys.executable, "-m", "flyball.demo.workers", temper, *arguments]


def everybody(shop: str, *, in_browser: bool) -> list[Member]:
    """The whole cast, the honest one first. `shop` is the shop's address; `in_browser`: there is a Chromium."""
    return [
        Member(
            name="mail-triage",
            does="nothing: it is honest",
            state="healthy",
            units={"mail-triage": _agent("honest", budget="2.00", user="ann")},
        ),
        Member(
            name="invoice-parser",
            does="crashes at the same place each time",
            state="quarantined",
            code="quarantined",
            units={"invoice-parser": {"command": worker("crashes"), "labels": {"user": "bob"}}},
        ),
        Member(
            name="translator",
            does="exits soon after each start, never for the same reason",
            state="halted",
            code="halted",
            units={"translator": {"command": worker("flaps"), "labels": {"user": "bob"}}},
        ),
        Member(
            name="web-research",
            does="hangs; started again, it goes on",
            state="finished",
            code="idle_timeout",
            units={"web-research": _agent("hangs", idle="4s", continue_args=["--continue"], user="ann")},
        ),
        Member(
            name="bug-hunter",
            does="goes round in circles",
            state="stopped",
            code="going_in_circles",
            units={"bug-hunter": _agent("circles", budget="2.00", user="bob")},
        ),
        Member(
            name="nightly-refactor",
            does="spends without end",
            state="stopped",
            code="cost_budget_exceeded",
            units={"nightly-refactor": _agent("spends", budget="2.00", user="ann")},
        ),
        Member(
            name="digest",
            does="a session that pauses too often",
            state="failed",
            code="max_resume_attempts_exceeded",
            units={
                "digest": {
                    "command": worker("pauses"),
                    "kind": "session",
                    "resumes": 3,
                    "budget": "0.50",
                    "labels": {"user": "ann"},
                }
            },
        ),
        _bad_selector(shop, in_browser=in_browser),
        Member(
            name="board@strategy",
            does="a graph that never ends",
            state="stopped",
            code="max_steps",
            program="flyball.demo.graph",
            extra="langgraph",
        ),
        Member(
            name="shop imports",
            does="need an API that dies, and all fail at once",
            state="finished",
            code="circuit_open",
            units={
                f"import-{what}": {"command": worker("imports", what), "labels": {"user": "ann", "provider": "shop"}}
                for what in ("images", "orders", "prices", "reviews", "stock")
            },
            shares_shop=True,
        ),
    ]


def _agent(temper: str, *, user: str, **more: Any) -> dict[str, Any]:
    return {"command": worker(temper), "kind": "agent", "grace": "2s", "labels": {"user": user}, **more}


def _bad_selector(shop: str, *, in_browser: bool) -> Member:
    """A rule that was right until the shop changed its page."""
    action: dict[str, Any]
    if in_browser:
        does = "a rule: it clicks, in Chromium, on what is not there"
        action = {"browser": [{"goto": f"{shop}/"}, {"click": "#buy-now", "timeout": "1s"}]}
    else:
        does = "a rule: it asks a server for what is not there"
        action = {"http": {"url": f"{shop}/buy-now", "method": "POST"}}
    rule = {"triggers": [{"startup": True}], "actions": [action], "labels": {"user": "bob"}}
    return Member(
        name="buy-tea", does=does, state="quarantined", code="quarantined", rules={"buy-tea": rule}, extra="rules"
    )


def settings(members: Sequence[Member], listen: str) -> dict[str, Any]:
    """The settings file for these."""
    return {
        **SETTINGS,
        "http": {"listen": listen},
        "units": {name: dict(unit) for member in members for name, unit in member.units.items()},
        "rules": {name: dict(rule) for member in members for name, rule in member.rules.items()},
    }

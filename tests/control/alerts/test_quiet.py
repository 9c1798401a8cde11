"""Who is told what, and when not."""

from datetime import UTC, datetime
from typing import Any

import pytest

from flyball.config.alerts import AlertRule, Alerts, Ntfy, Quiet
from flyball.control.alerts.notices import KINDS, Notice
from flyball.control.alerts.quiet import channels_for, is_held_back, quiet_until
from flyball.core.time import SECOND, Instant

NIGHT = Quiet(start=22 * 60, end=7 * 60)
NOON = Quiet(start=12 * 60, end=13 * 60)
BERLIN = Quiet(start=22 * 60, end=7 * 60, timezone="Europe/Berlin")


def at(text: str) -> Instant:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


@pytest.mark.parametrize(
    ("quiet", "now", "until"),
    [
        (None, "2026-01-10T23:00", None),
        (NIGHT, "2026-01-10T21:59", None),
        (NIGHT, "2026-01-10T22:00", "2026-01-11T07:00"),
        (NIGHT, "2026-01-11T00:00", "2026-01-11T07:00"),
        (NIGHT, "2026-01-11T06:59", "2026-01-11T07:00"),
        (NIGHT, "2026-01-11T07:00", None),
        (NOON, "2026-01-10T12:30", "2026-01-10T13:00"),
        (NOON, "2026-01-10T13:00", None),
        (BERLIN, "2026-01-10T21:00", "2026-01-11T06:00"),  # an hour ahead in winter
        (BERLIN, "2026-07-10T20:00", "2026-07-11T05:00"),  # two in summer
        (BERLIN, "2026-03-28T22:30", "2026-03-29T05:00"),  # the night in which it changes
        (BERLIN, "2026-10-24T21:30", "2026-10-25T06:00"),
    ],
)
def test_hours(quiet: Quiet | None, now: str, until: str | None) -> None:
    """Quiet hours are those of the clock on somebody's wall, over midnight and over the change to summer time."""
    assert quiet_until(quiet, at(now)) == (at(until) if until else 0)


@pytest.mark.parametrize(
    ("severity", "passes", "held"),
    [
        ("info", "critical", True),
        ("warning", "critical", True),
        ("critical", "critical", False),
        ("warning", "warning", False),
        ("info", "warning", True),
    ],
)
def test_what_passes(severity: str, passes: str, held: bool) -> None:
    """What is severe enough wakes people up."""
    quiet = Quiet(start=22 * 60, end=7 * 60, passes=passes)
    assert is_held_back(quiet, severity, at("2026-01-10T23:00")) is held
    assert not is_held_back(quiet, severity, at("2026-01-10T12:00"))


def notice(kind: str = "quarantined", unit: str = "shop-1", **more: Any) -> Notice:
    return Notice(kind=kind, severity=KINDS[kind].severity, at=1, unit=unit, **more)


@pytest.mark.parametrize(
    ("rule", "told", "fits"),
    [
        (AlertRule(), notice(), True),
        (AlertRule(), notice("failure"), False),  # info
        (AlertRule(severity="info"), notice("failure"), True),
        (AlertRule(severity="info"), notice("restarts"), False),  # has to be named
        (AlertRule(kinds=("restarts",)), notice("restarts"), True),
        (AlertRule(severity="critical"), notice("timeout"), False),
        (AlertRule(kinds=("timeout", "question")), notice("timeout"), True),
        (AlertRule(kinds=("timeout", "question")), notice(), False),
        (AlertRule(units=("shop-*",)), notice(), True),
        (AlertRule(units=("shop-*",)), notice(unit="web"), False),
        (AlertRule(labels={"team": "a"}), notice(labels={"team": "a", "user": "ann"}), True),
        (AlertRule(labels={"team": "a"}), notice(labels={"team": "b"}), False),
        (AlertRule(labels={"team": "a"}), notice(), False),
    ],
)
def test_rules(rule: AlertRule, told: Notice, fits: bool) -> None:
    """A rule is for what fits all that it names."""
    settings = Alerts(channels=(Ntfy(name="phone", topic="t"),), rules=(rule,))
    assert channels_for(told, settings) == (("phone",) if fits else ())


def test_several_rules() -> None:
    """What two rules send to a channel goes there once; without rules all that is a warning goes everywhere."""
    both = tuple(Ntfy(name=name, topic="t") for name in ("phone", "mail", "chat"))
    rules = (AlertRule(channels=("mail",)), AlertRule(channels=("mail", "phone")))
    assert channels_for(notice(), Alerts(channels=both, rules=rules)) == ("phone", "mail")
    assert channels_for(notice("timeout"), Alerts(channels=both)) == ("phone", "mail", "chat")
    assert channels_for(notice("failure"), Alerts(channels=both)) == ()


def test_a_dead_channel_is_told_by_the_others() -> None:
    """Whatever the rules say: they may name the dead one alone."""
    both = tuple(Ntfy(name=name, topic="t") for name in ("phone", "mail"))
    settings = Alerts(channels=both, rules=(AlertRule(kinds=("question",), channels=("phone",)),))
    assert channels_for(notice("channel_dead", ref="phone"), settings) == ("mail",)

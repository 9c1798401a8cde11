"""What of the journal is news: a function of an entry alone."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flyball.control.alerts.notices import ALSO, KINDS, READ, STANDING, Notice, Over, Seen, can_tell, news_of
from flyball.core.codec import Body, encode_body
from flyball.core.decision import PROCEED, Decision, Reason, Verb, finish, hold, proceed, stop, wait
from flyball.core.event import (
    Acknowledged,
    Answered,
    AnyEvent,
    Asked,
    Beat,
    Booted,
    Cause,
    Exited,
    Fired,
    Raised,
    Released,
    Start,
    Step,
    Stepped,
)
from flyball.core.layers import CODES

QUARANTINED = Reason(
    "quarantine", "quarantined", "6 failures of Boom: x (abcdef01) within 3 s; the limit is 6", "Reset."
)
AT = 5_000_000


def notices(event: AnyEvent, decision: Decision = PROCEED) -> list[Notice]:
    return [one for one in news_of(AT, Body(event, decision)) if isinstance(one, Notice)]


def over(event: AnyEvent, decision: Decision = PROCEED) -> list[Over]:
    return [one for one in news_of(AT, Body(event, decision)) if isinstance(one, Over)]


def exited(error: str = "Boom", cause: Cause = Cause.ERROR, **more: Any) -> Exited:
    return Exited(unit="a", run="r", cause=cause, error=error, **more)


def reason(code: str) -> Reason:
    return Reason("p", code, f"{code} with numbers", "Do this.")


@pytest.mark.parametrize(
    ("event", "decision", "kind", "severity"),
    [
        (exited(fingerprint="abcdef0123456789"), hold(QUARANTINED), "quarantined", "critical"),
        (exited(), hold(reason("halted")), "halted", "critical"),
        (exited(), hold(reason("restarts_in_a_row")), "restarts_in_a_row", "critical"),
        (Start(unit="a"), hold(reason("max_resume_attempts_exceeded")), "max_resume_attempts_exceeded", "critical"),
        (Booted(units=3), hold(reason("restart_storm_detected")), "restart_storm", "critical"),
        (Booted(units=3), hold(reason("clock_jumped")), "clock_jumped", "critical"),
        (Start(unit="a"), hold(reason("too_many_restarts")), "too_many_restarts", "critical"),
        (Start(unit="a"), wait(9, reason("too_many_restarts")), "restarts_often", "warning"),
        (Step(unit="a"), stop(reason("policy_failed")), "policy_failed", "critical"),
        (Step(unit="a"), finish(reason("cost_budget_exceeded")), "cost_budget_exceeded", "warning"),
        (Start(unit="a"), wait(9, reason("circuit_open")), "circuit_open", "warning"),
        (Start(unit="a"), hold(reason("waits_for_person")), "waits_for_person", "warning"),
        (exited("timeout", Cause.TIMEOUT), PROCEED, "timeout", "warning"),
        (exited("", Cause.TIMEOUT), PROCEED, "timeout", "warning"),
        (exited("idle_timeout", Cause.TIMEOUT), PROCEED, "idle_timeout", "warning"),
        (exited("cost_budget_exceeded", Cause.STARVED), PROCEED, "cost_budget_exceeded", "warning"),
        (exited("MemoryError", Cause.STARVED), PROCEED, "starved", "warning"),
        (exited("hard_cap_15_rounds", Cause.DONE), PROCEED, "hard_cap_15_rounds", "warning"),
        (exited("max_rounds", Cause.DONE), PROCEED, "max_rounds", "warning"),
        (exited("max_steps", Cause.STOPPED), PROCEED, "max_steps", "warning"),
        (exited("GraphRecursionError: 55", Cause.ERROR), PROCEED, "max_steps", "warning"),
        (exited("preflight", Cause.ERROR), PROCEED, "preflight", "warning"),
        (exited("loop_detected", Cause.STOPPED), PROCEED, "loop_detected", "warning"),
        (exited("going_in_circles", Cause.STOPPED), PROCEED, "stalled", "warning"),
        (exited("polled_too_long", Cause.STOPPED), PROCEED, "stalled", "warning"),
        (exited("lost", Cause.LOST), PROCEED, "lost", "warning"),
        (exited(), finish(reason("ended_error")), "failed", "warning"),
        (exited(), wait(9, reason("cooling")), "failure", "info"),
        (Stepped(unit="a"), proceed(nudge=reason("spend_anomaly")), "spend_anomaly", "warning"),
        (Asked(unit="a", run="r", id="q1", text="May I?", choices=("yes", "no")), PROCEED, "question", "warning"),
        (Beat(unit="a", stuck="File x\nline 3"), PROCEED, "stuck", "critical"),
        (Fired(unit="a", trigger="cron", dropped="queue_full"), PROCEED, "firing_dropped", "warning"),
        (Start(unit="a", again=True), PROCEED, "restarts", "info"),
        (Booted(units=3), PROCEED, "daemon_started", "info"),
    ],
)
def test_kinds(event: AnyEvent, decision: Decision, kind: str, severity: str) -> None:
    """Timeouts (S1-26), money and the hard cap (S1-52), quarantine (S0-36), each restart (S3-50), and whatever else
    waits for people, is a notice with its severity; it can be told of from the journal's bytes; and no other comes of
    it but that a daemon started."""
    found = {notice.kind: notice for notice in notices(event, decision)}
    assert found.keys() - {"daemon_started"} == {kind} - {"daemon_started"}
    assert found[kind].severity == severity
    assert found[kind].text
    name = type(event).__name__.lower()
    assert name in READ
    assert can_tell(name, decision.verb.name.lower(), encode_body(event, decision))


@pytest.mark.parametrize(
    ("event", "decision"),
    [
        (exited("", Cause.DONE), PROCEED),
        (exited("consensus", Cause.DONE), PROCEED),
        (exited("stopped", Cause.STOPPED, policy="manual"), PROCEED),
        (exited("paused", Cause.STOPPED), hold(reason("paused"))),
        (Start(unit="a"), PROCEED),
        (Start(unit="a"), wait(9, reason("cooling"))),
        (Step(unit="a"), PROCEED),
        (Beat(unit="a"), PROCEED),
        (Fired(unit="a", trigger="cron"), PROCEED),
    ],
)
def test_no_news(event: AnyEvent, decision: Decision) -> None:
    """What goes as it should, and what a person ordered, is not told."""
    assert notices(event, decision) == []


@pytest.mark.parametrize("kind", ["step", "stepped", "beat"])
def test_most_are_not_even_read(kind: str) -> None:
    """Of steps and signs of life, which are the most, only those that can be news are decoded."""
    assert not can_tell(kind, "proceed", b'{"event":{},"decision":{}}')


def test_every_layer_is_a_kind() -> None:
    """Each code of a layer is a kind of alert, but the one that is how it should end."""
    ends = {notice.kind for code in CODES for notice in notices(exited(code, Cause.STOPPED))}
    assert ends == {"max_steps", "preflight", "max_rounds", "hard_cap_15_rounds"} | {
        "timeout",
        "idle_timeout",
        "cost_budget_exceeded",
    }


def test_quarantine_says_which_failure() -> None:
    """The group is about the error, the problem is named by the fingerprint, as on the list of problems. A refused
    start, and an exit of another kind, say that it is so, and not that it happened once more."""
    (own,) = notices(exited("Boom: x", fingerprint="abcdef0123456789"), hold(QUARANTINED))
    assert (own.subject, own.ref, own.problem, own.counts) == ("Boom: x", "abcdef01", "a:quarantined:abcdef01", True)
    (refused,) = notices(Start(unit="a"), hold(QUARANTINED))
    assert not refused.counts
    other = [one for one in notices(exited(fingerprint="1234"), hold(QUARANTINED)) if one.kind == "quarantined"]
    assert [one.counts for one in other] == [False]


def test_same_error_of_two_units_is_one_subject() -> None:
    """Ids and times in an error do not tell it apart from itself."""
    first = notices(exited("Timeout of req-4f2a9911 at 12:00:01", Cause.TIMEOUT))
    second = notices(exited("Timeout of req-77c1aa02 at 12:00:09", Cause.TIMEOUT))
    assert first[0].subject == second[0].subject


@pytest.mark.parametrize(
    ("event", "kinds", "unit"),
    [
        (Start(unit="a"), STANDING, "a"),
        (exited("", Cause.DONE), STANDING, "a"),
        (Released(unit="a"), {"quarantined", "halted", "restarts_in_a_row"}, "a"),
        (Released(unit="a", policies=("quarantine",)), {"quarantined"}, "a"),
        (Released(scope="fleet"), {"restart_storm", "clock_jumped"}, ""),
        (Raised(unit="a"), {"cost_budget_exceeded", "budget_near"}, "a"),
        (Answered(unit="a", id="q"), {"question"}, "a"),
    ],
)
def test_ends(event: AnyEvent, kinds: Sequence[str], unit: str) -> None:
    """A unit that is let go or done, that a person released, or that was answered, has its problems no more."""
    assert any(set(kinds) <= one.kinds and one.unit == unit for one in over(event))


def test_reset_of_one_failure() -> None:
    """It ends that quarantine, and no other of the unit."""
    (one,) = over(Released(unit="a", policies=("quarantine", "cooldown"), fingerprint="abcdef0123456789"))
    assert one.ref == "abcdef0123456789"
    assert "halted" not in one.kinds


def test_a_refused_start_ends_nothing() -> None:
    """Nothing is over because somebody tried."""
    assert over(Start(unit="a"), hold(QUARANTINED)) == []


def test_a_hold_is_not_left_by_a_good_end() -> None:
    """What the governor still holds is not over because a run was done; and it did not happen once more."""
    done = exited("", Cause.DONE)
    assert all("quarantined" not in one.kinds for one in over(done, hold(QUARANTINED)))
    assert [one.counts for one in notices(done, hold(QUARANTINED))] == [False]


def test_seen() -> None:
    """That a person has seen a problem is passed on."""
    (seen,) = news_of(AT, Body(Acknowledged(problem="a:halted", until=9, by="ann"), PROCEED))
    assert seen == Seen(at=AT, problem="a:halted", until=9, by="ann")


def test_names_that_exist() -> None:
    """What is called otherwise elsewhere is a kind here; and every kind says what it is in words."""
    assert ALSO.keys() <= KINDS.keys()
    assert all(kind.words and kind.severity in ("info", "warning", "critical") for kind in KINDS.values())
    assert Verb.HOLD > Verb.FINISH  # what `failed` is told by


def test_every_kind_is_explained() -> None:
    """The page about alerts lists every kind, with its severity."""
    page = (Path(__file__).parents[3] / "docs/how-to/alerts.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE)
    assert [row for row in rows if row[1] in ("info", "warning", "critical")] == [
        (name, kind.severity) for name, kind in KINDS.items()
    ]

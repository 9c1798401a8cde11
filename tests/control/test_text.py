"""Words for people."""

import signal

import pytest

from flyball.control.text import clock_time, describe, exit_text, length, one_line, table, times
from flyball.core.decision import PROCEED, Reason, finish, hold, proceed, stop, wait
from flyball.core.event import (
    Acknowledged,
    Answered,
    Asked,
    Beat,
    Booted,
    Cause,
    Event,
    Exited,
    Fired,
    Held,
    Ordered,
    Raised,
    Released,
    Resume,
    Revise,
    Start,
    Step,
    Stepped,
    Work,
)
from flyball.core.time import FOREVER, SECOND

NOW = 1_700_000_000 * SECOND
WHY = Reason("p", "c", "because")
OF_A_RULE = {"runtime": "rule"}


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (Start(), "started"),
        (Start(again=True), "started again"),
        (Resume(), "resumed from a checkpoint"),
        (Step(), "a step"),
        (Step(steps=5), "5 steps granted"),
        (Stepped(done=(Work(),)), "a step made"),
        (Stepped(), "0 steps made"),
        (Beat(), "alive"),
        (Revise(revision="abcdef0123", by="ann"), "definition abcdef01 by ann"),
        (Asked(text="Deploy?", choices=("yes", "no")), "asks a person: Deploy? (yes, no)"),
        (Asked(text="Which one?"), "asks a person: Which one?"),
        (Answered(answer="yes", heard=True, by="ann", note="via cli"), "answered by ann via cli: yes"),
        (Answered(answer="no", by="default"), "nobody answered: takes no"),
        (Answered(note="withdrawn"), "asks no more: withdrawn"),
        (Answered(), "asks no more"),
        (Exited(cause=Cause.DONE), "exited: done"),
        (Exited(cause=Cause.ERROR, code=3, fingerprint="f" * 16), "exited: error: exit 3 (ffffffff)"),
        (Exited(cause=Cause.ERROR, signal=9), "exited: error: SIGKILL"),
        (Booted(units=3), "a supervisor started with 3 units"),
        (Held(by="ann", note="via cli"), "paused by ann via cli"),
        (Raised(more={"usd": 1_500_000}, by="ann", note="via page"), "budget raised by ann via page: 1.50 USD more"),
        (
            Raised(scope="user", labels={"user": "bob"}, more={"tokens": 50}, by="ann"),
            "budget raised by ann for the user bob: 50 tokens more",
        ),
        (Acknowledged(unit="u", problem="u:halted", by="ann"), "halted seen by ann"),
        (
            Acknowledged(problem="fleet:circuit_open", until=NOW, by="ann", note="via telegram"),
            "fleet:circuit_open snoozed by ann via telegram until 2023-11-14 22:13 UTC",
        ),
        (
            Ordered(verb="pause", asked="units=web", effect="web paused", by="ann", channel="http"),
            "ann via http asked to pause units=web: web paused",
        ),
        (
            Ordered(verb="raise", effect="bob may look, but not `raise`", refused="forbidden", by="bob"),
            "bob asked to raise; refused (forbidden): bob may look, but not `raise`",
        ),
        (Held(scope="user"), "paused by a person for the user"),
        (Held(scope="user", labels={"user": "ann"}, by="bob"), "paused by bob for the user ann"),
        (Exited(cause=Cause.STOPPED, pause="rate_limit"), "paused for rate_limit"),
        (Resume(checkpoint="7"), "resumed from checkpoint 7"),
        (Released(fingerprint="abcdef0123"), "released by a person: failure abcdef01"),
        (Released(by="ann"), "released by ann: all holds"),
        (Fired(trigger="webhook price"), "fired by webhook price"),
        (
            Fired(trigger="rule b", depth=17, dropped="chain_too_long"),
            "fired by rule b, 17 rules deep; dropped: chain_too_long",
        ),
        (Step(pattern="fetch:price", labels=OF_A_RULE), "action fetch"),
        (Stepped(done=(Work(pattern="fetch:price"),), labels=OF_A_RULE), "action fetch done"),
        (Stepped(done=(Work(pattern="undo-fetch:price", error=True),), labels=OF_A_RULE), "action undo-fetch failed"),
    ],
)
def test_what_happened(event: Event, says: str) -> None:
    """Each kind of event in plain words."""
    assert describe(event, PROCEED, NOW) == says


@pytest.mark.parametrize(
    ("decision", "says"),
    [
        (wait(NOW + 2 * SECOND, WHY), "asked to start; waits 2 s: because"),
        (wait(NOW + 2 * SECOND, WHY) | wait(NOW, Reason("q", "d", "too soon")), "waits 2 s: because; too soon"),
        (wait(FOREVER, WHY), "waits: because"),
        (finish(WHY), "ends: because"),
        (stop(WHY), "is stopped: because"),
        (hold(WHY), "is held: because"),
        (hold(WHY) | wait(NOW, Reason("q", "d", "too soon")), "is held: because"),
    ],
)
def test_what_was_decided(decision: object, says: str) -> None:
    """Each verb in plain words, with all reasons of the strictest."""
    assert describe(Start(), decision, NOW).endswith(says)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("ended_done", "exited: done"),
        ("ended_by_policy", "exited: done; ends: because"),
        ("draining", "exited: done; ends: because"),
    ],
)
def test_end_of_a_run_of_a_rule(code: str, says: str) -> None:
    """That none follows by itself goes without saying: what fires the rule begins the next. What a person has to do
    does not."""
    exited = Exited(cause=Cause.DONE, labels=OF_A_RULE)
    assert describe(exited, finish(Reason("restart", code, "because")), NOW) == says


def test_what_a_change_cleared() -> None:
    """A changed definition says what it cleared."""
    cleared = proceed(nudge=Reason("revision", "cleared_by_change", "failures cleared by change"))
    said = describe(Revise(revision="abcdef0123"), cleared, NOW)
    assert said == "definition abcdef01: failures cleared by change"


def test_a_sign_of_life_that_is_answered_with_an_end() -> None:
    """Only what follows is said: that it was alive goes without saying."""
    assert describe(Beat(), hold(WHY), NOW) == "is held: because"


def test_a_nudge_is_no_refusal() -> None:
    """A decision to go on says nothing more."""
    assert describe(Step(), proceed(nudge=WHY), NOW) == "a step"


def test_a_nudge_that_follows_a_report_is_told() -> None:
    """What was noticed about the work that was reported, such as unusual spending, is news for people, too."""
    assert describe(Stepped(done=(Work(),)), proceed(nudge=WHY), NOW) == f"a step made; {WHY.text}"


def test_exit_text() -> None:
    """What is known of an exit, each thing once."""
    assert exit_text("lost", "lost", None, None, "ab") == "lost (ab)"
    assert exit_text("stopped", "", 0, None, "ab") == "stopped: exit 0"
    assert exit_text("error", "", None, int(signal.SIGSEGV)) == "error: SIGSEGV"
    assert exit_text("error", "", None, 200) == "error: signal 200"


def test_times() -> None:
    """Lengths are no more exact than an eye needs; instants of another day have their date."""
    assert (length(0.0001234), length(2.3456), length(59.99), length(61.9)) == ("123 us", "2.3 s", "1 min", "1 min 1 s")
    assert (length(0.0486), length(-5)) == ("49 ms", "0 s")
    assert len(clock_time(NOW / SECOND, NOW / SECOND)) == len("12:00:00")
    assert len(clock_time(NOW / SECOND - 100_000, NOW / SECOND)) == len("2023-11-14 12:00:00")
    assert (times(1), times(2)) == ("once", "2 times")


def test_one_line() -> None:
    """Nothing that steers a terminal is left in a text."""
    assert one_line("a\nb\x1b[31mc\x07\u202ed") == "a b [31mc  d"


def test_table() -> None:
    """Columns are as wide as they have to be, and the whole no wider than the terminal."""
    lines = table(("A", "B"), [("x" * 100, "why"), ("y", "why not")])
    assert lines[1] == "x" * 59 + "…  why"
    assert lines[2].index("why") == lines[0].index("B") == 62
    assert all(len(line) <= 20 for line in table(("A", "B"), [("name", "z" * 100)], 20))


def test_a_narrow_table_keeps_its_last_column() -> None:
    """The widest column gives way, so that why something is so can be read; names are never cut."""
    name, text = "a-unit-with-a-rather-long-name", "6 failures of RuntimeError: not found"
    lines = table(("UNIT", "LAST EXIT", "WHY"), [(name, "e" * 60, text)], 100)
    assert lines[1].startswith(f"{name}  eee")
    assert lines[1].endswith("…")
    assert "6 failures of RuntimeError: not" in lines[1]
    assert max(len(line) for line in lines) <= 100

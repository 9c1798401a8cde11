"""Counters, from what happened to what Prometheus is told."""

from typing import Any

import pytest

from flyball.control.metrics import tally
from flyball.control.metrics.labels import OTHER, VALUES_MAX, WORK, Values
from flyball.control.metrics.tally import Tally
from flyball.core.codec import decode_body
from flyball.core.decision import Decision
from flyball.core.event import Cause, Exited, Resume, Settled, Start, Step, Stepped, Work
from flyball.core.policy import Gate, Key
from flyball.core.time import MILLISECOND, MINUTE, SECOND
from flyball.policies import Budget, Session
from flyball.store import Draft, Line, Snapshot
from flyball.store.memory import MemoryStore
from tests.control.metrics.scene import Scraped, measured, parsed


def test_restarts_by_unit_and_reason() -> None:
    """S3-33, S3-34: each start after an exit is counted for its unit, by the cause of that exit; what a person started
    again is told apart, and a first start is none."""
    scraped = Scraped()
    scene = scraped.scene
    scene.start("coder")
    scene.exit("coder")
    scene.clock.move(5 * MINUTE)
    scene.start("coder", again=True)
    scene.exit("coder", Cause.TIMEOUT)
    scene.clock.move(5 * MINUTE)
    scene.start("coder", again=True)
    scene.exit("coder", Cause.STOPPED)
    scene.start("coder")
    scene.start("another")
    table = scraped.table()
    restarts = {place[1:]: count for place, count in table.items() if place[0] == "flyball_restarts_total"}
    assert restarts == {("error", "coder"): 1, ("timeout", "coder"): 1, ("person", "coder"): 1}
    assert table["flyball_starts_total", "coder"] == 4
    assert table["flyball_starts_total", "another"] == 1
    exits = {place[1:]: count for place, count in table.items() if place[0] == "flyball_exits_total"}
    assert exits == {("error", "coder"): 1, ("timeout", "coder"): 1, ("stopped", "coder"): 1}


@pytest.mark.parametrize(
    ("start", "ended", "reason"),
    [
        (Start(unit="u", run="r2", again=True), Cause.LOST, "lost"),
        (Start(unit="u", run="r2", again=True), Cause.DONE, "done"),
        (Start(unit="u", run="r2", again=True), None, "unknown"),
        (Start(unit="u", run="r2"), None, ""),
        (Start(unit="u", run="r2"), Cause.DONE, "person"),
        (Resume(unit="u", run="r2"), Cause.ERROR, "resume"),
        (Start(unit="u", run="r2", labels={"runtime": "rule"}), Cause.DONE, ""),
        (Start(unit="u", run="r2", labels={"runtime": "rule"}), Cause.ERROR, "error"),
    ],
    ids=["lost", "done", "exit not seen", "first", "by hand", "resume", "fired", "fired after a failure"],
)
def test_reason_of_a_restart(start: Start, ended: Cause | None, reason: str) -> None:
    """S3-34: what counts as a restart is what people are shown as one, and its reason is how the last run ended."""
    scraped = Scraped(policies=[])
    if ended is not None:
        scraped.governor.submit(Exited(unit="u", run="r1", cause=ended))
    scraped.governor.submit(start)
    found = [place[1] for place in scraped.table() if place[0] == "flyball_restarts_total"]
    assert found == ([reason] if reason else [])


def test_a_start_that_was_refused_is_no_start() -> None:
    """A refusal is a decision and nothing more; the same refusal again is not even that."""
    scraped = Scraped()
    scraped.scene.quarantine("coder")
    before = scraped.table()
    for _ in range(3):
        assert not scraped.scene.start("coder", again=True).proceeds
    after = scraped.table()
    assert after["flyball_starts_total", "coder"] == before["flyball_starts_total", "coder"]
    held = ("flyball_decisions_total", "quarantine", "hold")
    assert after[held] == before[held] + 1


def test_decisions_by_policy_and_verdict() -> None:
    """Each policy that had something to say is counted with what it said; what nobody spoke against is `(none)`."""
    scraped = Scraped()
    scraped.scene.start("coder")
    scraped.scene.exit("coder", fingerprint="f1")
    table = scraped.table()
    said = {place[1:]: count for place, count in table.items() if place[0] == "flyball_decisions_total"}
    assert said[("(none)", "proceed")] == 1
    assert said[("cooldown", "wait")] == 1
    assert ("quarantine", "hold") not in said


@pytest.mark.parametrize(
    ("error", "layer"),
    [("max_steps", "1"), ("preflight", "2"), ("max_rounds", "3"), ("timeout", "4"), ("cost_budget_exceeded", "5")],
)
def test_which_layer_fired(error: str, layer: str) -> None:
    """S1-49: a run that one of the five layers ended is counted for that layer; all five are told of from the
    beginning."""
    scraped = Scraped()
    scraped.scene.start("coder")
    scraped.scene.exit("coder", Cause.STOPPED, error=error)
    fired = {place[1]: count for place, count in scraped.table().items() if place[0] == "flyball_layer_fired_total"}
    assert fired == {**dict.fromkeys("12345", 0.0), layer: 1.0}


def test_time_to_recovery() -> None:
    """S3-35: from an exit to the next start, as whoever started it saw it; a start without an exit before says
    nothing."""
    scraped = Scraped(policies=[])
    for down in (0, 20 * MILLISECOND, 4 * SECOND, 10 * MINUTE):
        scraped.scene.start("coder", again=bool(down), down=down)
    table = scraped.table()
    buckets = {place[1]: count for place, count in table.items() if place[0] == "flyball_recovery_seconds_bucket"}
    bounds = ("0.01", "0.05", "1.0", "5.0", "300.0", "1800.0", "+Inf")
    assert [buckets[bound] for bound in bounds] == [0, 1, 1, 2, 2, 3, 3]
    assert table["flyball_recovery_seconds_count",] == 3
    assert table["flyball_recovery_seconds_sum",] == pytest.approx(604.02)


@pytest.mark.parametrize(
    ("exited", "outcome"),
    [
        ({"cause": Cause.DONE}, "completed"),
        ({"cause": Cause.TIMEOUT, "error": "timeout"}, "timed_out"),
        ({"cause": Cause.ERROR, "error": "KeyError"}, "failed"),
        ({"cause": Cause.STARVED, "error": "cost_budget_exceeded"}, "budget_exceeded"),
        ({"cause": Cause.STOPPED, "error": "cost_budget_exceeded"}, "budget_exceeded"),
        ({"cause": Cause.STOPPED, "error": "stopped"}, "stopped"),
        ({"cause": Cause.LOST}, "lost"),
        ({"cause": Cause.STOPPED, "pause": "rate_limit"}, None),
    ],
    ids=["done", "timeout", "error", "starved", "over budget", "stopped", "lost", "paused"],
)
def test_outcomes_of_sessions(exited: dict[str, Any], outcome: str | None) -> None:
    """S1-53: how a session ended is counted in one word; one that is only paused has not ended. Units of other kinds
    are not sessions."""
    scraped = Scraped(policies=[])
    scraped.governor.panel.put("s1", [Session()])
    for unit in ("s1", "a-unit"):
        scraped.governor.submit(Exited(unit=unit, run="r1", **exited))
    table = scraped.table()
    ended = {place[1]: count for place, count in table.items() if place[0] == "flyball_sessions_ended_total"}
    words = ("completed", "stopped", "failed", "timed_out", "budget_exceeded", "lost")
    assert ended == {word: float(word == outcome) for word in words}
    assert table["flyball_exits_total", str(exited["cause"]), WORK] == 1
    assert table["flyball_exits_total", str(exited["cause"]), "a-unit"] == 1


def test_sessions_of_programs_are_sessions() -> None:
    """Of a session that another process runs only its definition is known here: it is counted all the same."""
    scraped = Scraped(policies=[])
    key = Key("definition", "unit", "elsewhere")
    store = scraped.governor.store
    store.transact([key], lambda snapshot: Draft(snapshot.at, {key: b'[{"policy":"Session"}]'}, None))
    scraped.governor.submit(Exited(unit="elsewhere", run="r1", cause=Cause.TIMEOUT))
    assert scraped.table()["flyball_sessions_ended_total", "timed_out"] == 1


def test_money_and_tokens_that_were_used() -> None:
    """Money is told in dollars, other meters as they are counted; also what a person settled."""
    scraped = Scraped(policies=[])
    used = Work(used={"usd": 250_000, "tokens": 900})
    scraped.governor.submit(Stepped(unit="u", run="r", done=(used, used)))
    scraped.governor.submit(Stepped(unit="u", run="r", done=(Work(),)))
    scraped.governor.submit(Settled(unit="u", run="r", used={"usd": 1_500_000}))
    table = scraped.table()
    assert table["flyball_spent_total", "usd"] == 2.0
    assert table["flyball_spent_total", "tokens"] == 1800


def test_counts_begin_with_the_daemon() -> None:
    """A daemon that starts anew counts from nothing, but what it finds at its start is counted."""
    store = MemoryStore()
    first = Scraped(store)
    first.scene.start("coder")
    first.scene.exit("coder")
    assert first.table()["flyball_exits_total", "error", "coder"] == 1
    again = measured(first.governor)
    first.governor.boot("me")
    table = parsed(again.render().decode())
    assert ("flyball_exits_total", "error", "coder") not in table
    assert table["flyball_decisions_total", "(none)", "proceed"] == 1
    assert table["flyball_journal_entries_total",] == 3


def test_each_entry_is_counted_once() -> None:
    """However often and whenever somebody asks."""
    scraped = Scraped()
    for number in range(1, 4):
        scraped.scene.start(f"unit-{number}")
        for _ in range(2):
            table = scraped.table()
            assert sum(count for place, count in table.items() if place[0] == "flyball_starts_total") == number
    assert table["flyball_journal_lag_entries", "metrics"] == 0


def test_one_scrape_reads_so_much_and_tells_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was not asked for long catches up over several scrapes, and says how far behind it is."""
    monkeypatch.setattr(tally, "ENTRIES_MAX", 20)
    monkeypatch.setattr(tally, "CHUNK_MAX", 10)
    scraped = Scraped(policies=[])
    for number in range(50):
        scraped.scene.start(f"unit-{number}")
    lags = [scraped.table()["flyball_journal_lag_entries", "metrics"] for _ in range(4)]
    assert lags == [30, 10, 0, 0]


def test_entries_that_are_gone_are_told_of() -> None:
    """What was trimmed before anybody asked cannot be counted: how much that was, is."""
    scraped = Scraped(policies=[])
    gone = 0
    for number in range(100):
        scraped.scene.start(f"unit-{number}")
        gone += scraped.governor.store.trim(10)
    assert gone
    table = scraped.table()
    assert table["flyball_journal_missed_entries_total", "metrics"] == gone
    assert sum(count for place, count in table.items() if place[0] == "flyball_starts_total") == 100 - gone


def test_an_entry_that_cannot_be_read_is_counted_by_its_verb() -> None:
    """Damage to one entry keeps nobody from counting the others."""
    scraped = Scraped(policies=[])
    store = scraped.governor.store
    store.transact((), lambda snapshot: Draft(snapshot.at, {}, Line("coder", "start", "proceed", b"{")))
    scraped.scene.start("coder")
    table = scraped.table()
    assert table["flyball_starts_total", "coder"] == 1
    assert table["flyball_decisions_total", "(none)", "proceed"] == 2


class _Broken:
    """A policy that fails when it is asked."""

    name, by, at = "broken", "unit", Gate.STEP

    def wakes(self, _: object) -> bool:
        return True

    def initial(self) -> Any:
        return Budget().initial()

    def evolve(self, state: Any, *_: object) -> Any:
        return state

    def decide(self, *_: object) -> Decision:
        raise ZeroDivisionError


def test_policies_that_fail_are_counted() -> None:
    """Each failure of a policy; and what cannot be told because of it keeps nobody from hearing of the rest."""
    scraped = Scraped(policies=[_Broken()])
    scraped.scene.start("coder")
    assert scraped.table()["flyball_faults_total",] == 1


def test_steps_are_counted_without_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The many entries that say nothing but that a step was made cost no reading; a text that looks like a reason is
    none."""
    read = 0
    real = decode_body

    def counted(data: bytes) -> Any:
        nonlocal read
        read += 1
        return real(data)

    monkeypatch.setattr(tally, "decode_body", counted)
    scraped = Scraped(policies=[])
    for number in range(100):
        scraped.governor.submit(Step(unit="u", run="r", pattern=f'{number}"reasons":["used":{{', call="c"))
    table = scraped.table()
    assert table["flyball_decisions_total", "(none)", "proceed"] == 100
    assert read == 0


def test_units_beyond_the_bound_are_summed() -> None:
    """A thousand units have series of their own, all others one together; those of the settings come first, and a unit
    keeps what it has."""
    scraped = Scraped(policies=[], named=["named"])
    for number in range(VALUES_MAX + 20):
        scraped.scene.start(f"unit-{number}")
    scraped.scene.start("named")
    table = scraped.table()
    starts = {place[1]: count for place, count in table.items() if place[0] == "flyball_starts_total"}
    assert len(starts) == VALUES_MAX + 1
    assert starts["named"] == 1
    assert starts[OTHER] == 21
    scraped.scene.start("unit-3")
    scraped.scene.start(f"unit-{VALUES_MAX + 3}")
    table = scraped.table()
    assert (table["flyball_starts_total", "unit-3"], table["flyball_starts_total", OTHER]) == (2, 22)


def test_values_are_short() -> None:
    """A name of any length becomes one of a bounded one."""
    assert len(Values().of("x" * 10_000)) == 128


def test_how_units_ended_is_forgotten_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded: of too many units, those that ended first are forgotten."""
    monkeypatch.setattr(tally, "EXITS_MAX", 2)
    scraped = Scraped(policies=[])
    counting = Tally(scraped.governor)
    for unit in "abc":
        scraped.governor.submit(Exited(unit=unit, run="r", cause=Cause.ERROR))
    for unit in "ac":
        scraped.governor.submit(Start(unit=unit, run="r2", again=True))
    counting.catch_up()
    assert dict(counting.restarts) == {("a", "unknown"): 1, ("c", "error"): 1}


def test_what_is_written_has_no_effect_on_decisions() -> None:
    """Counting asks the governor nothing and writes nothing: the journal is as it was."""
    scraped = Scraped()
    scraped.scene.start("coder")
    before: Snapshot = scraped.governor.store.read(())
    scraped.table()
    assert scraped.governor.store.read(()) == before

"""The simulated runtime obeys as a runtime has to, and its limits end it."""

import pytest

from flyball.core.decision import Decision, Reason, Verb, finish, stop
from flyball.core.event import Cause, Held, Released, Work
from flyball.core.time import DAY, FOREVER, HOUR, MINUTE, SECOND, Span
from flyball.policies import Deadline, Exclusive
from flyball.runtimes.simulation import Crash, Life, Plan, Unit, cause_of, simulate
from flyball.store.memory import MemoryStore
from flyball.testing.simulator import Report, default_policies, failing


def report_of(unit: Unit, kind: str = "process", *, lasts_max: Span = 30 * DAY) -> Report:
    return simulate(default_policies(kind), MemoryStore(), Plan(units=[unit], lasts_max=lasts_max))


def test_waits_are_kept() -> None:
    """Between an exit and the next start lies exactly what the strictest policy asked for."""
    report = report_of(Unit(name="unit", lives=failing(3 * SECOND)))
    waits = [run.waited for run in report.runs("unit")]
    assert waits == [0, 2 * SECOND, 5 * SECOND, 30 * SECOND, 5 * MINUTE, 30 * MINUTE]
    assert [run.by for run in report.runs("unit")] == [
        ("flapping",),
        ("cooldown",),
        ("flapping",),
        ("cooldown",),
        ("cooldown",),
        ("quarantine",),
    ]


def test_a_hung_run_is_killed_when_its_time_is_up() -> None:
    """A rule that hangs gets its 300 s and 10 s of grace, exits with `timeout`, and is held at the sixth."""
    report = report_of(Unit(name="unit", lives=lambda *_: Life(uptime=FOREVER)), "rule")
    runs = list(report.runs("unit"))
    assert {run.cause for run in runs} == {Cause.TIMEOUT}
    assert {run.exited - run.started for run in runs if run.exited is not None} == {310 * SECOND}
    assert (report.starts, report.held_by) == (6, ("quarantine",))


def test_what_waits_for_its_next_run_has_not_ended() -> None:
    """Cut off between two runs, a unit that was told to stop at its deadline is one that goes on."""
    report = report_of(
        Unit(name="unit", lives=lambda *_: Life(uptime=FOREVER)), "rule", lasts_max=310 * SECOND + SECOND // 2
    )
    assert (report.starts, report.fates["unit"].ended, report.ended_by) == (1, None, "lasts_max")


def test_what_hangs_without_a_deadline_is_shown_as_such() -> None:
    """A process has no deadline of its own: it is neither ended nor held, and the report does not say otherwise."""
    report = report_of(Unit(name="unit", lives=lambda *_: Life(uptime=FOREVER)), lasts_max=DAY)
    assert (report.starts, report.held, report.ended_by) == (1, False, "lasts_max")


def test_leases_are_renewed_in_time() -> None:
    """A run that lives far longer than its lease is never lost, not even when another boot looks for lost ones."""
    unit = Unit(name="unit", lives=lambda *_: Life(uptime=2 * HOUR, cause=Cause.DONE))
    report = simulate([Exclusive(lease=MINUTE)], MemoryStore(), Plan(units=[unit], lasts_max=HOUR))
    assert report.starts == 1
    assert 55 <= report.events <= 70


@pytest.mark.parametrize(
    ("kind", "life", "verb", "by", "steps"),
    [
        ("agent", Life(uptime=FOREVER, steps=(Work(call="c", result="r"),)), Verb.STOP, ("stall",), 4),
        (
            "rule",
            Life(uptime=FOREVER, steps=(Work(pattern="p", call="c{n}", result="r{n}"),), pace=SECOND // 2),
            Verb.STOP,
            ("loop",),
            99,
        ),
        ("session", Life(uptime=FOREVER, steps=(Work(call="c{n}", result="r{n}"),)), Verb.STOP, ("steps",), 55),
        (
            "session",
            Life(
                uptime=FOREVER,
                steps=(Work(call="c{n}", result="r{n}", reserved={"usd": 300_000}, used={"usd": 200_000}),),
            ),
            Verb.FINISH,
            ("budget",),
            4,
        ),
        (
            "graph",
            Life(uptime=FOREVER, steps=(Work(call="c{n}", result="r{n}", gauges={"convergence": 0.9}),)),
            Verb.FINISH,
            ("convergence",),
            1,
        ),
    ],
)
def test_steps_are_obeyed(kind: str, life: Life, verb: Verb, by: tuple[str, ...], steps: int) -> None:
    """A run that is told to end makes no step more, and is not started again by itself."""
    fate = report_of(Unit(name="unit", lives=lambda *_: life), kind).fates["unit"]
    assert (fate.starts, fate.ended, fate.ended_by, fate.steps) == (1, verb, by, steps)


def test_a_refused_call_is_reported_back() -> None:
    """An agent that insists on a refused call is stopped: refusals are steps like any other."""
    works = tuple(Work(call=f"call {n}", result="the same error", error=True) for n in range(6))
    report = report_of(Unit(name="unit", lives=lambda *_: Life(uptime=FOREVER, steps=works)), "agent")
    assert report.fates["unit"].ended is Verb.STOP
    assert any(what.what == "step" and what.verb is Verb.WAIT for what in report.history)


def test_resumes() -> None:
    """A session that is resumed again and again gets three resumes; the fourth holds it."""
    life = Life(uptime=10 * MINUTE, cause=Cause.STOPPED)
    report = report_of(Unit(name="unit", lives=lambda *_: life, resumes_after=MINUTE), "session")
    assert [run.resumed for run in report.runs("unit")] == [False, True, True, True]
    assert report.held_by == ("resumes",)


def test_done_is_not_started_again() -> None:
    """What is done is done, unless a trigger starts it."""
    done = Life(uptime=SECOND, cause=Cause.DONE)
    assert report_of(Unit(name="unit", lives=lambda *_: done)).starts == 1
    assert report_of(Unit(name="unit", lives=lambda *_: done, every=HOUR), lasts_max=DAY - 1).starts == 24


def test_a_person_releases_it() -> None:
    """Each release gives it a new row of attempts, and no more than that."""
    unit = Unit(name="unit", lives=failing(3 * SECOND), released_after=HOUR, releases_max=2)
    report = report_of(unit)
    assert (report.starts, report.held) == (18, True)


def test_orders_of_people() -> None:
    """A unit that a person paused ends and stays away until that person takes it back."""
    unit = Unit(name="unit", lives=lambda *_: Life(uptime=10 * DAY))
    orders = ((HOUR, Held(unit="unit")), (5 * HOUR, Released(unit="unit")))
    report = simulate(default_policies(), MemoryStore(), Plan(units=[unit], orders=orders, lasts_max=DAY))
    first, second = report.runs("unit")
    assert first.exited == report.began + HOUR
    assert first.cause is Cause.STOPPED
    assert second.started == report.began + 5 * HOUR


def test_lost_runs_are_in_the_history() -> None:
    """What was live when the supervisor was killed exits as lost when it boots."""
    unit = Unit(name="unit", lives=lambda *_: Life(uptime=DAY))
    plan = Plan(units=[unit], crashes=(Crash(HOUR, 30 * SECOND),), lasts_max=2 * HOUR)
    report = simulate(default_policies(), MemoryStore(), plan)
    first, second = report.runs("unit")
    assert (first.cause, first.verb) == (Cause.LOST, Verb.WAIT)
    assert first.exited == report.began + HOUR + 30 * SECOND
    assert second.waited == 2 * SECOND


@pytest.mark.parametrize(
    ("limit", "plan"),
    [
        ("starts_max", {"starts_max": 3}),
        ("events_max", {"events_max": 10}),
        ("lasts_max", {"lasts_max": MINUTE}),
        ("", {}),
    ],
)
def test_every_simulation_ends(limit: str, plan: dict[str, int]) -> None:
    """It names the limit that ended it; empty where nothing was left to happen."""
    unit = Unit(name="unit", lives=failing(3 * SECOND))
    report = simulate(default_policies(), MemoryStore(), Plan(units=[unit], **plan))  # type: ignore[arg-type]  # a matrix of ints
    assert report.ended_by == limit


@pytest.mark.parametrize(
    ("decision", "cause"),
    [
        (stop(Reason("deadline", "timeout", "")), Cause.TIMEOUT),
        (stop(Reason("deadline", "idle_timeout", "")), Cause.TIMEOUT),
        (stop(Reason("loop", "loop_detected", "")), Cause.STOPPED),
        (finish(Reason("budget", "cost_budget_exceeded", "")), Cause.STARVED),
        (finish(Reason("convergence", "consensus", "")), Cause.DONE),
        (finish(Reason("manual", "finishing", "")), Cause.STOPPED),
    ],
)
def test_cause_of_an_ordered_end(decision: Decision, cause: Cause) -> None:
    """What a run is reported as that ended because it was told to."""
    assert cause_of(decision) is cause


def test_a_shorter_deadline_is_the_lease() -> None:
    """A deadline below the exclusive lease is asked about in time, not at the lease's end."""
    policies = [*default_policies(), Deadline(lasts_max=7 * SECOND, grace=0)]
    unit = Unit(name="unit", lives=lambda *_: Life(uptime=HOUR))
    report = simulate(policies, MemoryStore(), Plan(units=[unit]))
    first = next(report.runs("unit"))
    assert first.exited == first.started + 7 * SECOND

"""The engine: one way from what fires a rule to what it does, under every safeguard."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from flyball.config.rules import Approval, Attempts, OnError, Pace, Rule, Run, SetValues, StartUnit, Startup
from flyball.core.decision import Verb
from flyball.core.event import Answered, Asked, Booted, Cause, Held, Released, Start, Step
from flyball.core.time import MINUTE, SECOND
from flyball.governor import Governor
from flyball.runtimes.rule.deed import ActionFailed, Scene
from flyball.runtimes.rule.firing import DEPTH_MAX, FIRING, Fate, Firing, Spark
from flyball.runtimes.rule.queue import encode
from flyball.runtimes.rule.triggers.startup import Startups
from flyball.testing.clock import START_OF_TIME
from tests.runtimes.rule.stage import HOLDER, Stage, act, rule

LADDER = (0, 1, 6, 21, 321, 2121)
"""Seconds at which a rule is started that always fails: after 1, 5, 15, 300 and 1,800 s."""


async def fails(scene: Scene, deed: Any) -> Mapping[str, Any]:
    raise ActionFailed("SelectorNotFound", "there is no #buy", target="#buy")


async def lasts(scene: Scene, deed: Any) -> Mapping[str, Any]:
    await asyncio.sleep(10)
    return {}


def seconds_of(stage: Stage, name: str = "rule") -> list[int]:
    """When its runs were granted, in whole seconds since the beginning."""
    entries = stage.store.entries(events=("start",), limit=10_000, unit=name)
    return [round((entry.at - START_OF_TIME) / SECOND) for entry in entries if entry.verb == "proceed"]


def waiting(stage: Stage) -> int:
    return len(stage.store.states(FIRING))


# The way.


def test_fired_and_done() -> None:
    """What fires a rule is written down, run, and gone when it is done."""
    stage = Stage()

    async def work() -> None:
        await stage.up(rule())
        assert await stage.fire() is Fate.QUEUED
        assert waiting(stage) == 1
        await stage.pass_by(1)
        assert [exited.cause for exited in stage.exits()] == [Cause.DONE]
        assert waiting(stage) == 0

    stage.run(work)
    fired = stage.fired()[0]
    assert fired.trigger == "command"
    assert stage.starts()[0].run == f"{fired.id}.1"
    assert [event.pattern for event, _ in stage.journal(Step) if isinstance(event, Step)] == ["act:rule"]


def test_unknown_rule() -> None:
    """What fires a rule that is not there any more does nothing."""
    stage = Stage()

    async def work() -> None:
        await stage.up(rule())
        assert await stage.fire("other") is Fate.UNKNOWN

    stage.run(work)


def test_ladder_and_quarantine() -> None:
    """A rule that always fails is tried again after 1, 5, 15, 300 and 1,800 s; after the sixth failure it is held, and
    what fired it waits until a person lets it go on."""
    stage = Stage()

    async def work() -> None:
        stage.does = fails
        await stage.up(rule())
        await stage.fire()
        await stage.pass_by(10_000)
        assert seconds_of(stage) == list(LADDER)
        assert waiting(stage) == 1
        stage.does = _fine
        mark = stage.exits()[0].fingerprint
        stage.governor.submit(Released(unit="rule", policies=("quarantine", "cooldown"), fingerprint=mark, by="ann"))
        await stage.engine.ordered("rule", "reset")
        await stage.pass_by(1)
        assert stage.exits()[-1].cause is Cause.DONE
        assert waiting(stage) == 0

    stage.run(work)
    assert {exited.fingerprint for exited in stage.exits() if exited.cause.failed} == {stage.exits()[0].fingerprint}
    assert [start.again for start in stage.starts()[:6]] == [False, True, True, True, True, True]


async def _fine(scene: Scene, deed: Any) -> Mapping[str, Any]:
    return {}


def test_attempts_are_one_failure() -> None:
    """Three attempts, after 1 s and 2 s; then the run failed, once."""
    stage = Stage()

    async def work() -> None:
        stage.does = fails
        await stage.up(rule(actions=(act(attempts=Attempts()),), runs_again=False))
        await stage.fire()
        await stage.pass_by(60)

    stage.run(work)
    asked = [entry.at for entry in stage.store.entries(events=("step",), limit=100)]
    assert [round((at - asked[0]) / SECOND) for at in asked] == [0, 1, 3]
    assert len(stage.exits()) == 1
    assert "attempt 3 of 3" in stage.exits()[0].detail


def test_final_failure_is_not_tried_again() -> None:
    """What would fail the same way is not attempted twice in one run."""
    stage = Stage()

    async def final(scene: Scene, deed: Any) -> Mapping[str, Any]:
        raise ActionFailed("BadSelector", "no selector", final=True)

    async def work() -> None:
        stage.does = final
        await stage.up(rule(actions=(act(attempts=Attempts()),), runs_again=False))
        await stage.fire()
        await stage.pass_by(60)

    stage.run(work)
    assert len(stage.done) == 1


@pytest.mark.parametrize(
    ("on_error", "done"),
    [
        (OnError.STOP, ["one", "two"]),
        (OnError.CONTINUE, ["one", "two", "three"]),
        (OnError.ROLLBACK, ["one", "two", "undo one"]),
    ],
)
def test_on_error(on_error: OnError, done: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """A failed action ends the run, or not, or has what was done undone; the run failed all the same, and the log says
    why."""
    stage = Stage()

    async def second_fails(scene: Scene, deed: Any) -> Mapping[str, Any]:
        return await fails(scene, deed) if deed.command[0] == "two" else {}

    async def work() -> None:
        stage.does = second_fails
        actions = tuple(act(name, undo=Run(command=(f"undo {name}",))) for name in ("one", "two", "three"))
        await stage.up(rule(actions=actions, on_error=on_error, runs_again=False))
        await stage.fire()
        await stage.pass_by(1)

    with caplog.at_level("INFO"):
        stage.run(work)
    assert [command for command, _ in stage.done] == done
    assert [exited.cause for exited in stage.exits()] == [Cause.ERROR]
    (said,) = [line for line in caplog.messages if ": failed: action two" in line]
    assert said.endswith(stage.exits()[0].detail)


def test_results_are_passed_on() -> None:
    """What an action gives back is there for the templates of the next, and what a rule remembers for all."""
    stage = Stage()
    seen: list[str] = []

    async def work() -> None:
        async def does(scene: Scene, deed: Any) -> Mapping[str, Any]:
            seen.append(deed.command[-1])
            return {"stdout": "42"}

        stage.does = does
        first = act("first", deed=Run(command=("first", "{{ trigger.data.word }}")))
        then = act("then", deed=Run(command=("then", "{{ steps.first.stdout }} by {{ values.who }}")))
        keep = act("keep", deed=SetValues(values={"who": "{{ trigger.by }}"}))
        await stage.up(rule(actions=(first, keep, then)))
        await stage.fire(data={"word": "hello"})
        await stage.pass_by(1)

    stage.run(work)
    assert seen == ["hello", "42 by test"]


def test_missing_value_is_a_failure() -> None:
    """A template that cannot be filled in fails the run, and is not attempted again in it."""
    stage = Stage()

    async def work() -> None:
        await stage.up(rule(actions=(act(deed=Run(command=("a", "{{ trigger.nothing }}"))),), runs_again=False))
        await stage.fire()
        await stage.pass_by(1)

    stage.run(work)
    assert [exited.error for exited in stage.exits()] == ["TemplateError"]
    assert not stage.done


# Conditions.


def test_condition_does_not_hold() -> None:
    """Then nothing is queued, and nothing is written."""
    stage = Stage()

    async def work() -> None:
        await stage.up(rule(when="trigger.data == 1"))
        assert await stage.fire(data=2) is Fate.SKIPPED
        assert await stage.fire(data=1) is Fate.QUEUED
        await stage.pass_by(1)

    stage.run(work)
    assert len(stage.fired()) == len(stage.starts()) == 1


def test_condition_that_cannot_be_judged() -> None:
    """It is a failure of the rule, which people see, and not a condition that does not hold."""
    stage = Stage()

    async def work() -> None:
        await stage.up(rule(when="trigger.data.amount > 10", runs_again=False))
        await stage.fire(data="text")
        await stage.pass_by(1)

    stage.run(work)
    assert [exited.error for exited in stage.exits()] == ["ConditionError"]
    assert not stage.done


def test_condition_is_judged_again_when_its_turn_comes() -> None:
    """What waited for long is not run if its condition does not hold any more."""
    stage = Stage()

    async def work() -> None:
        stage.does = lasts
        await stage.up(rule(when="time.minute == 13"))  # where simulated time begins
        await stage.fire()
        await stage.fire()
        stage.does = _fine
        await stage.pass_by(1)

    minute = (START_OF_TIME // MINUTE) % 60
    assert minute == 13
    stage.run(work)


# Bounds.


def test_queue_is_bounded() -> None:
    """More than a rule's queue holds is dropped: said once in the journal, and counted."""
    stage = Stage()

    async def work() -> None:
        stage.does = lasts
        await stage.up(rule(queue_max=3))
        fates = [await stage.fire() for _ in range(6)]
        assert fates == [Fate.QUEUED] * 3 + [Fate.FULL] * 3
        assert stage.engine.counts["rule"] == {Fate.QUEUED: 3, Fate.FULL: 3}

    stage.run(work)
    assert [fired.dropped for fired in stage.fired()].count(Fate.FULL) == 1


def test_too_long() -> None:
    """What a trigger says is bounded."""
    stage = Stage()

    async def work() -> None:
        await stage.up(rule())
        assert await stage.fire(data="x" * 300_000) is Fate.TOO_LONG

    stage.run(work)


@pytest.mark.parametrize(("runs_max", "ends_at"), [(1, 40), (2, 20), (4, 10)])
def test_runs_at_the_same_time(runs_max: int, ends_at: int) -> None:
    """As many as the rule allows."""
    stage = Stage()

    async def work() -> None:
        stage.does = lasts
        await stage.up(rule(runs_max=runs_max))
        for _ in range(4):
            await stage.fire()
        while waiting(stage):
            await stage.pass_by(0.5)
        assert round((stage.loop.now() - START_OF_TIME) / SECOND) == ends_at

    stage.run(work)


def test_runs_of_all_rules_and_priority() -> None:
    """When more are due than may run, those with a higher priority come first."""
    stage = Stage({"rule": {"max_running": 1}})

    async def work() -> None:
        stage.does = lasts
        await stage.up(*(rule(name, priority=number) for number, name in enumerate("abc")))
        stage.engine.resize(1, 100)
        for name in "abc":
            await stage.fire(name)
        await stage.pass_by(40)

    stage.run(work)
    order = [event.unit for event, decision in stage.journal(Start) if decision.proceeds]
    assert order == ["a", "c", "b"]


def test_rate() -> None:
    """No more starts within the window than the rule's rate; the rest waits."""
    stage = Stage()

    async def work() -> None:
        await stage.up(rule(pace=Pace(starts=2, window=MINUTE)))
        for _ in range(5):
            await stage.fire()
        await stage.pass_by(200)

    stage.run(work)
    assert seconds_of(stage) == [0, 0, 60, 60, 120]


def test_what_says_the_same_joins() -> None:
    """A time that comes again while one waits is the same run."""
    stage = Stage()

    async def work() -> None:
        stage.does = lasts
        engine = await stage.up(rule())
        spark = Spark(rule="rule", trigger="every 1s", data={"kind": "every"}, joins=True)
        fates = []
        for _ in range(5):
            fates.append(await engine.ring(spark))
            await stage.pass_by(0.1)
        assert fates == [Fate.QUEUED, Fate.QUEUED, Fate.JOINED, Fate.JOINED, Fate.JOINED]
        await stage.pass_by(60)

    stage.run(work)
    assert len(stage.starts()) == 2


# Loops.


def test_loop_is_stopped_at_the_hundredth() -> None:
    """The hundredth run of an action within a minute is stopped; then the rule waits for a person."""
    stage = Stage({"rule": {"max_runs_per_minute": 1_000}})

    async def work() -> None:
        await stage.up(rule())
        for _ in range(150):
            await stage.fire()
            await stage.pass_by(0.1)
        assert len(stage.done) == 99
        await stage.pass_by(3_600)
        assert len(stage.done) == 99
        assert stage.exits()[-1].error == "loop_detected"
        stage.governor.submit(Released(unit="rule", by="ann"))
        await stage.engine.ordered("rule", "resume")
        await stage.pass_by(1)
        assert len(stage.done) > 99

    stage.run(work)


def test_loop_is_stopped_beside_a_run_that_lives_on() -> None:
    """A loop waits for a person also where another run of the rule is done only after its window has passed."""
    stage = Stage({"safety": {"max_loop_iterations": 10, "loop_window_seconds": 5}})

    async def first_is_slow(scene: Scene, deed: Any) -> Mapping[str, Any]:
        if len(stage.done) == 1:
            await asyncio.sleep(60)
        return {}

    async def work() -> None:
        stage.does = first_is_slow
        await stage.up(rule(runs_max=2))
        for _ in range(30):
            await stage.fire()
        await stage.pass_by(30)
        assert len(stage.done) == 9
        await stage.pass_by(600)
        assert len(stage.done) == 9
        await stage.fire()
        await stage.pass_by(60)
        assert len(stage.done) == 9
        assert await stage.fire(by_person=True) is Fate.QUEUED
        await stage.pass_by(60)
        assert len(stage.done) > 9

    stage.run(work)


def test_person_begins_what_a_safeguard_ended() -> None:
    """What a person fires comes first, and lets the rule go on."""
    stage = Stage({"rule": {"max_runs_per_minute": 1_000}})

    async def work() -> None:
        await stage.up(rule())
        for _ in range(101):
            await stage.fire()
        await stage.pass_by(120)
        before = len(stage.done)
        await stage.fire(by_person=True)
        await stage.pass_by(1)
        assert len(stage.done) > before

    stage.run(work)


def test_rule_that_fires_itself() -> None:
    """The chain is cut: however slow it is, it does not go on for ever."""
    stage = Stage()

    async def work() -> None:
        await stage.up(rule(actions=(act("again", deed=StartUnit(unit="rule")),)))
        await stage.fire()
        await stage.pass_by(3_600)

    stage.run(work)
    assert len(stage.starts()) == DEPTH_MAX + 1
    assert stage.fired()[-1].dropped == Fate.TOO_DEEP


def test_two_rules_that_fire_each_other() -> None:
    """Likewise."""
    stage = Stage()

    async def work() -> None:
        one, two = act("one", deed=StartUnit(unit="b")), act("two", deed=StartUnit(unit="a"))
        await stage.up(rule("a", actions=(one,)), rule("b", actions=(two,)))
        await stage.fire("a")
        await stage.pass_by(3_600)

    stage.run(work)
    assert len(stage.starts("a")) + len(stage.starts("b")) == DEPTH_MAX + 1


# After a crash.


def lost_run(stage: Stage, made: Rule) -> Firing:
    """What a daemon leaves in the store that is killed during a run."""
    governor = Governor(stage.settings.policies(), stage.store, stage.loop)
    from flyball.config.build import rule_policies

    governor.panel.put(made.name, rule_policies(stage.settings, [made])[made.name])
    firing = Firing(id="f", rule=made.name, trigger="command", at=stage.loop.now(), tree="f", attempt=1)
    start = Start(unit=made.name, run=firing.run, holder=HOLDER, labels={"runtime": "rule"})
    assert governor.submit(start, {firing.key: encode(firing)}).proceeds
    return firing


def test_lost_run_is_made_again_and_said(caplog: pytest.LogCaptureFixture) -> None:
    """A firing whose run was lost is tried again: as its second attempt, which is said, and not before its failure was
    counted."""
    stage = Stage()

    async def work() -> None:
        lost_run(stage, rule())
        await stage.up(rule())
        await stage.pass_by(10)

    with caplog.at_level("WARNING"):
        stage.run(work)
    assert [exited.cause for exited in stage.exits()] == [Cause.LOST, Cause.DONE]
    assert [start.run for start in stage.starts()] == ["f.1", "f.2"]
    assert stage.starts()[1].again
    assert "begun (attempt 1)" in caplog.text


def test_lost_run_is_not_made_twice_where_that_is_not_wanted() -> None:
    """A rule that is not to be run again drops it, and says so."""
    stage = Stage()

    async def work() -> None:
        lost_run(stage, rule(runs_again=False))
        await stage.up(rule(runs_again=False))
        await stage.pass_by(10)
        assert waiting(stage) == 0

    stage.run(work)
    assert [fired.dropped for fired in stage.fired()] == ["lost"]
    assert len(stage.starts()) == 1


def test_damaged_firing_is_forgotten() -> None:
    """A record that is none does not keep the others from being run."""
    stage = Stage()

    async def work() -> None:
        firing = lost_run(stage, rule())
        from flyball.store import Draft

        stage.store.transact([], lambda snapshot: Draft(snapshot.at, {firing.key: b"{"}, None))
        await stage.up(rule())
        assert waiting(stage) == 0
        await stage.fire()
        await stage.pass_by(10)
        assert stage.exits()[-1].cause is Cause.DONE

    stage.run(work)


def test_restart_storm() -> None:
    """15 failures in 5 minutes, then a new daemon: nothing is run until a person resumes; what waited still does."""
    stage = Stage({"circuit_breaker": {"min_units": 100, "failure_threshold": 1000}})

    async def work() -> None:
        stage.does = fails
        names = [f"rule-{number}" for number in range(15)]
        rules = [rule(name) for name in names]
        await stage.up(*rules)
        for name in names:
            await stage.fire(name)
        await stage.pass_by(0.5)
        assert sum(len(stage.exits(name)) for name in names) == 15
        await stage.down()
        before = len(stage.done)
        await stage.up(*rules)
        stage.does = _fine
        await stage.fire("rule-0")
        await stage.pass_by(4_000)
        assert len(stage.done) == before
        assert waiting(stage) == 16
        stage.governor.submit(Released(scope="fleet", policies=("storm",), by="ann"))
        await stage.engine.ordered("", "resume")
        await stage.pass_by(60)
        assert waiting(stage) == 0

    stage.run(work)
    assert any(decision.verb is Verb.HOLD for _, decision in stage.journal(Booted))


def test_dead_api_and_twenty_rules() -> None:
    """Five failures open the circuit; after 60 s three trials are let through, never more; three successes close it."""
    stage = Stage()

    async def work() -> None:
        dead, running, most = True, 0, 0

        async def api(scene: Scene, deed: Any) -> Mapping[str, Any]:
            nonlocal running, most
            running += 1
            most = max(most, running)
            try:
                await asyncio.sleep(0.05)
                return await fails(scene, deed) if dead else {}
            finally:
                running -= 1

        stage.does = api
        names = [f"rule-{number:02}" for number in range(20)]
        await stage.up(*(rule(name) for name in names))
        stage.engine.resize(1, 1_000)  # one after the other, so that no more than five are under way when it opens
        for name in names:
            await stage.fire(name)
        await stage.pass_by(30)
        assert len(stage.done) == 5
        stage.engine.resize(10, 1_000)
        most = 0
        await stage.pass_by(32)
        assert (len(stage.done), most) == (8, 3)
        dead, most = False, 0
        while stage.engine.governor.look(Start(unit="other", run="1")).codes:
            assert most <= 3
            await stage.pass_by(0.01)
        await stage.pass_by(3_600)
        assert waiting(stage) == 0

    stage.run(work)


# Orders.


@pytest.mark.parametrize(
    ("verb", "after"), [(Verb.HOLD, [Cause.STOPPED, Cause.DONE]), (Verb.STOP, [Cause.STOPPED])], ids=["pause", "stop"]
)
def test_person_ends_a_run(verb: Verb, after: list[Cause]) -> None:
    """A paused rule goes on with what it was doing; of a stopped one that is over."""
    stage = Stage()

    async def work() -> None:
        stage.does = lasts
        await stage.up(rule())
        await stage.fire()
        await stage.pass_by(1)
        stage.governor.submit(Held(unit="rule", verb=verb, by="ann"))
        await stage.engine.ordered("rule", "pause")
        await stage.pass_by(60)
        assert [exited.cause for exited in stage.exits()] == after[:1]
        stage.governor.submit(Released(unit="rule", by="ann"))
        await stage.engine.ordered("rule", "resume")
        await stage.pass_by(60)
        assert waiting(stage) == 0

    stage.run(work)
    assert [exited.cause for exited in stage.exits()] == after


def test_end_of_the_daemon() -> None:
    """What runs is ended, which is no failure, and goes on with the next daemon."""
    stage = Stage()

    async def work() -> None:
        stage.does = lasts
        await stage.up(rule())
        await stage.fire()
        await stage.pass_by(1)
        await stage.down()
        assert [exited.cause for exited in stage.exits()] == [Cause.STOPPED]
        assert waiting(stage) == 1
        stage.does = _fine
        await stage.up(rule())
        await stage.pass_by(1)
        assert waiting(stage) == 0

    stage.run(work)
    assert stage.exits()[-1].cause is Cause.DONE


def test_deadline() -> None:
    """A run that takes longer than the rule's time is ended, which is a failure."""
    stage = Stage()

    async def forever(scene: Scene, deed: Any) -> Mapping[str, Any]:
        await asyncio.sleep(1_000_000)
        return {}

    async def work() -> None:
        stage.does = forever
        await stage.up(rule(timeout=10 * SECOND, runs_again=False))
        await stage.fire()
        await stage.pass_by(60)

    stage.run(work)
    assert [exited.cause for exited in stage.exits()] == [Cause.TIMEOUT]


def test_timeout_of_an_action() -> None:
    """An attempt that takes too long failed, also if it does not keep its time by itself; the next one is made."""
    stage = Stage()

    async def hangs(scene: Scene, deed: Any) -> Mapping[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def work() -> None:
        stage.does = hangs
        await stage.up(rule(actions=(act(timeout=2 * SECOND, attempts=Attempts(most=2)),), runs_again=False))
        await stage.fire()
        await stage.pass_by(60)

    stage.run(work)
    assert len(stage.done) == 2
    assert [(exited.cause, exited.error) for exited in stage.exits()] == [(Cause.TIMEOUT, "ActionTimeout")]


# Approvals.


@pytest.mark.parametrize(
    ("answer", "cause", "done"), [("yes", Cause.DONE, 1), ("no", Cause.STOPPED, 0), (None, Cause.STOPPED, 0)]
)
def test_approval(answer: str | None, cause: Cause, done: int) -> None:
    """A person says yes, or no; if nobody says anything in time, the default is taken. That takes longer than a run
    may last otherwise."""
    stage = Stage()

    async def work() -> None:
        asks = Approval(text="Pay {{ trigger.data }}?", timeout=3_600 * SECOND)
        await stage.up(rule(actions=(act(approve=asks),), timeout=10 * SECOND))
        await stage.fire(data=5)
        await stage.pass_by(600)
        asked = [event for event, _ in stage.journal(Asked)]
        assert isinstance(asked[0], Asked)
        assert asked[0].text == "Pay 5?"
        if answer is not None:
            said = Answered(unit="rule", run=asked[0].run, id=asked[0].id, answer=answer, heard=True, by="ann")
            stage.governor.submit(said)
        await stage.pass_by(3_600)

    stage.run(work)
    assert [exited.cause for exited in stage.exits()] == [cause]
    assert len(stage.done) == done


# Other rules.


def test_changed_rule_goes_on_with_what_waits() -> None:
    """What runs ends by the old definition, what waits is run by the new one."""
    stage = Stage()

    async def work() -> None:
        stage.does = lasts
        engine = await stage.up(rule())
        await stage.fire()
        await stage.fire()
        await stage.pass_by(1)
        added, removed, changed = await engine.change([rule(actions=(act("new"),)), rule("more")])
        assert (added, removed, changed) == (("more",), (), ("rule",))
        await stage.pass_by(30)

    stage.run(work)
    assert [command for command, _ in stage.done] == ["act", "new"]


def test_removed_rule() -> None:
    """Its run is ended, and what waits for it is forgotten, which is said."""
    stage = Stage()

    async def work() -> None:
        stage.does = lasts
        engine = await stage.up(rule(), rule("other"))
        await stage.fire()
        await stage.fire()
        await stage.pass_by(1)
        await engine.change([rule("other")])
        assert waiting(stage) == 0

    stage.run(work)
    assert [exited.cause for exited in stage.exits()] == [Cause.STOPPED]
    assert [fired.dropped for fired in stage.fired()].count("rule_removed") == 2


def test_rule_that_comes_later_is_not_fired_by_the_start() -> None:
    """The start of the daemon fires the rules that were there then, and no others."""
    stage = Stage()

    async def work() -> None:
        def startups() -> Startups:
            return Startups(stage.engine, stage.governor, stage.loop.sleep)

        engine = await stage.up(rule("first", triggers=(Startup(),)), making={Startup: startups})
        await stage.pass_by(1)
        await engine.change([rule("first", triggers=(Startup(),)), rule("later", triggers=(Startup(),))])
        await stage.pass_by(1)

    stage.run(work)
    assert (len(stage.fired("first")), len(stage.fired("later"))) == (1, 0)
    stage = Stage()

    async def none_at_first() -> None:
        def startups() -> Startups:
            return Startups(stage.engine, stage.governor, stage.loop.sleep)

        engine = await stage.up(rule("other"), making={Startup: startups})
        await engine.change([rule("later", triggers=(Startup(),))])
        await stage.pass_by(1)

    stage.run(none_at_first)
    assert not stage.fired("later")


def test_what_waits_says_what_for() -> None:
    """A rule whose turn has not come says that others run; one that is refused says why."""
    stage = Stage()

    async def work() -> None:
        stage.does = lasts
        engine = await stage.up(rule("busy"), rule("next"), rule("slow", pace=Pace(starts=1, window=MINUTE)))
        engine.resize(1, 100)
        await stage.fire("busy")
        await stage.pass_by(1)
        await stage.fire("next")
        await stage.pass_by(1)
        assert engine.posts["busy"].says == ""
        assert engine.posts["next"].says == "waits for its turn: 1 runs of rules live (rule.max_running)"
        await stage.pass_by(30)
        assert engine.posts["next"].says == ""
        await stage.fire("slow")
        await stage.fire("slow")
        await stage.pass_by(15)
        assert "the limit is 1" in engine.posts["slow"].says

    stage.run(work)

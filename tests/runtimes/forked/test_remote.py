"""The program's governor in a forked run: asked there, judged and written here."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flyball
from flyball.config import definitions
from flyball.core.codec import decode_state
from flyball.core.decision import Verb
from flyball.core.event import Beat, Cause, Exited, Start, Step, Work
from flyball.core.policy import AnyPolicy, Key
from flyball.core.time import MINUTE
from flyball.errors import StoreFull
from flyball.governor import Governor
from flyball.policies import Budget, Exclusive, Limit, Loop, Stall
from flyball.policies.budget import State as BudgetState
from flyball.policies.limit import State as LimitState
from flyball.runtimes.agent.context import Context
from flyball.runtimes.allowance import RunSteps
from flyball.runtimes.forked import Forked, Link, RemoteGovernor, governor_services
from flyball.runtimes.holder import is_gone
from flyball.runtimes.refusal import OutOfBudget
from flyball.store import Draft, Snapshot, Store
from flyball.store.memory import MemoryStore
from flyball.store.sqlite import SqliteStore
from tests.runtimes.forked.stage import Begin, gone, take

MEMORY = Key("memory", "unit", "u")


@pytest.fixture(params=["memory", "sqlite"])
def governor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Governor]:
    store: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "state.db")
    policies: list[AnyPolicy] = [
        Exclusive(lease=60 * MINUTE),
        Limit(most=55, by="unit"),
        Budget(limit=1_000_000, by="unit"),
        Stall(),
        Loop(),
    ]
    governor = Governor(policies, store)
    assert governor.submit(Start(unit="u", run="r")).proceeds
    yield governor
    store.close()


def begun(begin: Begin, governor: Governor, work: Any) -> Forked:
    """A run of unit u that has the governor."""
    return begin(
        lambda link: work(link, RemoteGovernor(link, governor.panel, governor.clock)), **governor_services(governor)
    )


def steps_counted(governor: Governor) -> int:
    data = governor.store.states("steps")[Key("steps", "unit", "u")]
    return decode_state(LimitState, data).count


def budget(governor: Governor) -> BudgetState:
    return decode_state(BudgetState, governor.store.states("budget")[Key("budget", "unit", "u")])


@pytest.mark.parametrize("colour", ["threads", "coroutines"])
def test_steps(begin: Begin, governor: Governor, colour: str) -> None:
    """A run makes exactly as many steps as the limit allows, in allowances, counted in the program's store."""

    def work(link: Link, remote: Governor) -> None:
        steps = RunSteps(remote, "u", "r", steps_max=10)
        made = 0
        while steps.ask(f"p{made}", str(made)).proceeds:
            steps.made(Work(pattern=f"p{made}", call=str(made), result=str(made)))
            made += 1
        link.send((made, steps.ask().codes))

    async def work_soon(link: Link, remote: Governor) -> None:
        steps = RunSteps(remote, "u", "r", steps_max=10)
        made = 0
        while (await steps.ask_soon(f"p{made}", str(made))).proceeds:
            await steps.made_soon(Work(pattern=f"p{made}", call=str(made), result=str(made)))
            made += 1
        link.send((made, (await steps.ask_soon()).codes))

    def work_in_loop(link: Link, remote: Governor) -> None:
        asyncio.run(work_soon(link, remote))

    forked = begun(begin, governor, work if colour == "threads" else work_in_loop)
    assert take(forked) == (55, ("max_steps",))
    assert steps_counted(governor) == 55
    asked = [entry for entry in governor.store.entries() if (entry.event, entry.verb) == ("step", "proceed")]
    assert len(asked) == 6


def test_killed(begin: Begin, governor: Governor) -> None:
    """What was granted to a run that is killed counts as used: steps of an allowance, and money that was reserved."""

    def work(link: Link, remote: Governor) -> None:
        steps = RunSteps(remote, "u", "r", steps_max=10)
        steps.ask("p", "1", {"usd": 20_000})
        link.send("asked")
        os.kill(os.getpid(), signal.SIGKILL)

    forked = begun(begin, governor, work)
    assert take(forked) == "asked"
    assert gone(forked).signal == signal.SIGKILL
    assert steps_counted(governor) == 10
    governor.submit(Exited(unit="u", run="r", cause=Cause.STOPPED))
    assert steps_counted(governor) == 10
    assert (budget(governor).reserved, budget(governor).spent) == (200_000, 0)


def test_money(begin: Begin, governor: Governor) -> None:
    """Threads of several runs share one budget: together they are granted all of it, and no millionth more."""

    def work(link: Link, remote: Governor) -> None:
        context = Context(remote, "u", "r", labels={}, part=True, told=lambda _: None)
        spent = []

        def spend() -> None:
            try:
                while True:
                    with context.reserve("0.03") as money:
                        money.settle("0.013")
                        spent.append(13_000)
            except OutOfBudget:
                pass

        threads = [threading.Thread(target=spend) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        link.send(sum(spent))

    runs = [begun(begin, governor, work) for _ in range(3)]
    spent = sum(take(forked) for forked in runs)
    assert (budget(governor).spent, budget(governor).reserved) == (spent, 0)
    assert 1_000_000 - 12 * 30_000 < spent <= 1_000_000
    assert "steps" not in {key.policy for key in governor.store.states()}  # they are parts


def test_memory(begin: Begin, governor: Governor) -> None:
    """Rows are written with the event, in the program's store; what is there is read."""

    def work(link: Link, remote: Governor) -> None:
        link.send(remote.store.read([MEMORY]).records)
        remote.submit(Beat(unit="u", run="r"), {MEMORY: b'{"notes":1}'})
        link.send(remote.store.read([MEMORY]).records)

    forked = begun(begin, governor, work)
    assert take(forked) == {}
    assert take(forked) == {MEMORY: b'{"notes":1}'}
    assert governor.store.read([MEMORY]).records == {MEMORY: b'{"notes":1}'}


def test_all_of_it(begin: Begin, governor: Governor) -> None:
    """Whatever else is asked of a governor and its store is answered as in the program."""

    def ask(governor: Governor) -> list[Any]:
        step = Step(unit="u", run="r", cost={"usd": 2_000_000})
        store = governor.store
        return [
            governor.look(step).codes,
            [type(state).__module__ for _, state, _ in governor.opinions(step, by="unit")],
            governor.live_runs("u"),
            governor.submit(Start(unit="u", run="other")).codes,
            governor.submit_soon(step).result().verb is Verb.FINISH,
            governor.reap(is_gone, unit="u"),
            store.entries(unit="u", events=("start",))[0].event,
            len(store.last_entries(limit=1)),
            sorted(key.policy for key in store.states()),
            store.base().seq,
            list(store.integrity()),
        ]

    forked = begun(begin, governor, lambda link, remote: link.send(ask(remote)))
    assert take(forked) == ask(governor)


def test_lost_runs(begin: Begin, governor: Governor) -> None:
    """A run can report another as lost; it is written in the program, once."""
    assert governor.submit(Start(unit="v", run="r", holder="nobody")).proceeds

    def work(link: Link, remote: Governor) -> None:
        link.send([remote.reap(lambda holder: holder == "nobody", unit="v") for _ in range(2)])

    assert take(begun(begin, governor, work)) == [1, 0]
    assert governor.live_runs("v") == []


def test_writes_at_once(begin: Begin, governor: Governor) -> None:
    """What runs write besides events, from what they read, is not lost where several do so at once."""
    key = Key("counter", "unit", "u")

    def one_more(snapshot: Snapshot) -> Draft:
        count = int(snapshot.records.get(key, b"0"))
        return Draft(snapshot.at, {key: str(count + 1).encode()}, None)

    def work(link: Link, remote: Governor) -> None:
        for _ in range(20):
            remote.store.transact([key], one_more)
        remote.store.transact_soon([key], one_more).result()
        link.send("done")

    runs = [begun(begin, governor, work) for _ in range(3)]
    assert [take(forked) for forked in runs] == ["done"] * 3
    assert governor.store.read([key]).records == {key: b"63"}


def test_own_units(begin: Begin, governor: Governor) -> None:
    """A unit that a run defines is judged by its own policies, in the program too."""

    def work(link: Link, remote: Governor) -> None:
        remote.panel.put("own", (Exclusive(), Limit(most=1, by="unit")))
        definitions.keep(remote, "own")
        remote.submit(Start(unit="own", run="1"))
        link.send([remote.submit(Step(unit="own", run="1")).proceeds for _ in range(2)])

    assert take(begun(begin, governor, work)) == [True, False]
    assert Limit(most=1, by="unit") in governor.panel.policies_of("own")


def test_store_errors(begin: Begin) -> None:
    """What goes wrong in the store is the same error in the run, with its remedy."""

    class Full(MemoryStore):
        def transact_soon(self, *_: object, **__: object) -> Any:
            raise StoreFull("no room on the disk")

    def work(link: Link, remote: Governor) -> None:
        try:
            remote.submit(Beat(unit="u", run="r"))
        except StoreFull as error:
            link.send((str(error), error.remedy))

    found = take(begun(begin, Governor([], Full()), work))
    assert found == ("no room on the disk", StoreFull.remedy)


def test_guard_in_the_run(begin: Begin, tmp_path: Path) -> None:
    """A guard that the work has from its program works in the run: its calls, its money and its watched blocks are
    judged in the program; and what a call holds and does not use is given back when the run ends."""
    with flyball.open("program", state_dir=tmp_path) as guard:

        @guard.call("fetch", cost="0.01", budget="1.00")
        def fetch(number: int) -> int:
            return number

        def work(link: Link) -> None:
            RemoteGovernor.in_place_of(guard.governor, link)
            link.send([fetch(number) for number in range(2)])
            with guard.watch("inside", budget="0.10") as context:
                with context.step("look", cost="0.01"):
                    pass
                try:
                    guard.reserve("0.20")
                except OutOfBudget as refused:
                    link.send(refused.decision)

        forked = begin(work, **governor_services(guard.governor))
        assert take(forked) == [0, 1]
        assert take(forked).codes == ("cost_budget_exceeded",)
        assert gone(forked).code == 0
        store = guard.governor.store
        calls = [decode_state(BudgetState, data) for key, data in store.states().items() if key.by == "call:fetch"]
        assert [(state.spent, state.reserved) for state in calls] == [(20_000, 0)]
        assert [entry.event for entry in store.entries(unit="inside")] == ["start", "step", "step", "stepped", "exited"]
        assert guard.governor.__class__ is Governor  # here nothing has changed
        assert fetch(3) == 3

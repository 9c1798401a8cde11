"""What happens to units fires rules: each entry of the journal once, whatever happens to the daemon meanwhile."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flyball.config import Settings
from flyball.config.rules import Rule, UnitEvent, When
from flyball.core.decision import Verb
from flyball.core.event import Beat, Cause, Event, Exited, Fired, Held, Released, Resume, Start
from flyball.core.policy import AnyPolicy, Key
from flyball.core.time import SECOND
from flyball.governor import SystemClock
from flyball.policies import Exclusive, Manual, Quarantine
from flyball.runtimes.rule.firing import Spark
from flyball.runtimes.rule.triggers import events
from flyball.runtimes.rule.triggers.events import EVENT, TAIL, Events
from flyball.store import Draft, Line, Store
from flyball.store.memory import MemoryStore
from flyball.store.sqlite import SqliteStore
from flyball.testing.clock import FakeClock
from tests.runtimes.rule.triggers.belfry import WAIT_MAX, Belfry, Killed, Time, rule, running

POLICIES: tuple[AnyPolicy, ...] = (
    Exclusive(runs_max=5),
    Manual(),
    Manual(by="fleet"),
    Manual(by="provider"),
    Quarantine(),
)
EVERYTHING = tuple(When)


def started(unit: str = "shop", run: str = "1") -> Start:
    return Start(unit=unit, run=run, holder="h")


def exited(cause: Cause = Cause.DONE, unit: str = "shop", run: str = "1", **more: str) -> Exited:
    return Exited(unit=unit, run=run, cause=cause, **more)  # type: ignore[arg-type]  # texts, all of them


def chain_of(unit: str, run: str) -> tuple[str, int]:
    """Runs of rules are called by the place in their chain."""
    return ("tree", int(run)) if unit.startswith("rule") else ("", -1)


class House:
    """A store with a journal, and daemons that come and go."""

    def __init__(self, *rules: Rule, store: Store | None = None) -> None:
        self.rules = rules
        self.bell = Belfry(store, FakeClock(), POLICIES)
        self.time = Time(self.bell.clock)

    def happens(self, *happened: Event) -> None:
        for event in happened:
            self.bell.governor.submit(event)

    def up(self, *rules: Rule) -> "Up":
        return Up(self, rules or self.rules)

    @property
    def said(self) -> list[tuple[str, str]]:
        return [(spark.data["on"], spark.data["unit"]) for spark in self.bell.rang]


class Up:
    """A daemon is there."""

    def __init__(self, house: House, rules: Iterable[Rule]) -> None:
        self.house = house
        self.source = Events(house.bell, house.bell.governor, chain_of, sleep=house.time.sleep)
        self._running = running(self.source, list(rules), house.time)

    async def __aenter__(self) -> "Up":
        await self._running.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._running.__aexit__(*error)  # type: ignore[arg-type]  # as it was given

    async def happens(self, *happened: Event) -> None:
        self.house.happens(*happened)
        self.source.poke()
        await self.house.time.rest()

    async def use(self, *rules: Rule) -> None:
        self.source.use(rules)
        await self.house.time.rest()


@pytest.mark.parametrize(
    ("happened", "on"),
    [
        ([started()], "started"),
        ([Resume(unit="shop", run="1", holder="h")], "started"),
        ([exited()], "done"),
        ([exited(Cause.ERROR)], "failed"),
        ([exited(Cause.TIMEOUT)], "failed"),
        ([exited(Cause.STARVED)], "failed"),
        ([exited(Cause.LOST)], "failed"),
        ([exited(Cause.STOPPED)], "stopped"),
        ([Held(unit="shop")], "held"),
        ([exited(Cause.STOPPED, pause="rate_limit")], None),
        ([Held(unit="shop", verb=Verb.STOP)], None),
        ([Held(unit="shop", scope="provider")], None),
        ([Held(scope="fleet")], None),
        ([Released(unit="shop")], None),
        ([Beat(unit="shop", run="1")], None),
        ([Fired(unit="shop")], None),
        ([exited(unit="shopping")], None),
        ([exited(unit="Shop")], None),
    ],
)
@pytest.mark.parametrize("wanted", [EVERYTHING, *((when,) for when in When)])
def test_what_happens(happened: list[Event], on: str | None, wanted: tuple[When, ...]) -> None:
    """Of all that happens to a unit, a trigger is fired by what it names, and by nothing else."""

    async def play() -> None:
        house = House(rule("follow", UnitEvent(unit="shop", on=wanted)))
        async with house.up() as up:
            await up.happens(*happened)
        assert house.said == ([(on, "shop")] if on in wanted else [])

    asyncio.run(play())


def test_what_it_says() -> None:
    """It says what happened to which run, and why; not the details, which may be secret."""

    async def play() -> None:
        house = House(rule("follow", UnitEvent(unit="sh*", on=(When.FAILED,))))
        failed = exited(Cause.ERROR, error="exit 3", fingerprint="f1", detail="secret")
        async with house.up() as up:
            await up.happens(failed)
        (spark,) = house.bell.rang
        assert (spark.rule, spark.trigger, spark.joins, spark.tree, spark.depth) == (
            "follow",
            "event shop",
            False,
            "",
            0,
        )
        assert spark.data == {
            "kind": "event",
            "unit": "shop",
            "on": "failed",
            "run": "1",
            "cause": "error",
            "error": "exit 3",
            "fingerprint": "f1",
        }

    asyncio.run(play())


@pytest.mark.parametrize(
    ("pattern", "fires"),
    [
        ("a", ["a"]),
        ("*", ["a", "ab", "a-b", "b", "a?c"]),
        ("a*", ["a", "ab", "a-b", "a?c"]),
        ("*b", ["ab", "a-b", "b"]),
        ("a*b", ["ab", "a-b"]),
        ("a?c", ["a?c"]),
        ("[ab]", []),
    ],
)
def test_patterns(pattern: str, fires: list[str]) -> None:
    """`*` stands for any letters, and nothing else is special."""

    async def play() -> None:
        house = House(rule("follow", UnitEvent(unit=pattern)))
        async with house.up() as up:
            await up.happens(*(exited(unit=unit) for unit in ("a", "ab", "a-b", "b", "a?c")))
        assert [unit for _, unit in house.said] == fires

    asyncio.run(play())


def test_chain() -> None:
    """What a rule's run fires is one further in its chain; the run of anything else begins one."""

    async def play() -> None:
        house = House(rule("follow", UnitEvent(unit="*")))
        async with house.up() as up:
            await up.happens(exited(unit="rule-a", run="4"), exited(unit="shop", run="4"))
        assert [(spark.tree, spark.depth) for spark in house.bell.rang] == [("tree", 5), ("", 0)]

    asyncio.run(play())


# Held.


def test_quarantined_once() -> None:
    """A unit that fails until it is held fires once, however often it is refused after that; and again when it is held
    again after a person let it go."""

    async def play() -> None:
        house = House(rule("tell", UnitEvent(unit="shop", on=(When.HELD,))))
        async with house.up() as up:
            for _ in range(2):
                for number in range(6):
                    await up.happens(started(run=str(number)))
                    await up.happens(exited(Cause.ERROR, run=str(number), fingerprint="f", error="E"))
                for number in range(3):
                    await up.happens(started(run=f"refused {number}"))
                assert house.said == [("held", "shop")]
                await up.happens(Held(unit="shop"), started(run="refused again"))
                assert house.said == [("held", "shop")]
                house.bell.rang.clear()
                await up.happens(Released(unit="shop"))

    asyncio.run(play())


@pytest.mark.parametrize(
    "release", [Released(scope="fleet"), Released(unit="shop"), Released(unit="x", scope="provider")]
)
def test_fleet_held(release: Released) -> None:
    """Where the fleet or a label is held, a unit is held as soon as it is refused; after any release that may concern
    it, it is held anew."""

    async def play() -> None:
        house = House(rule("tell", UnitEvent(unit="shop", on=(When.HELD,))))
        async with house.up() as up:
            await up.happens(Held(scope="fleet"))
            assert house.said == []
            await up.happens(started(run="2"), started(run="3"))
            assert house.said == [("held", "shop")]
            await up.happens(release, Held(scope="unit", unit="shop"))
            assert house.said == [("held", "shop")] * 2

    asyncio.run(play())


@pytest.mark.parametrize("order", [Held(scope="fleet"), Held(scope="provider", labels={"provider": "shop"})])
def test_orders_to_many(order: Held) -> None:
    """An order to the fleet, or to all with a label, is about no unit, also where any unit is meant."""

    async def play() -> None:
        house = House(rule("tell", UnitEvent(unit="*", on=EVERYTHING)))
        async with house.up() as up:
            await up.happens(order)
        assert house.said == []

    asyncio.run(play())


def test_granted_start_frees() -> None:
    """A unit that starts is held no more, whatever let it."""

    async def play() -> None:
        house = House(rule("tell", UnitEvent(unit="shop", on=(When.HELD, When.STARTED))))
        async with house.up() as up:
            await up.happens(Held(unit="shop"))
            house.bell.governor.panel = type(house.bell.governor.panel)(())
            await up.happens(started())
            house.bell.governor.panel = type(house.bell.governor.panel)(POLICIES)
            await up.happens(started(run="2"))
        assert [on for on, _ in house.said] == ["held", "started", "held"]

    asyncio.run(play())


def test_held_over_a_restart() -> None:
    """What is held is remembered, and what is released as well."""

    async def play() -> None:
        house = House(rule("tell", UnitEvent(unit="*", on=(When.HELD,))))
        async with house.up() as up:
            await up.happens(Held(unit="a"), Held(unit="b"), Released(unit="b"))
        async with house.up() as up:
            await up.happens(started(unit="a"), Held(unit="b"))
        assert house.said == [("held", "a"), ("held", "b"), ("held", "b")]

    asyncio.run(play())


def test_too_many_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many held units the first are forgotten."""
    monkeypatch.setattr(events, "HELD_MAX", 3)

    async def play() -> None:
        house = House(rule("tell", UnitEvent(unit="*", on=(When.HELD,))))
        async with house.up() as up:
            await up.happens(*(Held(unit=f"u{number}") for number in range(5)))
            (row,) = (data for key, data in house.bell.store.states(EVENT).items() if key != TAIL)
            assert msgspec.json.decode(row)["held"] == ["u2", "u3", "u4"]

    asyncio.run(play())


# Where it begins, and goes on.


def test_from_the_end() -> None:
    """At its first start nothing that happened before fires; at a later one all that happened meanwhile does, once."""

    async def play() -> None:
        house = House(rule("follow", UnitEvent(unit="shop")))
        house.happens(exited(run="before"))
        async with house.up() as up:
            await up.happens(exited(run="1"))
        house.happens(exited(run="2"), exited(run="3"))
        async with house.up() as up:
            await up.happens(exited(run="4"))
        async with house.up():
            pass
        assert [spark.data["run"] for spark in house.bell.rang] == ["1", "2", "3", "4"]

    asyncio.run(play())


def test_rules_change() -> None:
    """A trigger that stays goes on; one that is new or changed hears what happens from then on; one that is gone is
    forgotten."""

    async def play() -> None:
        stays, goes = rule("stays", UnitEvent(unit="shop")), rule("goes", UnitEvent(unit="shop"))
        changes, changed = rule("changes", UnitEvent(unit="x")), rule("changes", UnitEvent(unit="shop"))
        house = House()
        async with house.up(stays, goes, changes) as up:
            await up.happens(exited(run="1"))
            await up.use(stays, changed, rule("new", UnitEvent(unit="*")))
            await up.happens(exited(run="2"))
        house.happens(exited(run="3"))
        async with house.up(stays, rule("newer", UnitEvent(unit="shop"))) as up:
            await up.happens(exited(run="4"))
            rows = {key.subject for key in house.bell.store.states(EVENT)}
        heard = sorted((spark.data["run"], spark.rule) for spark in house.bell.rang)
        assert heard == [
            ("1", "goes"),
            ("1", "stays"),
            ("2", "changes"),
            ("2", "new"),
            ("2", "stays"),
            ("3", "stays"),
            ("4", "newer"),
            ("4", "stays"),
        ]
        assert rows == {"", "stays/0", "newer/0"}

    asyncio.run(play())


def test_no_rule_of_the_kind_any_more() -> None:
    """Without such rules the journal is not read; one that comes later hears what happens from then on."""

    async def play() -> None:
        house = House(rule("follow", UnitEvent(unit="shop")))
        async with house.up() as up:
            await up.use(rule("other"))
            await up.happens(exited(run="1"))
            await up.use(*house.rules)
            await up.happens(exited(run="2"))
        assert [spark.data["run"] for spark in house.bell.rang] == ["2"]

    asyncio.run(play())


def test_more_than_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long stretch of the journal is read bit by bit, in order, and nothing of it is left out."""
    monkeypatch.setattr(events, "ENTRIES_MAX", 7)

    async def play() -> None:
        house = House(rule("follow", UnitEvent(unit="shop")))
        async with house.up():
            pass
        for number in range(50):
            house.happens(exited(run=str(number)), Beat(unit="shop", run="1", stuck="here"), exited(unit="other"))
        async with house.up():
            pass
        assert [spark.data["run"] for spark in house.bell.rang] == [str(number) for number in range(50)]

    asyncio.run(play())


def test_trimmed(caplog: pytest.LogCaptureFixture) -> None:
    """A journal that forgot what was not read yet is read from where it begins, and that is said."""

    async def play() -> None:
        house = House(rule("follow", UnitEvent(unit="shop")))
        async with house.up():
            pass
        for number in range(40):
            house.happens(exited(run=str(number)))
            house.bell.store.trim(5)
        async with house.up():
            pass
        heard = [int(spark.data["run"]) for spark in house.bell.rang]
        assert 0 < len(heard) < 40
        assert heard == list(range(heard[0], 40))

    asyncio.run(play())
    assert "what it forgot in between fires nothing" in caplog.text


@pytest.mark.parametrize("damaged", ["tail", "trigger", "entry"])
def test_damage(damaged: str, caplog: pytest.LogCaptureFixture) -> None:
    """A record or an entry that cannot be read is said, and nothing else comes of it."""

    async def play() -> None:
        house = House(rule("follow", UnitEvent(unit="shop")))
        async with house.up():
            pass
        key = TAIL if damaged == "tail" else Key(EVENT, "unit", "follow/0")
        if damaged == "entry":
            line = Line("shop", "exited", "proceed", b"{}")
            house.bell.store.transact([], lambda _: Draft(house.bell.clock.now(), {}, line))
        else:
            house.bell.store.transact([key], lambda snapshot: Draft(snapshot.at, {key: b'{"trigger":"\xff'}, None))
        async with house.up() as up:
            await up.happens(exited())
        assert house.said == [("done", "shop")]

    asyncio.run(play())
    assert "read" in caplog.text


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(4))
def test_killed(tmp_path: Path, when: str, at: int) -> None:
    """Killed at any point within an entry that fires several rules, each of them is fired once."""
    rules = [rule(f"r{number}", UnitEvent(unit="shop")) for number in range(3)]

    async def life(*, dies: bool = False, happened: tuple[Event, ...] = ()) -> list[str]:
        store = SqliteStore(tmp_path / "state.db")
        try:
            house = House(*rules, store=store)
            house.happens(*happened)
            count = 0

            def killed(_: Spark) -> None:
                nonlocal count
                count += 1
                if count > at:
                    raise Killed

            if dies:
                setattr(house.bell, when, killed)
            source = Events(house.bell, house.bell.governor, chain_of, sleep=house.time.sleep)
            source.use(rules)
            task = asyncio.ensure_future(source.run())
            resting = asyncio.ensure_future(house.time.rest())
            await asyncio.wait((task, resting), return_when=asyncio.FIRST_COMPLETED, timeout=WAIT_MAX)
            for wait in (task, resting):
                wait.cancel()
            await asyncio.gather(task, resting, return_exceptions=True)
            return sorted(name for _, name in house.bell.journal)
        finally:
            store.close()

    asyncio.run(life())
    asyncio.run(life(dies=True, happened=(exited(run="1"), exited(run="2"))))
    assert asyncio.run(life()) == ["r0", "r0", "r1", "r1", "r2", "r2"]


STEPS = st.lists(
    st.one_of(
        st.sampled_from(["restart", "reload", "look"]),
        st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([Cause.DONE, Cause.ERROR])),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_each_entry_once(steps: list[object]) -> None:
    """Whenever the daemon is restarted, and its rules are read again: each entry fires each rule once, in order."""
    rules = (
        rule("a", UnitEvent(unit="a", on=(When.DONE, When.FAILED))),
        rule("failed", UnitEvent(unit="*", on=(When.FAILED,))),
    )
    house = House(*rules)
    happened: list[tuple[str, Cause]] = []

    async def play() -> None:
        up = await house.up().__aenter__()
        for step in steps:
            if step == "restart":
                await up.__aexit__(None, None, None)
                up = await house.up().__aenter__()
            elif step == "reload":
                await up.use(*rules)
            elif isinstance(step, tuple):
                happened.append(step)
                house.happens(exited(step[1], unit=step[0], run=str(len(happened))))
            else:
                await up.happens()
        await up.happens()
        await up.__aexit__(None, None, None)

    asyncio.run(play())
    numbered = list(enumerate(happened, 1))
    expected = {
        "a": [str(number) for number, (unit, _) in numbered if unit == "a"],
        "failed": [str(number) for number, (_, cause) in numbered if cause is Cause.ERROR],
    }
    for name, runs in expected.items():
        assert [spark.data["run"] for spark in house.bell.rang if spark.rule == name] == runs


def test_bell_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told by the file of the store, it hears at once what another process wrote."""
    monkeypatch.setattr(events, "LOOK_EVERY", 3_600 * SECOND)
    own, other = SqliteStore(tmp_path / "state.db"), SqliteStore(tmp_path / "state.db")

    async def play() -> None:
        bell = Belfry(own, SystemClock(), Settings().policies())  # type: ignore[arg-type]  # it is not moved here
        writer = Belfry(other, SystemClock())  # type: ignore[arg-type]  # as above
        source = Events(bell, bell.governor, chain_of, tmp_path / "state.db-wal")
        async with running(source, [rule("follow", UnitEvent(unit="shop"))]):
            async with asyncio.timeout(WAIT_MAX):
                while not own.states(EVENT):
                    await asyncio.sleep(0.01)
            await asyncio.to_thread(writer.governor.submit, exited())
            await bell.until(1)

    try:
        asyncio.run(play())
    finally:
        own.close()
        other.close()


def test_looks_by_itself() -> None:
    """Where nobody tells, it looks at the journal every second."""

    async def play() -> None:
        house = House(rule("follow", UnitEvent(unit="shop")))
        async with house.up():
            house.happens(exited())
            await house.time.go(SECOND)
            assert house.said == [("done", "shop")]

    asyncio.run(play())


def test_many_rules() -> None:
    """A thousand rules that wait for the same unit are all fired, each once; and a thousand units do not fill it up."""

    async def play() -> None:
        rules = [rule(f"r{number}", UnitEvent(unit="u*" if number % 2 else "u1")) for number in range(1_000)]
        house = House(*rules, store=MemoryStore())
        async with house.up() as up:
            await up.happens(exited(unit="u1"))
        assert sorted(name for _, name in house.bell.journal) == sorted(one.name for one in rules)

    asyncio.run(play())

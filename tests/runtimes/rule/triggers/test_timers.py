"""Times that fire rules: each once, none twice, whatever the clock and the daemon do meanwhile."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import cronsim
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flyball.config.rules import Cron, Every, Missed, Rule
from flyball.core.event import Fired
from flyball.core.policy import Key
from flyball.core.time import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Instant, Span
from flyball.errors import FlyballError, StoreCorrupt, StoreFull
from flyball.runtimes.rule.firing import Spark
from flyball.runtimes.rule.triggers import striker, timers
from flyball.runtimes.rule.triggers.timers import MISSED_MAX, TIMER, Timed, Timers
from flyball.store import Draft, Store
from flyball.store.memory import MemoryStore
from flyball.store.sqlite import SqliteStore
from flyball.testing.clock import START_OF_TIME, FakeClock
from tests.runtimes.rule.triggers.belfry import WAIT_MAX, Belfry, Killed, Time, rule, running

BERLIN = ZoneInfo("Europe/Berlin")
FIVE = Every(every=5 * MINUTE)
HOURLY = Cron(expression="0 * * * *")


def at(*when: int, zone: ZoneInfo | None = None, fold: int = 0) -> Instant:
    """An instant by the calendar."""
    moment = datetime(*when, tzinfo=zone or UTC, fold=fold)  # type: ignore[arg-type, misc]  # year, month, day, …
    return round(moment.timestamp()) * SECOND


class Scene:
    """A store, a clock, and daemons that come and go."""

    def __init__(self, *rules: Rule, now: Instant = START_OF_TIME, store: Store | None = None) -> None:
        self.rules = rules
        self.clock = FakeClock(now)
        self.bell = Belfry(store, self.clock)

    def up(self, *rules: Rule) -> "Up":
        return Up(self, rules or self.rules)

    @property
    def fired(self) -> list[Instant]:
        """When each spark was due, by what it says of itself."""
        return [instant(spark) for spark in self.bell.rang]


class Up:
    """A daemon is there."""

    def __init__(self, scene: Scene, rules: tuple[Rule, ...]) -> None:
        self.time = Time(scene.clock)
        kind = type(next(trigger for one in rules for trigger in one.triggers if isinstance(trigger, Timed)))
        self.source = Timers(scene.bell, scene.bell.governor, kind, self.time.sleep)
        self._running = running(self.source, rules, self.time)

    async def __aenter__(self) -> "Up":
        await self._running.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._running.__aexit__(*error)  # type: ignore[arg-type]  # as it was given

    async def use(self, *rules: Rule) -> None:
        self.source.use(rules)
        await self.time.rest()


def instant(spark: Spark) -> Instant:
    """When it was due."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return (datetime.fromisoformat(spark.data["at"]) - epoch) // timedelta(microseconds=1)


@pytest.fixture
def _seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks at the clock but when something is due: days pass quickly."""
    monkeypatch.setattr(timers, "LOOK_EVERY", 400 * DAY)


# Every so often.


def test_every() -> None:
    """It fires first after its length, then on and on, without drift; and says what it is."""

    async def play() -> None:
        scene = Scene(rule("watch", FIVE))
        async with scene.up() as up:
            await up.time.go(HOUR + 7 * SECOND)
        assert scene.fired == [START_OF_TIME + count * 5 * MINUTE for count in range(1, 13)]
        spark = scene.bell.rang[0]
        assert (spark.rule, spark.trigger, spark.joins) == ("watch", "every 5 min", True)
        assert spark.data == {"kind": "every", "at": "2023-11-14T22:18:20+00:00"}

    asyncio.run(play())


@pytest.mark.parametrize(
    ("away", "due"),
    [
        (1 * MINUTE, []),
        (4 * MINUTE, [5 * MINUTE]),
        (9 * MINUTE, [10 * MINUTE]),
        (365 * DAY, [365 * DAY]),
    ],
)
def test_every_while_nobody_was_there(away: Span, due: list[Span]) -> None:
    """What was due while nobody was there, however often, fires once, at once; then the schedule goes on as ever."""

    async def play() -> None:
        scene = Scene(rule("watch", FIVE))
        async with scene.up() as up:
            await up.time.go(MINUTE)
        scene.clock.move(away)
        async with scene.up() as up:
            assert scene.fired == [START_OF_TIME + span for span in due]
            await up.time.go(5 * MINUTE)
        following = (MINUTE + away) // (5 * MINUTE) * 5 * MINUTE + 5 * MINUTE
        assert scene.fired == [START_OF_TIME + span for span in (*due, following)]

    asyncio.run(play())


def test_restarts_more_often_than_it_is_due() -> None:
    """A daemon that is restarted every minute does not put off what is due every five."""

    async def play() -> None:
        scene = Scene(rule("watch", FIVE))
        for _ in range(20):
            async with scene.up() as up:
                await up.time.go(MINUTE)
        assert scene.fired == [START_OF_TIME + count * 5 * MINUTE for count in range(1, 5)]

    asyncio.run(play())


def test_suspended_machine() -> None:
    """A machine that slept for a day fires once when it wakes, not once for each time."""

    async def play() -> None:
        scene = Scene(rule("watch", FIVE))
        async with scene.up() as up:
            await up.time.go(MINUTE)
            await up.time.jump(DAY)
            assert scene.fired == [START_OF_TIME + DAY]

    asyncio.run(play())


def test_wakes_though_nothing_is_due() -> None:
    """It looks at the clock now and then, because the machine's sleep is not in the loop's time."""

    async def play() -> None:
        scene = Scene(rule("watch", Every(every=DAY)))
        async with scene.up() as up:
            assert up.time.until - scene.clock.now() <= timers.LOOK_EVERY

    asyncio.run(play())


@pytest.mark.parametrize("trigger", [FIVE, HOURLY, Cron(expression="0 * * * *", missed=Missed.ALL)])
def test_clock_set_back(trigger: Timed) -> None:
    """A clock that is set back fires nothing twice."""

    async def play() -> None:
        scene = Scene(rule("watch", trigger))
        async with scene.up() as up:
            await up.time.go(2 * HOUR)
            before = scene.fired
            await up.time.jump(-2 * HOUR)
            await up.time.go(2 * HOUR - MINUTE)
        assert scene.fired == before
        assert len(set(before)) == len(before) > 1

    asyncio.run(play())


def test_clock_was_wrong_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """A last time that lies far ahead, written while the clock was wrong, does not silence the rule for years."""

    async def play() -> None:
        scene = Scene(rule("watch", FIVE))
        async with scene.up() as up:
            await up.time.go(MINUTE)
        key = Key(TIMER, "unit", "watch/0")
        written = scene.bell.store.states(TIMER)[key].replace(b"17", b"27", 1)
        scene.bell.store.transact([key], lambda snapshot: Draft(snapshot.at, {key: written}, None))
        async with scene.up() as up:
            await up.time.go(5 * MINUTE)
        assert scene.fired == [START_OF_TIME + 6 * MINUTE]

    asyncio.run(play())
    assert "the clock was wrong then" in caplog.text


def test_clock_behind_the_journal() -> None:
    """A rule that is new while the clock is behind the journal counts from the end of that, as all others do."""

    async def play() -> None:
        scene = Scene(rule("watch", FIVE))
        scene.clock.move(HOUR)
        scene.bell.governor.submit(Fired(unit="other"))
        scene.clock.move(-HOUR)
        async with scene.up() as up:
            await up.time.go(5 * MINUTE)
        assert scene.fired == [START_OF_TIME + HOUR + 5 * MINUTE]

    asyncio.run(play())


# Times of the day.


@pytest.mark.parametrize("missed", list(Missed))
@pytest.mark.usefixtures("_seldom")
def test_cron(missed: Missed) -> None:
    """It fires at its times, in its zone, and says so."""

    async def play() -> None:
        cron = Cron(expression="0 7 * * mon-fri", timezone="Europe/Berlin", missed=missed)
        scene = Scene(rule("report", cron), now=at(2025, 6, 5, 12))
        async with scene.up() as up:
            await up.time.go(5 * DAY)
        assert scene.fired == [at(2025, 6, day, 5) for day in (6, 9, 10)]
        spark = scene.bell.rang[0]
        assert spark.trigger == "cron 0 7 * * mon-fri Europe/Berlin"
        assert spark.data == {"kind": "cron", "at": "2025-06-06T07:00:00+02:00", "missed": False}
        assert spark.joins == (missed is not Missed.ALL)

    asyncio.run(play())


@pytest.mark.parametrize(
    ("expression", "day", "times"),
    [
        # The clocks go forward at 2:00, which is 1:00 UTC: from 2:00 to 3:00 there is no time.
        ("30 2 * * *", (2025, 3, 30), [(1, 0)]),
        ("0 2,3 * * *", (2025, 3, 30), [(1, 0)]),
        ("30 1 * * *", (2025, 3, 30), [(0, 30)]),
        ("0 * * * *", (2025, 3, 30), [(hour, 0) for hour in range(-1, 22)]),
        ("*/30 2 * * *", (2025, 3, 30), []),
        # They go back at 3:00, which is 1:00 UTC: from 2:00 to 3:00 comes twice.
        ("30 2 * * *", (2025, 10, 26), [(0, 30)]),
        ("0 2,3 * * *", (2025, 10, 26), [(0, 0), (2, 0)]),
        ("30 1 * * *", (2025, 10, 26), [(-1, 30)]),
        ("0 * * * *", (2025, 10, 26), [(hour, 0) for hour in range(-2, 23)]),
        ("*/30 2 * * *", (2025, 10, 26), [(0, 0), (0, 30), (1, 0), (1, 30)]),
    ],
)
@pytest.mark.usefixtures("_seldom")
def test_change_of_clocks(expression: str, day: tuple[int, int, int], times: list[tuple[int, int]]) -> None:
    """Where the clocks change, a fixed time of the day comes once: right after the hour that is left out, and in the
    first of the two that are alike. What comes every hour comes every hour. As in Debian's cron. Each start of a daemon
    within that day sees the same times."""
    midnight = at(*day, zone=BERLIN)
    end = at(*day[:2], day[2] + 1, zone=BERLIN)
    due = [at(*day) + hour * HOUR + minute * MINUTE for hour, minute in times]

    async def play(restarts: list[Instant]) -> list[Instant]:
        cron = Cron(expression=expression, timezone="Europe/Berlin")
        scene = Scene(rule("nightly", cron), now=midnight - SECOND)
        for stop in (*restarts, end - SECOND):
            async with scene.up() as up:
                await up.time.go(stop - scene.clock.now())
        return scene.fired

    assert asyncio.run(play([])) == due
    assert asyncio.run(play([midnight + count * 25 * MINUTE for count in range(1, 12)])) == due


@pytest.mark.usefixtures("_seldom")
def test_begun_in_the_hour_that_comes_twice() -> None:
    """A rule that is new in the second of the two hours does not fire for a time of the first."""

    async def play() -> None:
        cron = Cron(expression="30 2 * * *", timezone="Europe/Berlin")
        scene = Scene(rule("nightly", cron), now=at(2025, 10, 26, 1, 10))
        async with scene.up() as up:
            assert scene.fired == []
            await up.time.go(DAY + HOUR)
        assert scene.fired == [at(2025, 10, 27, 1, 30)]

    asyncio.run(play())


@pytest.mark.parametrize(
    ("missed", "away", "due"),
    [
        (Missed.SKIP, 3 * HOUR + 2 * MINUTE, []),
        (Missed.SKIP, 3 * HOUR + 30 * SECOND, [3]),
        (Missed.ONCE, 3 * HOUR + 2 * MINUTE, [3]),
        (Missed.ONCE, 30 * MINUTE, []),
        (Missed.ALL, 3 * HOUR + 2 * MINUTE, [1, 2, 3]),
        (Missed.ALL, 30 * MINUTE, []),
        (Missed.ONCE, 300 * DAY + 2 * MINUTE, [300 * 24]),
    ],
)
@pytest.mark.parametrize("how", ["restart", "suspend"])
@pytest.mark.usefixtures("_seldom")
def test_missed(missed: Missed, away: Span, due: list[int], how: str) -> None:
    """Times at which nobody was there: none, the last, or each of them is made up for, and it says that it was missed.
    What comes within a minute is late, not missed. Then the schedule goes on."""
    noon = at(2025, 6, 5, 12)

    async def play() -> None:
        scene = Scene(rule("hourly", Cron(expression="0 * * * *", missed=missed)), now=noon)
        up = scene.up()
        await up.__aenter__()
        if how == "suspend":
            await up.time.jump(away)
        else:
            await up.__aexit__(None, None, None)
            scene.clock.move(away)
            up = scene.up()
            await up.__aenter__()
        late = away % HOUR > MINUTE
        assert scene.fired == [noon + count * HOUR for count in due]
        assert [spark.data["missed"] for spark in scene.bell.rang] == [late or count < due[-1] for count in due]
        await up.time.go(HOUR)
        await up.__aexit__(None, None, None)
        assert scene.fired[len(due) :] == [noon + (away // HOUR + 1) * HOUR]

    asyncio.run(play())


@pytest.mark.parametrize(
    ("expression", "away", "text"),
    [
        ("* * * * *", 200 * MINUTE, "100 of the times are left out"),
        ("* * * * * *", DAY, "more than 10000 of the times are left out"),
    ],
)
def test_too_many_missed(expression: str, away: Span, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """Of too many, the newest are made up for, the oldest of them first, and it is said how many are not."""

    async def play() -> list[Instant]:
        scene = Scene(rule("often", Cron(expression=expression, missed=Missed.ALL)), now=at(2025, 6, 5))
        async with scene.up():
            scene.clock.move(SECOND)
        scene.clock.set(at(2025, 6, 5) + away)
        async with scene.up():
            return scene.fired

    caplog.set_level(logging.WARNING)
    fired = asyncio.run(play())
    step = MINUTE if expression == "* * * * *" else SECOND
    assert fired == [at(2025, 6, 5) + away - count * step for count in reversed(range(MISSED_MAX))]
    assert text in caplog.text


def test_never() -> None:
    """A time that never comes, and one that cannot be read, fire nothing and hold up nobody."""

    async def play() -> None:
        never = [Cron(expression="0 0 31 feb *"), Cron(expression="x")]
        nowhere = Cron(expression="* * * * *", timezone="Europe/Atlantis")
        scene = Scene(rule("never", *never, nowhere), rule("hourly", HOURLY))
        async with scene.up() as up:
            await up.time.go(HOUR)
        assert [spark.rule for spark in scene.bell.rang] == ["hourly"]

    asyncio.run(play())


# Rules that change.


def test_rules_change() -> None:
    """A trigger that stays goes on; one that changed, or is new, begins now; one that is gone fires no more, and what
    was remembered of it is forgotten."""

    async def play() -> None:
        scene = Scene(rule("a", FIVE), rule("b", FIVE))
        async with scene.up() as up:
            await up.time.go(3 * MINUTE)
            await up.use(rule("a", FIVE), rule("b", Every(every=4 * MINUTE)), rule("c", FIVE))
            await up.time.go(5 * MINUTE)
            fired = [(spark.rule, instant(spark) - START_OF_TIME) for spark in scene.bell.rang]
            assert fired == [("a", 5 * MINUTE), ("b", 7 * MINUTE), ("c", 8 * MINUTE)]
            await up.use(rule("c", FIVE))
            await up.time.go(HOUR)
            assert {spark.rule for spark in scene.bell.rang[3:]} == {"c"}
            assert [key.subject for key in scene.bell.store.states(TIMER)] == ["c/0"]

    asyncio.run(play())


def test_rules_changed_while_nobody_was_there() -> None:
    """The same over a restart: only what is still the same trigger is made up for."""

    async def play() -> None:
        scene = Scene()
        async with scene.up(rule("a", FIVE), rule("b", FIVE), rule("c", FIVE)) as up:
            await up.time.go(MINUTE)
        scene.clock.move(HOUR)
        async with scene.up(rule("a", FIVE), rule("b", Every(every=6 * MINUTE))):
            assert [spark.rule for spark in scene.bell.rang] == ["a"]
            assert {key.subject for key in scene.bell.store.states(TIMER)} == {"a/0", "b/0"}

    asyncio.run(play())


def test_two_kinds() -> None:
    """The sources of both kinds remember something in one place, and neither takes away what is the other's."""

    async def play() -> None:
        scene = Scene()
        both = rule("both", FIVE, Cron(expression="* * * * *"))
        every, cron = Time(scene.clock), Time(scene.clock)
        sources = [
            Timers(scene.bell, scene.bell.governor, kind, time.sleep) for kind, time in ((Every, every), (Cron, cron))
        ]
        for _ in range(2):
            async with running(sources[0], [both], every), running(sources[1], [both], cron):
                assert {key.subject for key in scene.bell.store.states(TIMER)} == {"both/0", "both/1"}
                for source in sources:
                    source.use([rule("both", Cron(expression="* * * * *"), FIVE)])
                await every.rest()
                await cron.rest()
                assert {key.subject for key in scene.bell.store.states(TIMER)} == {"both/0", "both/1"}

    asyncio.run(play())


# What goes wrong.


@pytest.mark.parametrize("damage", [b"{", b'{"trigger":"\xff","last":1}', b'{"trigger":1,"last":1}', b"[]"])
def test_damaged_row(damage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A record that cannot be read is said, and the trigger starts fresh."""

    async def play() -> None:
        scene = Scene(rule("watch", FIVE))
        key = Key(TIMER, "unit", "watch/0")
        scene.bell.store.transact([key], lambda snapshot: Draft(snapshot.at, {key: damage}, None))
        async with scene.up() as up:
            await up.time.go(5 * MINUTE)
        assert scene.fired == [START_OF_TIME + 5 * MINUTE]

    asyncio.run(play())
    assert "starts fresh" in caplog.text


def test_full_disk(caplog: pytest.LogCaptureFixture) -> None:
    """While the store cannot be written nothing is fired, nothing is lost, and it is said once."""

    async def play() -> None:
        scene = Scene(rule("watch", FIVE))
        troubles: Iterator[int] = iter(range(3))

        def full(_: Spark) -> None:
            if next(troubles, None) is not None:
                raise StoreFull("no room left on the disk")

        scene.bell.before = full
        async with scene.up() as up:
            await up.time.go(5 * MINUTE + 3 * striker.TROUBLE_WAIT)
        assert scene.fired == [START_OF_TIME + 5 * MINUTE]

    asyncio.run(play())
    assert caplog.text.count("nothing can be fired for now") == 1


def test_broken_store() -> None:
    """A store that will not come back ends the source, with the store's own error; begun again, it goes on."""

    async def play() -> None:
        scene = Scene(rule("watch", FIVE))
        time = Time(scene.clock)
        source = Timers(scene.bell, scene.bell.governor, Every, time.sleep)

        def broken(_: Spark) -> None:
            raise StoreCorrupt("the file is damaged")

        scene.bell.before = broken
        source.use(scene.rules)
        first = asyncio.ensure_future(source.run())
        await time.rest()
        scene.clock.move(5 * MINUTE)
        source.use(scene.rules)  # pokes it
        with pytest.raises(StoreCorrupt):
            await asyncio.wait_for(first, WAIT_MAX)
        scene.bell.before = lambda _: None
        async with running(source, scene.rules, time):
            assert scene.fired == [START_OF_TIME + 5 * MINUTE]

    asyncio.run(play())


def test_no_cronsim(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package that knows the calendar, it is said what to install; lengths of time do without it."""
    monkeypatch.setitem(__import__("sys").modules, "cronsim", None)

    async def play() -> None:
        bell = Belfry()
        Timers(bell, bell.governor, Every)
        with pytest.raises(FlyballError, match="cronsim") as error:
            Timers(bell, bell.governor, Cron)
        assert "flyball-governor[rules]" in error.value.remedy

    asyncio.run(play())


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("trigger", [FIVE, HOURLY, Cron(expression="0 * * * *", missed=Missed.ALL)])
def test_killed(when: str, trigger: Timed, tmp_path: Path) -> None:
    """Killed before or after any of the writes, it goes on where it was: each time fires once."""

    def killed(_: Spark) -> None:
        raise Killed

    async def life(clock: FakeClock, kill: bool) -> list[tuple[Instant, str]]:
        store = SqliteStore(tmp_path / "state.db")
        try:
            bell = Belfry(store, clock)
            time = Time(clock)
            source = Timers(bell, bell.governor, type(trigger), time.sleep)
            if kill:
                setattr(bell, when, killed)
            source.use([rule("watch", trigger)])
            task = asyncio.ensure_future(source.run())
            resting = asyncio.ensure_future(time.rest())
            await asyncio.wait((task, resting), return_when=asyncio.FIRST_COMPLETED, timeout=WAIT_MAX)
            for wait in (task, resting):
                wait.cancel()
            await asyncio.gather(task, resting, return_exceptions=True)
            return bell.journal
        finally:
            store.close()

    def lived(clock: FakeClock, kill: bool) -> list[tuple[Instant, str]]:
        """A task that dies of it takes its loop along, as a process would."""
        try:
            return asyncio.run(life(clock, kill))
        except Killed:
            return []

    clock = FakeClock(at(2025, 6, 5, 12, 30))
    lived(clock, kill=False)
    clock.move(HOUR)
    fired = 0
    for _ in range(3):
        lived(clock, kill=True)
        fired = len(lived(clock, kill=False))
        clock.move(HOUR)
    assert fired == 3


# Whatever happens.

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["go", "jump", "away"]),
        st.integers(min_value=-90, max_value=200).map(lambda count: count * 40 * SECOND),
    ),
    max_size=12,
)


async def live_through(scene: Scene, steps: list[tuple[str, Span]]) -> None:
    """Time goes by, the clock is set, or the daemon is away meanwhile."""
    up = scene.up()
    await up.__aenter__()
    for step, length in steps:
        if step == "go":
            await up.time.go(abs(length))
        elif step == "jump":
            await up.time.jump(length)
        else:
            await up.__aexit__(None, None, None)
            scene.clock.move(length)
            up = scene.up()
            await up.__aenter__()
    await up.__aexit__(None, None, None)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, every=st.integers(min_value=1, max_value=400))
def test_every_at_most_once_per_period(steps: list[tuple[str, Span]], every: int) -> None:
    """Whatever the clock and the daemon do, it fires at most once in each period, and only when it is due."""
    period = every * 15 * SECOND
    scene = Scene(rule("watch", Every(every=period)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timers, "LOOK_EVERY", DAY)
        asyncio.run(live_through(scene, steps))
    assert scene.fired == sorted(set(scene.fired))
    assert all(due > START_OF_TIME and (due - START_OF_TIME) % period == 0 for due in scene.fired)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, expression=st.sampled_from(["*/7 * * * *", "0 * * * *", "13,14,50 */2 * * *"]))
def test_all_fires_each_time_once(steps: list[tuple[str, Span]], expression: str) -> None:
    """Whatever the clock and the daemon do, with `all` each time fires once: none is left out, up to the bound, none
    comes twice, and they come in order."""
    scene = Scene(rule("all", Cron(expression=expression, missed=Missed.ALL)))
    latest = START_OF_TIME

    class Watched(FakeClock):
        def now(self) -> Instant:
            nonlocal latest
            latest = max(latest, super().now())
            return super().now()

    scene.clock = scene.bell.clock = scene.bell.governor.clock = Watched()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timers, "LOOK_EVERY", DAY)
        asyncio.run(live_through(scene, steps))
    begun = datetime.fromtimestamp(START_OF_TIME // SECOND, UTC)
    due = []
    for moment in cronsim.CronSim(expression, begun):
        if moment.timestamp() * SECOND > latest:
            break
        due.append(round(moment.timestamp()) * SECOND)
    assert scene.fired == due


class Ticking(FakeClock):
    """A clock that goes as fast as the loop's, and is far from the machine's."""

    def now(self) -> Instant:
        return super().now() + round(asyncio.get_running_loop().time() * SECOND)


def test_waits_by_the_governors_clock() -> None:
    """Without a test's way to sleep it waits by the governor's clock, which goes on when the machine's is set back."""

    async def play() -> None:
        bell = Belfry(clock=Ticking())
        source = Timers(bell, bell.governor, Every)
        async with running(source, [rule("often", Every(every=20 * MILLISECOND))]):
            await bell.until(3)

    asyncio.run(play())


def _stores(folder: Path) -> dict[str, Callable[[], Store]]:
    return {"memory": MemoryStore, "disk": lambda: SqliteStore(folder / "state.db")}


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_many(kind: str, tmp_path: Path) -> None:
    """Two thousand rules that are due at the same instant are all fired, each once."""
    store = _stores(tmp_path)[kind]()

    async def play() -> None:
        scene = Scene(*(rule(f"r{number}", HOURLY) for number in range(2_000)), store=store)
        async with scene.up() as up:
            await up.time.jump(HOUR)
        assert Counter(name for _, name in scene.bell.journal) == {f"r{number}": 1 for number in range(2_000)}

    try:
        asyncio.run(play())
    finally:
        store.close()

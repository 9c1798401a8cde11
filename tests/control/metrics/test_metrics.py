"""What a scraper reads: gauges, what other parts tell, and that asking costs little and breaks nothing."""

import asyncio
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterable

import pytest

from flyball.control.alerts.channel import Message
from flyball.control.alerts.outbox import Outbox, put
from flyball.control.alerts.records import CHANNEL, CURSOR, Cursor, record
from flyball.control.board import Board
from flyball.control.metrics.alerts import of_alerts
from flyball.control.metrics.labels import OTHER, VALUES_MAX, WORK
from flyball.control.metrics.metrics import CONTENT_TYPE, FRESH, Metrics
from flyball.control.metrics.names import METRICS
from flyball.control.metrics.picture import BoardPicture, Picture, look_at
from flyball.control.metrics.readings import Reading
from flyball.control.past import Past
from flyball.control.views import Look
from flyball.core.codec import encode
from flyball.core.decision import Verb
from flyball.core.event import Cause, Held, Raised, Released, Start, Step, Stepped, Work
from flyball.core.policy import AnyPolicy, Gate
from flyball.core.time import DAY, MINUTE
from flyball.governor import Governor
from flyball.policies import Breaker, Budget, Session
from flyball.store import Draft
from flyball.store.memory import MemoryStore
from flyball.testing.clock import FakeClock
from tests.control.metrics.scene import Scraped, measured, parsed
from tests.control.scene import Scene

NOTHING = Picture(states={})


def spend(scraped: Scraped, unit: str, used: int, *, reserved: int = 0, run: str = "r", **labels: str) -> None:
    """A step that used so much, and another that is not over."""
    governor = scraped.governor
    cost = {"usd": used}
    governor.submit(Step(unit=unit, run=run, labels=labels, cost=cost))
    governor.submit(Stepped(unit=unit, run=run, labels=labels, done=(Work(reserved=cost, used=cost),)))
    if reserved:
        governor.submit(Step(unit=unit, run=run, labels=labels, cost={"usd": reserved}))


def budgets(scraped: Scraped) -> dict[tuple[str, ...], tuple[float, float, float]]:
    """By whom, of what, of whom: spent, reserved, limit."""
    table = scraped.table()
    places = {place[1:] for place in table if place[0] == "flyball_budget_limit"}
    return {
        place: (
            table["flyball_budget_spent", *place],
            table["flyball_budget_reserved", *place],
            table["flyball_budget_limit", *place],
        )
        for place in places
    }


def test_units_by_state() -> None:
    """A unit for each word that people know is counted under it; a word that no unit has is told as 0."""
    scraped = Scraped()
    scraped.scene.everything()
    table = scraped.table()
    states = {place[1]: count for place, count in table.items() if place[0] == "flyball_units"}
    assert states == {
        **dict.fromkeys(("healthy", "degraded", "cooling", "quarantined", "halted", "paused"), 1.0),
        **dict.fromkeys(("finished", "stopped"), 1.0),
        "failed": 0.0,
    }
    assert table["flyball_units_running",] == 1
    assert table["flyball_units_waiting_for_person",] == 3


def test_the_board_and_a_look_give_the_same_picture() -> None:
    """What is told is what the page shows."""
    scene = Scene(MemoryStore())
    scene.everything()
    past = Past()
    board = Board(lambda: Look(scene.governor, past))
    seen, looked = BoardPicture(board)(), look_at(Look(scene.governor, past))
    assert seen is not None
    assert (dict(seen.states), seen.running, seen.held) == (dict(looked.states), looked.running, looked.held)
    assert seen.problems["critical"] == 2
    assert set(seen.problems) == {"critical", "warning", "info"}


def test_a_board_that_takes_long_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """The first look at ten thousand units may take longer than a scraper waits: then units are left out of that
    scrape, all else is told, and the look goes on for the next one."""
    scene = Scene(MemoryStore())
    scene.start("coder")
    past, go_on = Past(), threading.Event()

    def slowly() -> Look:
        assert go_on.wait(20)
        return Look(scene.governor, past)

    picture = BoardPicture(Board(slowly), within=0.01)
    ticks = iter(range(0, 10**6, 10)).__next__
    metrics = Metrics(scene.governor, picture, version="1", clock=lambda: float(ticks()))
    for _ in range(2):
        table = parsed(metrics.render().decode())
        assert table["flyball_up",] == 1
        assert not [place for place in table if place[0].startswith("flyball_units")]
    go_on.set()
    patient = BoardPicture(picture._board, within=20)
    patient._refreshing = picture._refreshing
    told = patient()
    assert told is not None
    assert told.running == 1
    assert not caplog.records


def test_a_fleet_that_is_held() -> None:
    """By a person, until it is let go on."""
    scraped = Scraped()
    assert scraped.table()["flyball_fleet_held",] == 0
    scraped.governor.submit(Held(scope="fleet", verb=Verb.HOLD, by="ann"))
    table = scraped.table()
    assert (table["flyball_fleet_held",], table["flyball_storm",]) == (1, 0)
    scraped.governor.submit(Released(scope="fleet", by="ann"))
    assert scraped.table()["flyball_fleet_held",] == 0


def test_a_storm() -> None:
    """A supervisor that starts into a heap of failures: the fleet is held, and the storm is told."""
    scraped = Scraped()
    for number in range(12):
        scraped.scene.exit(f"unit-{number}", fingerprint=f"{number:016x}")
    scraped.governor.boot("me")
    table = scraped.table()
    assert (table["flyball_storm",], table["flyball_fleet_held",]) == (1, 1)


def test_circuits() -> None:
    """By the names that people know them by: closed, half-open, open are 0, 1, 2."""
    scraped = Scraped(policies=[Breaker(failures_max=3, units_min=1, recovery=10 * MINUTE, by="provider")])
    for provider, failures in (("a", 3), ("b", 1)):
        for _ in range(failures):
            scraped.scene.start(provider, labels={"provider": provider})
            scraped.scene.exit(provider, fingerprint="f", labels={"provider": provider})
    table = scraped.table()
    assert table["flyball_breaker_state", "provider:a"] == 2
    assert table["flyball_breaker_state", "provider:b"] == 0
    scraped.scene.clock.move(11 * MINUTE)
    assert scraped.table()["flyball_breaker_state", "provider:a"] == 1


def test_budgets_in_dollars() -> None:
    """Spent, reserved and allowed, by whom and of whom; each unit with its own limit, and with what it was raised
    by."""
    policies: list[AnyPolicy] = [
        Budget(limit=2_000_000, by="unit"),
        Budget(limit=5_000_000, by="user", name="budget_user", every=DAY, at=Gate.STEP),
    ]
    scraped = Scraped(policies=policies)
    scraped.governor.panel.put("large", [Budget(limit=9_000_000, by="unit"), policies[1]])
    spend(scraped, "small", 500_000, reserved=250_000, user="ann")
    spend(scraped, "large", 4_000_000, user="ann")
    assert budgets(scraped) == {
        ("unit", "usd", "small"): (0.5, 0.25, 2.0),
        ("unit", "usd", "large"): (4.0, 0.0, 9.0),
        ("user", "usd", "ann"): (4.5, 0.25, 5.0),
    }
    scraped.governor.submit(Raised(unit="small", more={"usd": 1_000_000}, by="ann"))
    assert budgets(scraped)["unit", "usd", "small"] == (0.5, 0.25, 3.0)
    scraped.scene.clock.move(DAY)
    assert budgets(scraped)["user", "usd", "ann"] == (0.0, 0.25, 5.0)


def test_budgets_of_runs_and_of_work_are_summed() -> None:
    """Runs are told by their unit, sessions all together: neither makes a series for each."""
    policies: list[AnyPolicy] = [Budget(limit=2_000_000, by="run")]
    scraped = Scraped(policies=policies)
    for number in range(3):
        spend(scraped, "unit", 500_000, run=f"r/{number}")
        scraped.governor.panel.put(f"session-{number}", [*policies, Session()])
        spend(scraped, f"session-{number}", 100_000)
    assert budgets(scraped) == {("run", "usd", "unit"): (1.5, 0, 6), ("run", "usd", WORK): (pytest.approx(0.3), 0, 6)}


def test_users_beyond_the_bound_are_summed() -> None:
    """A label may have any number of values; so many have series of their own."""
    scraped = Scraped(policies=[Budget(limit=1_000_000, by="user")])
    for number in range(VALUES_MAX + 5):
        spend(scraped, "unit", 100_000, user=f"user-{number}")
    told = budgets(scraped)
    assert len(told) == VALUES_MAX + 1
    assert told["user", "usd", OTHER] == (0.5, 0, 5)


@pytest.mark.parametrize(
    "name",
    ['a"b', "a\\b", "a\nb", "a{b}", "ünïcode-☃", 'x",unit="y', "\\n", "#", "  ", "a\\"],
    ids=["quote", "backslash", "new line", "braces", "no ASCII", "forged", "escaped", "comment", "blank", "at the end"],
)
def test_strange_names(name: str) -> None:
    """Whatever a unit is called, it is one value of one label."""
    scraped = Scraped(policies=[])
    scraped.governor.submit(Start(unit=name, run="r"))
    assert scraped.table()["flyball_starts_total", name] == 1


def test_trouble_is_told() -> None:
    """While what happens cannot be written down."""
    trouble = ""
    scraped = Scraped(trouble=lambda: trouble)
    assert scraped.table()["flyball_store_trouble",] == 0
    trouble = "the disk is full"
    assert scraped.table()["flyball_store_trouble",] == 1


def test_versions() -> None:
    """Which flyball this is, on which Python."""
    python = ".".join(map(str, sys.version_info[:3]))
    assert Scraped().table()["flyball_build_info", python, "1.2.3"] == 1


def test_other_parts_tell_of_themselves() -> None:
    """Under names of the table; a name that is not in it is left out."""
    told = [
        Reading("flyball_logins_failed_total", 3),
        Reading("flyball_http_streams", 7),
        Reading("flyball_made_up", 1),
    ]
    scraped = Scraped(sources=[lambda: told])
    text = scraped.text()
    table = parsed(text)
    assert table["flyball_logins_failed_total",] == 3
    assert table["flyball_http_streams",] == 7
    assert "made_up" not in text


def test_alerts_tell_of_themselves() -> None:
    """S1-52: what each channel delivered and gave up, what waits, and how far alerts are behind the journal; without
    channels nothing of it, and what is damaged is left out."""
    store = MemoryStore()
    scraped = Scraped(store, policies=[], sources=[lambda: of_alerts(store)])
    assert not [place for place in scraped.table() if "alert" in place[0]]
    for _ in range(5):
        scraped.scene.start("coder")
    waiting = put(Outbox(sent=3, given_up=1, failures=2), Message(title="coder failed", group="g"), fresh=True, now=0)
    records = {
        record(f"{CHANNEL}phone"): encode(waiting),
        record(f"{CHANNEL}broken"): b"{",
        CURSOR: encode(Cursor(seq=2)),
    }
    store.transact([*records], lambda snapshot: Draft(snapshot.at, {**records}, None))
    table = scraped.table()
    assert table["flyball_alert_deliveries_total", "phone", "delivered"] == 3
    assert table["flyball_alert_deliveries_total", "phone", "given_up"] == 1
    assert table["flyball_alert_failures", "phone"] == 2
    assert table["flyball_alerts_waiting",] == 1
    assert table["flyball_journal_lag_entries", "alerts"] == 3


def test_a_part_that_fails_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """The others are told all the same; it is logged once, and again when it fails anew."""
    broken = True

    def fails() -> Iterable[Reading]:
        yield Reading("flyball_http_streams", 1)
        if broken:
            raise ZeroDivisionError

    scraped = Scraped(sources=[fails])
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            table = scraped.table()
            assert table["flyball_up",] == 1
            assert ("flyball_http_streams",) not in table
        assert len(caplog.records) == 1
        broken = False
        assert scraped.table()["flyball_http_streams",] == 1
        broken = True
        scraped.table()
        assert len(caplog.records) == 2


def test_who_asks_too_often_gets_what_was_told() -> None:
    """A scraper that hammers costs no more than one that does not."""
    scraped = Scraped()
    first = scraped.metrics.render()
    scraped.scene.start("coder")
    assert scraped.metrics.render() == first
    scraped.ticks.now += FRESH
    assert scraped.metrics.render() != first


def test_many_threads_may_ask() -> None:
    """Each entry is counted once, whoever asks."""
    scene = Scene(MemoryStore())
    clock = iter(range(10**6)).__next__
    metrics = measured(scene.governor, clock=lambda: float(10 * clock()))
    texts: list[bytes] = []
    threads = [threading.Thread(target=lambda: texts.append(metrics.render())) for _ in range(8)]
    for number in range(200):
        scene.start(f"unit-{number % 10}", again=True)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for text in texts:
        table = parsed(text.decode())
        assert sum(count for place, count in table.items() if place[0] == "flyball_starts_total") == 10


def test_an_event_loop_is_not_held_up() -> None:
    """A scrape of many units in a worker thread leaves the loop free: its ticks go on."""
    governor = Governor([], MemoryStore(), FakeClock(0))
    for number in range(3_000):
        governor.submit(Start(unit=f"unit-{number}", run="r"))
    metrics = Metrics(governor, lambda: NOTHING, version="1")
    governor.submit(Start(unit="last", run="r"))

    async def main() -> float:
        scrape = asyncio.create_task(asyncio.to_thread(metrics.render))
        longest, last = 0.0, time.monotonic()
        while not scrape.done():
            await asyncio.sleep(0.001)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        assert b"flyball_starts_total" in await scrape
        return longest

    assert asyncio.run(main()) < 1.0


def test_counters_end_as_counters_do() -> None:
    """Names as Prometheus wants them: counters end with `_total`, no other does, and every one explains itself."""
    for metric in METRICS.values():
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert metric.help.endswith((".", "…")), metric.name
        assert metric.name.startswith("flyball_")


def test_what_is_told_is_typed_as_the_table_has_it() -> None:
    """Kind and help of every family come from the table."""
    scraped = Scraped()
    scraped.scene.everything()
    lines = scraped.text().splitlines()
    types = dict(line.split()[2:4] for line in lines if line.startswith("# TYPE flyball"))
    assert types
    assert all(METRICS[name].kind == kind for name, kind in types.items())
    assert CONTENT_TYPE.startswith("text/plain; version=0.0.4")


def test_nothing_of_prometheus_is_imported_before_somebody_asks() -> None:
    """A daemon that nobody scrapes has nothing of it in its memory."""
    code = (
        "import sys; from flyball.control.metrics import metrics; "
        "sys.exit(any(name.startswith('prometheus_client') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_unit_that_is_lost_at_boot_is_counted() -> None:
    """The tally begins before the supervisor looks at what it finds."""
    scraped = Scraped()
    scraped.scene.start("coder")
    again = measured(scraped.governor)
    scraped.governor.boot("me", gone=lambda _: True)
    assert parsed(again.render().decode())["flyball_exits_total", str(Cause.LOST), "coder"] == 1

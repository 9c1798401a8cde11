"""The whole service on simulated time: what people get to see of what happens, and when."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flyball.config import Settings
from flyball.config.alerts import AlertRule, Alerts, Quiet
from flyball.control.alerts.channel import ChannelError
from flyball.control.alerts.service import AlertService
from flyball.core.event import Acknowledged, Answered, Asked, Booted, Cause, Released, Stepped, Work
from flyball.core.time import DAY, FOREVER, HOUR, MINUTE, SECOND, Span
from flyball.governor import Governor
from flyball.policies import Budget
from flyball.store.memory import MemoryStore
from flyball.testing.loop import SimulatedLoop
from tests.control.alerts.fixtures import Remembers, Site, alerts

Play = Callable[[Site], Awaitable[None]]


def play(work: Play, *channels: Remembers, settings: Alerts | None = None, **more: Any) -> Site:
    """Play it, from a service that has just begun to its end."""
    loop = SimulatedLoop()

    async def main() -> Site:
        site = Site(loop, *channels, settings=settings, **more)
        try:
            await site.passes(SECOND)
            await work(site)
        finally:
            await site.end()
        return site

    return loop.run(main())


def test_one_message_instead_of_fifty() -> None:
    """Fifty units that are quarantined for the same error are one message, with how many and some names (S0-36)."""

    async def work(site: Site) -> None:
        for number in range(50):
            site.quarantine(f"shop-{number}")
        await site.passes(10 * SECOND)
        (message,) = [message for message in site.phone.pushed if message.kind == "quarantined"]
        assert message.title == "50 units quarantined"
        assert "Units: shop-0, shop-1, shop-2, shop-3, shop-4 and 45 more" in message.text
        assert message.count == 50
        assert message.severity == "critical"

    play(work)


def test_what_to_reset() -> None:
    """The same error has another fingerprint in each unit: of two the message names both, of one that one."""

    async def work(site: Site) -> None:
        site.quarantine("shop")
        await site.passes(5 * SECOND)
        site.quarantine("bank")
        await site.passes(20 * SECOND)
        alone, both = (message.text.splitlines()[-1] for message, _ in site.phone.sent if message.kind == "quarantined")
        first = alone.partition("flyball reset ")[2][:8]
        assert both.startswith(f"Look into them, then `flyball reset` each: {first}, ")

    play(work)


def test_waits_a_little() -> None:
    """The first message comes `group_wait` after the first time, and no sooner."""

    async def work(site: Site) -> None:
        site.quarantine("shop")
        await site.passes(19 * SECOND // 10)
        assert site.phone.sent == []
        await site.passes(2 * SECOND)
        assert site.phone.titles == ["shop quarantined"]

    play(work)


def test_actions() -> None:
    """A message offers the one safe thing to do, and to say that it was seen."""

    async def work(site: Site) -> None:
        site.quarantine("shop")
        site.submit(Asked(unit="bot", run="r", id="q1", text="Sell?", choices=("yes", "no")))
        await site.passes(5 * SECOND)
        by_kind = {message.kind: message for message, _ in site.phone.sent}
        reset, acknowledge = by_kind["quarantined"].actions
        assert (reset.verb, acknowledge.verb) == ("reset", "acknowledge")
        assert acknowledge.args == {"problem": f"shop:quarantined:{reset.args['fingerprint']}"}
        assert [(one.verb, one.label) for one in by_kind["question"].actions][:2] == [
            ("answer", "yes"),
            ("answer", "no"),
        ]

    play(work)


def test_changed_then_new() -> None:
    """A second unit changes the message soon; a new one, which rings, comes when the last is old enough."""

    async def work(site: Site) -> None:
        site.quarantine("one")
        await site.passes(5 * SECOND)
        site.quarantine("two")
        await site.passes(20 * SECOND)
        assert [(message.title, previous) for message, previous in site.phone.sent] == [
            ("one quarantined", None),
            ("2 units quarantined", "phone-1"),
        ]
        await site.passes(5 * MINUTE)
        assert len(site.phone.pushed) == 2
        assert len(site.phone.shown) == 2

    play(work)


def test_no_ring_for_the_same_again() -> None:
    """A unit that times out every minute for an hour rings once; its message counts along, ever less often."""

    async def work(site: Site) -> None:
        for _ in range(60):
            site.fail("slow", "timeout", cause=Cause.TIMEOUT, fingerprint="")
            await site.passes(MINUTE)
        timeouts = [one for one in site.phone.sent if one[0].kind == "timeout"]
        assert [previous for _, previous in timeouts].count(None) == 1
        assert len(timeouts) <= 14
        assert timeouts[-1][0].count > 50

    play(work)


def test_channel_that_cannot_change_messages() -> None:
    """There people are told when it begins, when it gets worse and when it is over, and not in between."""

    async def work(site: Site) -> None:
        for _ in range(30):
            site.fail("slow", "timeout", cause=Cause.TIMEOUT, fingerprint="")
            await site.passes(MINUTE)
        assert [message.kind for message, _ in site.phone.sent].count("timeout") == 1

    play(work, Remembers(changes=False))


@pytest.mark.parametrize("how", ["released", "reset"])
def test_resolved(how: str) -> None:
    """When all of it is over, whoever was told is told that too, once, in the same message."""

    async def work(site: Site) -> None:
        site.quarantine("one")
        site.quarantine("two")
        await site.passes(5 * SECOND)
        for unit in ("one", "two"):
            if how == "released":
                site.submit(Released(unit=unit))
            else:
                site.submit(Released(unit=unit, policies=("quarantine", "cooldown")))
        await site.passes(HOUR)
        kinds = [(message.title, message.resolved, previous) for message, previous in site.phone.sent]
        assert kinds == [
            ("2 units quarantined", False, None),
            ("Resolved: 2 units quarantined", True, "phone-1"),
        ]

    play(work)


def test_over_before_anybody_was_told() -> None:
    """What lasted less than `group_wait` is not told at all."""

    async def work(site: Site) -> None:
        site.quarantine("one")
        await site.passes(SECOND)
        site.submit(Released(unit="one"))
        await site.passes(HOUR)
        assert site.phone.sent == []

    play(work)


def test_over_while_the_service_was_down() -> None:
    """What lasted longer is told, also if it was over before the service could: in one message."""

    async def work(site: Site) -> None:
        await site.end()
        site.quarantine("one")
        await site.passes(MINUTE)
        site.submit(Released(unit="one"))
        await site.passes(MINUTE)
        site.begin()
        await site.passes(MINUTE)
        assert site.phone.titles == ["Resolved: one quarantined"]

    play(work)


def test_flapping_is_damped() -> None:
    """What comes and goes all day is told a few times an hour at most, and less and less."""

    async def work(site: Site) -> None:
        counts = []
        for _ in range(4):
            before = len(site.phone.sent)
            for _ in range(30):
                site.quarantine("one")
                await site.passes(MINUTE)
                site.submit(Released(unit="one"))
                await site.passes(MINUTE)
            counts.append(len(site.phone.sent) - before)
        assert counts[0] <= 20
        assert max(counts[1:]) <= 14
        assert len(site.phone.pushed) <= 10

    play(work)


def test_acknowledged() -> None:
    """What a person has seen is not told again, however long it stands; until it gets worse."""

    async def work(site: Site) -> None:
        site.quarantine("one")
        await site.passes(5 * SECOND)
        problem = site.phone.sent[0][0].problem
        site.submit(Acknowledged(problem=problem, by="ann"))
        await site.passes(DAY)
        assert len(site.phone.sent) == 1
        site.quarantine("two")
        await site.passes(MINUTE)
        assert site.phone.pushed[-1].title == "2 units quarantined"
        assert "Seen by ann." in site.phone.pushed[-1].text

    play(work)


def test_acknowledged_then_once_more() -> None:
    """The same failure once more is worse."""

    async def work(site: Site) -> None:
        site.quarantine("one")
        await site.passes(5 * SECOND)
        site.submit(Acknowledged(problem=site.phone.sent[0][0].problem, by="ann"))
        await site.passes(HOUR)
        site.fail("one")
        await site.passes(MINUTE)
        assert len(site.phone.pushed) == 2

    play(work)


def test_snoozed() -> None:
    """What a person wants to hear of later is told again then, if it is still so."""

    async def work(site: Site) -> None:
        site.quarantine("one")
        await site.passes(5 * SECOND)
        now = site.loop.now()
        site.submit(Acknowledged(problem=site.phone.sent[0][0].problem, until=now + 2 * HOUR, by="ann"))
        await site.passes(2 * HOUR - MINUTE)
        assert len(site.phone.sent) == 1
        await site.passes(2 * MINUTE)
        assert len(site.phone.pushed) == 2

    play(work)


def test_still_there() -> None:
    """What stands, and nobody has seen, is told again every four hours."""

    async def work(site: Site) -> None:
        site.quarantine("one")
        await site.passes(DAY)
        assert len(site.phone.pushed) == 6

    play(work)


def test_question_is_over_when_answered() -> None:
    """An answered question is no alert any more; nor is one whose run has ended."""

    async def work(site: Site) -> None:
        site.submit(Asked(unit="bot", run="r", id="q1", text="Sell?"), Asked(unit="bot", run="r", id="q2", text="Buy?"))
        await site.passes(5 * SECOND)
        site.submit(Answered(unit="bot", id="q1", answer="yes", heard=True))
        await site.passes(MINUTE)
        assert not site.phone.sent[-1][0].resolved
        site.submit(Answered(unit="bot", id="q2", answer="no", heard=True))
        await site.passes(MINUTE)
        assert site.phone.sent[-1][0].title == "Resolved: bot asks"
        assert len(site.phone.pushed) == 1

    play(work)


def test_circuit() -> None:
    """A circuit that opens is told by its name, and that it is closed again, when it is."""

    async def work(site: Site) -> None:
        for number in range(6):
            site.fail(f"shop-{number % 3}", f"Boom{number}")
        await site.passes(5 * SECOND)
        told = {message.kind: message for message in site.phone.pushed}
        assert told["circuit_open"].title == "fleet circuit open"
        site.submit(Released(scope="fleet", policies=("breaker",)))
        await site.passes(MINUTE)
        assert "Resolved: fleet circuit open" in site.phone.titles

    play(work)


def test_budget_nearly_spent() -> None:
    """At 80 % of a budget people are told, once, before anything is stopped."""

    async def work(site: Site) -> None:
        site.governor.panel.put("bot", (Budget(limit=1_000_000, by="unit"),))
        for used, told in ((790_000, 0), (20_000, 1), (20_000, 1)):
            site.submit(Stepped(unit="bot", run="r", done=(Work(used={"usd": used}),)))
            await site.passes(MINUTE)
            assert [message.kind for message in site.phone.pushed].count("budget_near") == told
        assert "of 1.00 USD are spent" in site.phone.sent[-1][0].text

    play(work)


def test_rule_message() -> None:
    """What a rule wants people to know gets to them, in the rule's name."""

    async def work(site: Site) -> None:
        site.service.tell("watch-price", "it is below 10")
        await site.passes(5 * SECOND)
        assert [(one.title, one.text) for one in site.phone.pushed] == [("watch-price says", "it is below 10")]

    play(work)


def test_each_restart_if_wanted() -> None:
    """Each restart is told where a rule names that, and only there (S3-50)."""
    settings = alerts("phone", "mail", rules=(AlertRule(kinds=("restarts",), channels=("mail",)),))

    async def work(site: Site) -> None:
        from flyball.core.event import Exited, Start

        site.submit(Start(unit="a", run="1"), Exited(unit="a", run="1", cause=Cause.ERROR, error="x"))
        await site.passes(HOUR)
        site.submit(Start(unit="a", run="2", again=True))
        await site.passes(MINUTE)
        phone, mail = site.channels
        assert phone.sent == []
        assert mail.titles == ["a restarted"]

    play(work, Remembers("phone"), Remembers("mail"), settings=settings)


def test_begins_at_the_end() -> None:
    """What happened before there were alerts is not told."""
    store = MemoryStore()
    loop = SimulatedLoop()

    async def main() -> None:
        before = Site(loop, store=store)
        await before.end()
        for key in store.states("alerts"):
            store.transact([key], lambda snapshot, key=key: _drop(snapshot, key))  # type: ignore[misc]
        before.quarantine("old")
        site = Site(loop, store=store)
        await site.passes(MINUTE)
        site.quarantine("new")
        await site.passes(MINUTE)
        assert site.phone.titles == ["new quarantined"]
        await site.end()

    loop.run(main())


def _drop(snapshot: Any, key: Any) -> Any:
    from flyball.store import Draft

    return Draft(snapshot.at, {key: None}, None)


def test_gap() -> None:
    """A journal that was trimmed past what alerts had read is told, and not passed over."""

    async def work(site: Site) -> None:
        site.quarantine("before")
        await site.passes(MINUTE)
        await site.end()
        for _ in range(2):
            for number in range(50):
                site.submit(Booted(holder=f"h{number}"))
            site.store.trim(5)
        site.begin()
        await site.passes(MINUTE)
        assert "the journal has a gap: some alerts may be missing" in site.phone.titles

    play(work)


# Channels that fail.

DOWN = ChannelError("503", retry=True)
REFUSED = ChannelError("401: who are you?", retry=False)


def test_retried_until_it_works() -> None:
    """A channel that is down gets its messages later: of each group the newest, once."""

    async def work(site: Site) -> None:
        site.phone.fails = DOWN
        site.quarantine("one")
        await site.passes(HOUR)
        assert 5 <= site.phone.tries <= 15
        site.quarantine("two")
        await site.passes(HOUR)
        site.phone.fails = None
        await site.passes(20 * MINUTE)
        assert site.phone.titles == ["2 units quarantined"]

    play(work)


def test_dead_channel_is_told_by_another() -> None:
    """A channel that fails again and again is an alert on the others; that it works again is told too."""

    async def work(site: Site) -> None:
        phone, mail = site.channels
        phone.fails = DOWN
        site.quarantine("one")
        await site.passes(5 * MINUTE)
        (dead,) = [message for message in mail.pushed if message.kind == "channel_dead"]
        assert dead.title == "phone does not work: an alert channel"
        assert "503" in dead.text
        phone.fails = None
        await site.passes(20 * MINUTE)
        assert mail.titles[-1] == "Resolved: phone does not work: an alert channel"
        assert [message.kind for message in phone.pushed] == ["quarantined"]

    play(work, Remembers("phone"), Remembers("mail"))


def test_refused_for_good() -> None:
    """A message that a channel refuses for good is given up, and that is told at once by the others."""

    async def work(site: Site) -> None:
        phone, mail = site.channels
        phone.fails = REFUSED
        site.quarantine("one")
        await site.passes(MINUTE)
        assert phone.tries == 1
        assert [message.kind for message in mail.pushed] == ["quarantined", "channel_dead"]
        box = site.service._book.outboxes["phone"]  # type: ignore[union-attr]
        assert (box.pending, box.given_up, box.dead) == ((), 1, True)

    play(work, Remembers("phone"), Remembers("mail"))


def test_given_up_when_too_old() -> None:
    """After a day nobody wants to read it any more."""

    async def work(site: Site) -> None:
        site.phone.fails = DOWN
        site.fail("one", "timeout", cause=Cause.TIMEOUT, fingerprint="")
        await site.passes(25 * HOUR)
        site.phone.fails = None
        await site.passes(HOUR)
        assert site.phone.sent == []

    play(work)


def test_slow_channel_delays_nobody() -> None:
    """One that takes twenty seconds for each message does not hold up another."""

    async def work(site: Site) -> None:
        slow, quick = site.channels
        slow.lasts = 20.0
        site.quarantine("one")
        await site.passes(4 * SECOND)
        assert (len(slow.sent), len(quick.sent)) == (0, 1)
        await site.passes(MINUTE)
        assert len(slow.sent) == 1

    play(work, Remembers("slow"), Remembers("quick"))


def test_channel_with_a_fault() -> None:
    """A channel that raises what it should not is a channel that fails; the service goes on."""

    class Broken(Remembers):
        async def send(self, message: Any, previous: str | None) -> str:
            raise ZeroDivisionError("oops")

    async def work(site: Site) -> None:
        site.quarantine("one")
        await site.passes(5 * MINUTE)
        assert [message.kind for message in site.channels[1].pushed] == ["quarantined", "channel_dead"]

    play(work, Broken("broken"), Remembers("phone"))


def test_channel_that_hangs() -> None:
    """One that never comes back is given a minute, and then counts as failed."""

    async def work(site: Site) -> None:
        site.channels[0].lasts = 1e6
        site.quarantine("one")
        await site.passes(5 * MINUTE)
        assert "channel_dead" in [message.kind for message in site.channels[1].pushed]

    play(work, Remembers("hangs"), Remembers("phone"))


# Quiet hours. Simulated time begins at 22:13 UTC.

QUIET = Quiet(start=22 * 60, end=7 * 60)


def test_quiet_hours() -> None:
    """In quiet hours critical ones pass; the others are told in one message when the hours are over."""

    async def work(site: Site) -> None:
        for number in range(30):
            site.fail(f"slow-{number}", "timeout", cause=Cause.TIMEOUT, fingerprint="")
        site.submit(Asked(unit="bot", run="r", id="q1", text="Sell?"))
        site.quarantine("one")
        await site.passes(HOUR)
        assert [message.kind for message in site.phone.pushed if message.severity != "critical"] == []
        site.submit(Answered(unit="bot", id="q1", answer="yes"))
        await site.passes(9 * HOUR)
        (summary,) = [message for message in site.phone.pushed if message.kind == "summary"]
        assert "30 units timed out" in summary.text
        assert "Resolved: bot asks" in summary.text

    play(work, settings=alerts("phone", quiet=QUIET))


def test_ended_in_order() -> None:
    """A service that is stopped lets go of its channels."""

    async def work(site: Site) -> None:
        await asyncio.sleep(0)

    assert play(work).phone.closed


def test_nobody_writes_after_the_end() -> None:
    """A service that is stopped in the middle of a look ends when that look is over: the next one begins with what it
    wrote, and is not written over."""
    began, goes_on = threading.Event(), threading.Event()

    async def slowly(work: Callable[[], Any]) -> Any:
        def wait() -> Any:
            began.set()
            assert goes_on.wait(20)
            return work()

        return await asyncio.to_thread(wait)

    async def main() -> bool:
        governor = Governor(Settings().policies(), MemoryStore())
        service = AlertService(governor, alerts(), [Remembers()], do=slowly)
        starting = asyncio.create_task(service.start())
        await asyncio.to_thread(began.wait, 20)
        starting.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        early = starting.done()
        goes_on.set()
        await asyncio.wait([starting])
        assert governor.store.states("alerts")
        return early

    assert not asyncio.run(main())


@pytest.mark.parametrize("length", [0, FOREVER])
def test_acknowledged_for_ever_is_no_instant(length: Span) -> None:
    """An acknowledgement of what is not there changes nothing."""

    async def work(site: Site) -> None:
        site.submit(Acknowledged(problem="nobody:halted", until=length))
        await site.passes(MINUTE)
        assert site.phone.sent == []

    play(work)

"""How the bot listens: each update once, nothing that is too old, and on through whatever goes wrong. Time is
simulated, Telegram is a list."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from flyball.control.context import Args, Caller, Right
from flyball.control.telegram.faults import ApiError, Fault
from flyball.control.telegram.inbox import Inbox
from flyball.control.telegram.messages import Nothing, Pressed, Reply, Update
from flyball.control.telegram.polling import LONGEST_WAIT, Polling
from flyball.control.telegram.strangers import ANSWERED_MAX
from flyball.control.telegram.talk import Person, Talk
from flyball.core.policy import Key
from flyball.core.time import DAY, HOUR, SECOND, Span
from flyball.errors import StoreError
from flyball.governor import Governor
from flyball.store import Store
from flyball.store.memory import MemoryStore
from flyball.testing.loop import SimulatedLoop
from tests.control.telegram.chat import ANN, BOB, EVE, said

FULL = 5
"""Updates that come at once."""
GROUP = -100


class Killed(BaseException):
    """kill -9."""


class Server:
    """Telegram: what waits there, and what was said in chats."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.waiting: list[Update] = []
        self.said: list[tuple[int, str]] = []
        self.toasts: list[str] = []
        self.polls: list[tuple[float, int | None]] = []
        self.faults: list[ApiError] = []
        self.deaf = False
        """It confirms nothing: what was handled comes again."""
        self.send_faults: list[ApiError] = []

    async def name(self) -> str:
        return "flyball_bot"

    async def offer(self, commands: Sequence[tuple[str, str]]) -> None:
        assert ("status", "how things are") in commands

    async def news(self, after: int | None, *, wait: bool) -> list[Update]:
        self.polls.append((self._loop.time(), after))
        if self.faults:
            raise self.faults.pop(0)
        if after is not None and not self.deaf:
            self.waiting = [one for one in self.waiting if one.number >= after]
        for _ in range(5 if wait else 0):
            if self.waiting or self.faults:
                break
            await asyncio.sleep(5)
        if self.faults:
            raise self.faults.pop(0)
        return self.waiting[:FULL]

    async def send(self, chat: int, reply: Reply) -> None:
        if self.send_faults:
            raise self.send_faults.pop(0)
        self.said.append((chat, reply.text))

    async def edit(self, chat: int, number: int, reply: Reply) -> None:
        await self.send(chat, reply)

    async def answer(self, press: str, toast: str) -> None:
        self.toasts.append(toast)


class Scene:
    """A bot, a store that outlives it, and simulated time."""

    def __init__(self, store: Store | None = None) -> None:
        self.loop = SimulatedLoop()
        self.store = store or MemoryStore()
        self.governor = Governor((), self.store, self.loop)
        self.server = Server(self.loop)
        self.asked: list[tuple[str, str]] = []
        self.refused: list[tuple[str, str]] = []
        self.troubles: list[str] = []
        self.dies_at = ""
        self.seconds = 0.0
        self._number = 0

    async def ask(self, caller: Caller, verb: str, args: Args) -> Any:
        if verb == self.dies_at:
            self.dies_at = ""
            raise Killed
        self.asked.append((caller.who, verb))
        return {"units": [{"name": name, "state": "paused"} for name in args.get("units", ())]}

    def polling(self) -> Polling:
        async def audit(who: str, asked: str) -> None:
            self.refused.append((who, asked))

        return Polling(
            api=self.server,
            talk=Talk(self.ask),
            inbox=Inbox(self.governor, "1"),
            people={ANN: Person("telegram:ann", Right.OPERATE), BOB: Person("telegram:bob", Right.LOOK)},
            chats=frozenset({GROUP}),
            stale_after=60.0,
            trouble=self.trouble,
            audit=audit,
            clock=self.now,
            full=FULL,
        )

    def trouble(self, text: str) -> None:
        if text != (self.troubles[-1] if self.troubles else ""):
            self.troubles.append(text)

    def now(self) -> float:
        return self.loop.now() / SECOND

    def lives(self, seconds: float, *then: Callable[[], object]) -> None:
        """A bot lives for so long (anew each time); then each of these is done, and it lives as long again."""

        async def life() -> None:
            bot = asyncio.ensure_future(self.polling().run())
            for one in then:
                await asyncio.wait({bot}, timeout=seconds)
                one()
            await asyncio.wait({bot}, timeout=seconds)
            bot.cancel()
            (ended,) = await asyncio.gather(bot, return_exceptions=True)
            assert isinstance(ended, asyncio.CancelledError)

        self.loop.run_until_complete(life())

    def dies(self) -> None:
        """A bot lives until it is killed."""
        with pytest.raises(Killed):
            self.loop.run_until_complete(self.polling().run())

    def comes(self, text: str, *, ago: float = 0.0, **more: Any) -> None:
        """Somebody writes, so long before now."""
        self.server.waiting.append(said(text, number=self.next(), at=self.now() - ago, **more))

    def pressed(self, *, user: int = ANN, data: str = "of:x") -> None:
        self.server.waiting.append(
            Pressed(number=self.next(), chat=user, private=True, sender=user, press="p", data=data, message=1)
        )

    def passes(self, length: Span) -> None:
        """So much time passes at once."""
        self.loop.catch_up(self.loop.now() + length)

    def next(self) -> int:
        self._number += 1
        return self._number

    def texts(self, chat: int = ANN) -> list[str]:
        return [text for where, text in self.server.said if where == chat]


@pytest.fixture
def scene() -> Any:
    made = Scene()
    yield made
    made.loop.close()


def test_a_command(scene: Scene) -> None:
    """It is done once, as its sender, and answered."""
    scene.comes("/pause a")
    scene.lives(100)
    assert scene.asked == [("telegram:ann", "pause")]
    assert scene.texts() == ["Done: pause.\n<b>a</b> is paused"]
    assert scene.troubles == []


def test_comes_again(scene: Scene) -> None:
    """What Telegram delivers again is not done again: while the bot lives, nor after a restart."""
    scene.server.deaf = True
    scene.comes("/pause a")
    scene.lives(0.5)
    scene.lives(0.5)
    assert scene.asked == [("telegram:ann", "pause")]
    assert len(scene.texts()) == 1


def test_killed_in_the_middle(scene: Scene) -> None:
    """A command during which the bot was killed is not done again; who sent it is told, once."""
    scene.comes("/pause a")
    scene.comes("/pause b")
    scene.dies_at = "pause"
    scene.dies()
    assert scene.asked == []
    scene.server.deaf = True
    scene.lives(0.5)
    scene.lives(0.5)
    assert scene.asked == [("telegram:ann", "pause")]
    first, second = scene.texts()
    assert first.startswith("I was restarted in the middle of <code>/pause a</code>.")
    assert second == "Done: pause.\n<b>b</b> is paused"


def test_cannot_be_noted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is done that cannot be noted first; when it can be again, it is."""
    write, full = scene.store.transact_soon, True

    def transact_soon(*args: Any, **more: Any) -> Any:
        if full:
            raise StoreError("the disk is full", remedy="Make room.")
        return write(*args, **more)

    def empty() -> None:
        nonlocal full
        full = False

    monkeypatch.setattr(scene.store, "transact_soon", transact_soon)
    scene.comes("/pause a")
    scene.lives(20, empty)
    assert scene.asked == [("telegram:ann", "pause")]
    assert "cannot be noted, so nothing is done: the disk is full" in scene.troubles[0]
    assert scene.troubles[-1] == ""


@pytest.mark.parametrize(("ago", "done"), [(0, True), (59, True), (62, False), (7200, False), (-30, True)])
def test_stale(ago: float, done: bool, scene: Scene) -> None:
    """What is older than a minute is not done; one that seems to come from the future (by a clock that is off) is."""
    scene.comes("/pause a", ago=ago)
    scene.lives(10)
    assert bool(scene.asked) is done
    assert scene.texts()[0].startswith("Done" if done else "Not done, because it came more than 1 min late")


def test_after_downtime(scene: Scene) -> None:
    """All that came while nobody listened is told once in each chat, with the list; what is new is done. Who is not
    listed is told nothing of it."""
    for number in range(2 * FULL):
        scene.comes(f"/pause <a{number}>", ago=600)
    scene.comes("/pause b", ago=600, user=BOB)
    scene.comes("/pause c", ago=600, user=EVE)
    scene.comes("/pause d")
    scene.lives(10)
    assert scene.asked == [("telegram:ann", "pause")]
    done, dropped = scene.texts()
    assert done == "Done: pause.\n<b>d</b> is paused"
    assert "• <code>/pause &lt;a0&gt;</code>, 10 min ago" in dropped
    assert "/status" in dropped
    assert len(scene.texts(BOB)) == 1
    assert scene.texts(EVE) == ["You are not listed here. Your id is 666."]
    scene.lives(100)
    assert len(scene.texts()) == 2


def test_pressed_in_downtime(scene: Scene) -> None:
    """Telegram does not say when a button was pressed: what was pressed before the bot listened is not done. What is
    pressed while it listens is, also after a long silence."""
    scene.pressed()
    scene.lives(500, scene.pressed)
    assert len(scene.server.toasts) == 1
    (text,) = scene.texts()
    assert "• <code>a button</code>\n" in text


def test_pressed_while_the_network_was_away(scene: Scene) -> None:
    """The same if the bot lived, and heard nothing."""

    def goes() -> None:
        scene.server.faults += [ApiError(Fault.NETWORK, "no route")] * 8
        scene.pressed()

    scene.lives(200, goes)
    assert scene.server.toasts == []
    assert "a button" in scene.texts()[0]


# People.


def test_strangers(scene: Scene) -> None:
    """Who is not listed gets one short answer an hour, and is on the audit trail as often; many of them are not
    answered at all. Nothing is done for them."""
    for _ in range(3):
        scene.comes("/pause all\x1b", user=EVE)
    scene.pressed(user=EVE)
    scene.lives(10)
    assert scene.asked == []
    assert scene.refused == [("telegram:666", "/pause all ")]
    assert scene.texts(EVE) == ["You are not listed here. Your id is 666."]
    assert scene.server.toasts == ["You are not listed here."]
    for number in range(100):
        scene.comes("/status", user=1000 + number)
    scene.lives(200)
    assert len(scene.refused) == ANSWERED_MAX + 1


def test_stranger_later(scene: Scene) -> None:
    """An hour later there is another."""
    scene.comes("/status", user=EVE)
    scene.lives(10)
    scene.passes(HOUR)
    scene.lives(10, lambda: scene.comes("/status", user=EVE))
    assert len(scene.texts(EVE)) == len(scene.refused) == 2


@pytest.mark.parametrize(
    ("given", "done", "answers"),
    [
        ({"chat": GROUP}, True, ["Done: pause.\n<b>a</b> is paused"]),
        ({"chat": -7}, False, ["I do not listen in this chat. Its id is -7."]),
        ({"chat": GROUP, "user": EVE}, False, ["You are not listed here. Your id is 666."]),
        ({"chat": -7, "user": EVE}, False, []),
        ({"own": False}, False, []),
    ],
)
def test_where(given: dict[str, Any], done: bool, answers: list[str], scene: Scene) -> None:
    """In a group the bot listens only if that is listed, and only to those who are. What somebody forwards is not
    theirs."""
    scene.comes("/pause a", **given)
    scene.lives(10)
    assert bool(scene.asked) is done
    assert [text for _, text in scene.server.said] == answers


@pytest.mark.parametrize("text", ["hello", "/status@other_bot", "we should /pause a"])
def test_talk_in_a_group(text: str, scene: Scene) -> None:
    """What people say to each other is not answered."""
    scene.comes(text, chat=GROUP)
    scene.server.waiting.append(Nothing(number=scene.next(), chat=0, private=False, sender=0))
    scene.lives(10)
    assert scene.server.said == []
    assert scene.server.waiting == []


# What goes wrong.


@pytest.mark.parametrize(
    ("fault", "times", "says"),
    [
        (Fault.NETWORK, 2, ""),
        (Fault.NETWORK, 3, "Telegram cannot be reached: hm"),
        (Fault.CONFLICT, 1, "another program listens with this bot's token (hm). End it."),
        (Fault.TOKEN, 1, "does not know this bot's token (hm). Check `telegram.token`, then reload."),
        (Fault.WAIT, 3, "asks to be left alone: hm"),
        (Fault.REFUSED, 3, "cannot be reached: hm"),
    ],
)
def test_fault(fault: Fault, times: int, says: str, scene: Scene) -> None:
    """It is told where people look, unless it is gone in a moment; when it is gone, it is told no more, and commands
    are done."""
    scene.server.faults = [ApiError(fault, "hm")] * times
    scene.lives(50, lambda: scene.comes("/pause a"))
    assert scene.asked == [("telegram:ann", "pause")]
    assert says in "".join(scene.troubles)
    assert scene.troubles[1:] == [""] * bool(says)


def test_waits_longer_each_time(scene: Scene) -> None:
    """A server that is gone is not asked without a break: twice as long each time, and never longer than a minute."""
    scene.server.faults = [ApiError(Fault.NETWORK, "gone")] * 1000
    scene.lives(3600)
    times = [at for at, _ in scene.server.polls]
    waits = [later - before for before, later in pairwise(times)]
    assert waits[:4] == pytest.approx([0.5, 1, 2, 4])
    assert waits[-1] == pytest.approx(LONGEST_WAIT)
    assert len(times) < 80


def test_is_left_alone(scene: Scene) -> None:
    """If Telegram asks for time, it gets that."""
    scene.server.faults = [ApiError(Fault.WAIT, "flood", after=33)]
    scene.lives(100)
    assert scene.server.polls[1][0] - scene.server.polls[0][0] == pytest.approx(33)


@pytest.mark.parametrize(
    ("faults", "heard"),
    [
        ([ApiError(Fault.NETWORK, "hm")] * 2, True),
        ([ApiError(Fault.WAIT, "hm", after=10)], True),
        ([ApiError(Fault.NETWORK, "hm")] * 3, False),
        ([ApiError(Fault.REFUSED, "blocked")], False),
    ],
)
def test_answer_is_lost(faults: list[ApiError], heard: bool, scene: Scene) -> None:
    """What cannot be said is tried again a few times; what was done is done once, and the bot goes on."""
    scene.server.send_faults = faults
    scene.comes("/pause a")
    scene.lives(60, lambda: scene.comes("/pause b"))
    assert len(scene.asked) == 2
    assert len(scene.texts()) == 1 + heard


def test_fault_of_ours(scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A fault in one command is the end of that command."""

    async def breaks(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(scene, "ask", breaks)
    scene.comes("/pause a")
    scene.comes("/help")
    scene.lives(10)
    wrong, fine = scene.texts()
    assert wrong == "Something is wrong here: it is in the log of the daemon."
    assert fine.startswith("You may operate.")
    assert "ZeroDivisionError" in caplog.text


# Numbers.


def test_numbers_begin_anew(scene: Scene) -> None:
    """After a week of silence Telegram counts from somewhere else, perhaps below: what comes then is done."""
    scene._number = 5000
    scene.comes("/pause a")
    scene.lives(10)

    def below() -> None:
        scene.passes(7 * DAY)
        scene._number = 10
        scene.comes("/pause b")

    scene.lives(100, below)
    assert len(scene.asked) == 2


def test_numbers_count(scene: Scene) -> None:
    """Within that time it does not, and what is below was done."""
    scene._number = 5000
    scene.comes("/pause a")

    def below() -> None:
        scene.passes(5 * DAY)
        scene._number = 10
        scene.server.deaf = True
        scene.comes("/pause b")

    scene.lives(100, below)
    assert len(scene.asked) == 1


def test_another_bot(scene: Scene) -> None:
    """Each bot has its own numbers; a record that cannot be read is none."""
    key = Key("telegram", "fleet", "1")
    scene.comes("/pause a")
    scene.lives(10)
    assert key in scene.store.states("telegram")
    assert Inbox(scene.governor, "2").open().next == 0
    assert Inbox(scene.governor, "1").open().next == 2

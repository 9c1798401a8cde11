"""The bot with the real library, and true traffic to a server that speaks Telegram's protocol."""

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from flyball.config.telegram import Telegram, TelegramUser
from flyball.control.context import Args, Caller, CommandError
from flyball.control.telegram import polling
from flyball.control.telegram.bot import TelegramBot
from flyball.core.codec import decode_body
from flyball.core.event import Ordered
from flyball.governor import Governor
from flyball.store.memory import MemoryStore
from tests.servers.telegram import TOKEN, BotApi

ANN, BOB, EVE = 100, 200, 666
GROUP = -1001
WAIT_MAX = 20.0
SECRET = TOKEN.partition(":")[2]


@pytest.fixture
def api() -> Iterator[BotApi]:
    with BotApi(chats=(ANN, BOB, EVE, GROUP)) as server:
        yield server


class Stage:
    """A bot, and what it had done."""

    def __init__(self, api: BotApi, **settings: Any) -> None:
        self.api = api
        self.governor = Governor((), MemoryStore())
        users = (TelegramUser(id=ANN, role="operate", name="ann"), TelegramUser(id=BOB, role="look"))
        given: dict[str, Any] = {"token": TOKEN, "base_url": api.url, "users": users, "chats": (GROUP,), **settings}
        self.settings = Telegram(**given)
        self.asked: list[tuple[Caller, str, Args]] = []

    async def ask(self, caller: Caller, verb: str, args: Args) -> Any:
        self.asked.append((caller, verb, args))
        if args.get("units") == ["broken"]:
            raise CommandError("unknown_unit", f"no unit <{TOKEN}>", remedy="Look & see.")
        if args.get("dry_run"):
            return {"cleared": [{"unit": "a & b", "failures": [{"error": "<E>", "count": 6}]}]}
        return {"units": [{"name": name, "state": "paused"} for name in args.get("units", ())]}

    async def until(self, there: Callable[[], object], what: str) -> None:
        give_up = time.monotonic() + WAIT_MAX
        while not there():
            assert time.monotonic() < give_up, (what, self.api.messages(), self.api.calls[-5:])
            await asyncio.sleep(0.01)

    async def answers(self, count: int = 1, chat: int = ANN) -> list[str]:
        """What the bot wrote in a chat, when it wrote so much."""
        await self.until(lambda: len(self.api.messages(chat)) >= count, f"{count} messages")
        return [message.text for message in self.api.messages(chat)]

    def run(self, life: Callable[[TelegramBot], Awaitable[None]]) -> TelegramBot:
        """A bot lives while this goes on."""

        async def main() -> TelegramBot:
            bot = TelegramBot(self.settings, self.ask, self.governor)
            bot.start()
            try:
                await life(bot)
            finally:
                await bot.stop()
                assert not bot._thread.is_alive()
            return bot

        return asyncio.run(main())


@pytest.fixture
def stage(api: BotApi) -> Stage:
    return Stage(api)


def test_a_command(stage: Stage) -> None:
    """What somebody writes is done in the daemon's loop, as them, and answered where they wrote it."""

    async def life(_: TelegramBot) -> None:
        stage.api.says("/pause shop")
        assert await stage.answers() == ["Done: pause.\nshop is paused"]

    stage.run(life)
    ((caller, verb, args),) = stage.asked
    assert (caller.who, caller.channel, caller.right.name) == ("telegram:ann", "telegram", "OPERATE")
    assert (verb, args) == ("pause", {"units": ["shop"]})
    assert stage.api.messages(ANN)[0].raw == "Done: pause.\n<b>shop</b> is paused"


def test_menu(stage: Stage) -> None:
    """Telegram is told what to complete; a command with a hyphen is none to it, and understood all the same."""

    async def life(_: TelegramBot) -> None:
        await stage.until(lambda: stage.api.commands, "the menu")
        stage.api.says("/reset-all")
        await stage.answers()

    stage.run(life)
    assert {"command": "reset_all", "description": "forget all failures; asks back"} in stage.api.commands
    assert stage.api.messages(ANN)[0].text.startswith("Forget 1 kind of failures of 1 unit")


def test_confirmation(stage: Stage) -> None:
    """A yes is pressed: the question becomes what came of it, and the buttons are gone. Bob could not press it."""

    async def life(_: TelegramBot) -> None:
        stage.api.says("/reset_all", chat=GROUP)
        await stage.answers(chat=GROUP)
        (question,) = stage.api.messages(GROUP)
        assert question.text == "Forget 1 kind of failures of 1 unit, and lift their quarantines?\na & b: <E> 6 times"
        stage.api.taps(question, 0, user=BOB)
        await stage.until(lambda: stage.api.taps_answered, "an answer")
        assert stage.api.taps_answered[0]["text"] == "Only who asked may press this."
        assert [args for _, _, args in stage.asked if not args.get("dry_run")] == []
        stage.api.taps(question, 0, user=ANN)
        await stage.until(lambda: question.edits, "another text")
        assert not question.buttons
        assert question.text == "Done: reset."

    stage.run(life)
    assert stage.asked[-1][1:] == ("reset", {"all": True})


def test_stranger(stage: Stage) -> None:
    """Who is not listed is told so once, and is on the audit trail."""

    async def life(_: TelegramBot) -> None:
        for _times in range(3):
            stage.api.says("/pause shop", user=EVE)
        stage.api.says("/help")
        await stage.answers()
        assert await stage.answers(chat=EVE) == ["You are not listed here. Your id is 666."]

    stage.run(life)
    assert stage.asked == []
    (entry,) = stage.governor.store.entries(events=["ordered"])
    ordered = decode_body(entry.body).event
    assert isinstance(ordered, Ordered)
    assert (ordered.by, ordered.channel, ordered.asked, ordered.refused) == (
        "telegram:666",
        "telegram",
        "/pause shop",
        "not_listed",
    )


def test_old_commands(stage: Stage) -> None:
    """What was written while nobody listened is not done, and told once; so is what was pressed."""

    async def ask_back(_: TelegramBot) -> None:
        stage.api.says("/reset_all")
        await stage.answers()

    stage.run(ask_back)
    stage.api.says("/pause a", at=time.time() - 3600)
    stage.api.says("/pause b", at=time.time() - 90)
    stage.api.taps(stage.api.messages(ANN)[0], 0)

    async def life(_: TelegramBot) -> None:
        told = (await stage.answers(2))[1]
        assert told.splitlines()[0] == "Not done, because it came more than 1 min late or while I was away:"
        assert "• /pause a, 1 h ago" in told
        assert "• /pause b, 1 min 3" in told
        assert "• a button" in told
        stage.api.says("/pause c")
        await stage.answers(3)

    stage.run(life)
    assert [args for _, verb, args in stage.asked if verb == "pause"] == [{"units": ["c"]}]


def test_forwarded(stage: Stage) -> None:
    """What somebody forwards is not their own order."""
    with stage.api._lock:
        stage.api.says("/pause a")
        origin = {"type": "hidden_user", "sender_user_name": "eve", "date": 1}
        stage.api._updates[-1]["message"]["forward_origin"] = origin

    async def life(_: TelegramBot) -> None:
        stage.api.says("/help")
        await stage.answers()

    stage.run(life)
    assert stage.asked == []


def test_other_updates(stage: Stage) -> None:
    """Pictures, people who join, edited commands: nothing that a bot has to do with, and nothing that it dies of."""
    stage.api.says("/pause a")
    with stage.api._lock:
        del stage.api._updates[-1]["message"]["text"]
        edited = {**stage.api._updates[-1]["message"], "text": "/pause b", "edit_date": int(time.time())}
        stage.api._updated({"edited_message": edited})

    async def life(_: TelegramBot) -> None:
        stage.api.says("/help")
        await stage.answers()

    stage.run(life)
    assert stage.asked == []


# What goes wrong.


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not long between attempts."""
    monkeypatch.setattr(polling, "FIRST_WAIT", 0.02)
    monkeypatch.setattr(polling, "LONGEST_WAIT", 0.1)


Breaks = Callable[[BotApi], None]
FAULTS: dict[str, tuple[Breaks, str]] = {
    "conflict": (
        lambda api: api.fails(409, "Conflict: terminated by other getUpdates request", method="getUpdates", times=9),
        "another program listens with this bot's token",
    ),
    "unauthorized": (
        lambda api: api.fails(401, "Unauthorized", method="getUpdates", times=9),
        "does not know this bot's token",
    ),
    "too many": (
        lambda api: api.fails(429, "Too Many Requests: retry after 1", method="getUpdates", times=3, retry_after=1),
        "asks to be left alone: Flood control exceeded",
    ),
    "down": (lambda api: api.fails(502, "Bad Gateway", method="getUpdates", times=9), "cannot be reached: Bad Gateway"),
    "dropped": (lambda api: api.drops("getUpdates", times=9), "cannot be reached: httpx.RemoteProtocolError"),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str, stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is wrong is told where people look and once in the log; when it is over, so is the trouble, and
    commands are done. The token is in neither."""
    breaks, says = FAULTS[name]
    caplog.set_level(logging.INFO, "flyball")
    breaks(stage.api)

    async def life(bot: TelegramBot) -> None:
        await stage.until(lambda: says in bot.trouble, says)
        assert SECRET not in bot.trouble
        await stage.until(lambda: not bot.trouble, "no trouble")
        stage.api.says("/help")
        await stage.answers()

    stage.run(life)
    assert sum(says in record.message for record in caplog.records) == 1
    assert SECRET not in caplog.text


@pytest.mark.usefixtures("quick")
def test_another_bot_listens(stage: Stage) -> None:
    """Two bots with one token: both are told off by turns, and say so."""

    async def life(bot: TelegramBot) -> None:
        other = TelegramBot(stage.settings, stage.ask, Governor((), MemoryStore()))
        other.start()
        try:
            await stage.until(lambda: "another program" in bot.trouble + other.trouble, "a conflict")
        finally:
            await other.stop()
        await stage.until(lambda: not bot.trouble, "no conflict")

    stage.run(life)


@pytest.mark.usefixtures("quick")
def test_server_is_gone_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """A bot that nobody answers waits, and goes on when there is somebody; what it is told says no secret."""
    with BotApi() as gone:
        stage = Stage(gone)

    async def life(bot: TelegramBot) -> None:
        await stage.until(lambda: bot.trouble, "a trouble")
        assert "Telegram cannot be reached: httpx.ConnectError" in bot.trouble

    bot = stage.run(life)
    assert SECRET not in bot.trouble + caplog.text
    assert TOKEN not in repr(stage.settings)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("code", "text", "more", "heard"),
    [
        (429, "Too Many Requests: retry after 1", {"retry_after": 1}, True),
        (500, "Internal Server Error", {}, True),
        (403, "Forbidden: bot was blocked by the user", {}, False),
        (400, "Bad Request: chat not found", {}, False),
    ],
)
def test_answer_is_refused(code: int, text: str, more: dict[str, int], heard: bool, stage: Stage) -> None:
    """An answer that Telegram does not take now is said again; one that it never takes is given up. The command is done
    once."""
    stage.api.fails(code, text, method="sendMessage", **more)

    async def life(_: TelegramBot) -> None:
        stage.api.says("/pause a")
        stage.api.says("/pause b")
        await stage.answers(1 + heard)
        await stage.until(lambda: len(stage.asked) == 2, "both")

    stage.run(life)
    assert len(stage.api.messages(ANN)) == 1 + heard


def test_error_with_a_secret(stage: Stage) -> None:
    """Whatever is said has no token in it, and what looks like a tag is none."""

    async def life(_: TelegramBot) -> None:
        stage.api.says("/pause broken")
        assert await stage.answers() == ["Not done: no unit <***>\nLook & see."]

    stage.run(life)


def test_comes_again(stage: Stage) -> None:
    """What Telegram delivers once more after a restart is not done again."""
    stage.api.says("/pause a")
    with stage.api._lock:
        again = dict(stage.api._updates[-1])

    async def life(_: TelegramBot) -> None:
        await stage.answers()

    stage.run(life)
    with stage.api._lock:
        stage.api._updates.insert(0, again)

    async def other(_: TelegramBot) -> None:
        stage.api.says("/pause b")
        await stage.answers(2)

    stage.run(other)
    assert [args["units"] for _, _, args in stage.asked] == [["a"], ["b"]]


def test_not_installed(stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Without the library there is no bot; it is said what to install."""
    monkeypatch.delitem(sys.modules, "flyball.control.telegram.api", raising=False)
    monkeypatch.setitem(sys.modules, "telegram", None)

    async def life(bot: TelegramBot) -> None:
        await stage.until(lambda: bot.trouble, "a trouble")

    assert "pip install 'flyball-governor[telegram]'" in stage.run(life).trouble
    assert "pip install" in caplog.text


def test_stops_at_once(stage: Stage) -> None:
    """A bot that waits for news, or for a verb, does not hold up the end of the daemon."""

    async def never(caller: Caller, verb: str, args: Args) -> Any:
        stage.asked.append((caller, verb, args))
        await asyncio.Event().wait()

    stage.ask = never  # type: ignore[method-assign]  # a daemon that is busy
    took: list[float] = []

    async def life(_: TelegramBot) -> None:
        stage.api.says("/pause a")
        await stage.until(lambda: stage.asked, "a question")
        took.append(time.monotonic())

    stage.run(life)
    assert time.monotonic() - took[0] < 4.0

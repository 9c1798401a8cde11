"""Commands by Telegram: what a person writes on a phone has its effect, and nothing else has."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from flyball.config.telegram import Telegram, TelegramUser
from flyball.control.commands import perform
from flyball.control.context import Args, Caller
from flyball.control.telegram.bot import TelegramBot
from flyball.core.codec import decode_body
from flyball.core.event import Booted, Ordered
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene
from tests.servers.telegram import TOKEN, BotApi, Message

ANN, EVE = 100, 666
PRINT = "abcdef0123456789"


class Phone:
    """Ann's phone, the bot, and the fleet behind it."""

    def __init__(self, api: BotApi) -> None:
        self.api = api
        self.scene = Scene(MemoryStore())
        users = (TelegramUser(id=ANN, role="operate", name="ann"),)
        self._settings = Telegram(token=TOKEN, base_url=api.url, users=users)

    async def _ask(self, caller: Caller, verb: str, args: Args) -> Any:
        context = self.scene.context(who=caller.who, channel=caller.channel, right=caller.right)
        return perform(context, verb, args)

    def says(self, text: str, *, user: int = ANN, presses: str = "") -> Message:
        """The answer to that; if something is pressed then, what has become of it."""

        async def life() -> Message:
            bot = TelegramBot(self._settings, self._ask, self.scene.governor)
            bot.start()
            try:
                before = len(self.api.messages(user))
                self.api.says(text, user=user)
                await asyncio.to_thread(self.api.wait, lambda: len(self.api.messages(user)) > before)
                answer = self.api.messages(user)[before]
                if presses:
                    self.api.taps(answer, presses)
                    await asyncio.to_thread(self.api.wait, lambda: bool(answer.edits))
                return answer
            finally:
                await bot.stop()

        return asyncio.run(life())

    def state(self, unit: str) -> str:
        return str(perform(self.scene.context(), "unit", {"unit": unit}).state)

    def fleet(self) -> str:
        return str(perform(self.scene.context(), "status", {})["fleet"].state)


@pytest.fixture
def phone() -> Iterator[Phone]:
    with BotApi(chats=(ANN, EVE)) as api:
        yield Phone(api)


def test_reset_of_one_failure(phone: Phone) -> None:
    """S0-37, S0-41: `/reset <fingerprint>` by Telegram lifts the quarantine of that failure, and of no other."""
    phone.scene.quarantine("a", PRINT)
    phone.scene.quarantine("b", "1234567812345678")
    phone.scene.at(0)
    assert phone.says("/reset abcdef").text.startswith("Done: reset.")
    assert (phone.state("a"), phone.state("b")) == ("healthy", "quarantined")


@pytest.mark.parametrize("text", ["/reset-all", "/reset_all"])
def test_reset_of_everything(text: str, phone: Phone) -> None:
    """S0-38, S0-41: `/reset-all` forgets all, with caution: it asks with the count, and does nothing before a yes."""
    for unit in ("a", "b"):
        phone.scene.quarantine(unit)
    phone.scene.at(0)
    assert phone.says(text).text.startswith("Forget 2 kinds of failures of 2 units, and lift their quarantines?")
    assert (phone.state("a"), phone.state("b")) == ("quarantined", "quarantined")
    assert phone.says(text, presses="Yes, reset 2 units").text.startswith("Done: reset.")
    assert "quarantined" not in (phone.state("a"), phone.state("b"))


def test_status(phone: Phone) -> None:
    """S0-39, S0-41: `/status` lists what is quarantined, and for what."""
    phone.scene.quarantine("a", PRINT)
    phone.scene.start("b")
    phone.scene.at(0)
    text = phone.says("/status").text
    assert "a quarantined\nexit 3, 6 times (abcdef01)" in text
    assert "b quarantined" not in text


def test_resume(phone: Phone) -> None:
    """S0-40, S0-41: `/resume` ends the pause of a fleet that a restart storm caused."""
    for number in range(11):
        phone.scene.fail(f"u{number}", f"{number:016x}")
    phone.scene.governor.submit(Booted(holder="h", units=11))
    assert phone.fleet() == "paused"
    assert phone.says("/resume").text.startswith("Done: resume.")
    assert phone.fleet() == "running"


def test_only_who_is_listed(phone: Phone) -> None:
    """S0-41: commands of others have no effect; who tried is written down."""
    phone.scene.quarantine("a", PRINT)
    assert phone.says("/reset abcdef", user=EVE).text == "You are not listed here. Your id is 666."
    assert phone.state("a") == "quarantined"
    (entry,) = phone.scene.governor.store.entries(events=["ordered"])
    ordered = decode_body(entry.body).event
    assert isinstance(ordered, Ordered)
    assert (ordered.by, ordered.channel, ordered.refused) == ("telegram:666", "telegram", "not_listed")

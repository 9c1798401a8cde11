"""How the bot listens: one update after the other, each once, and for as long as there is a daemon.

Whatever Telegram or the network does, it goes on: it waits longer each time, says what is wrong where people look, and
says so in the log once. What came while nobody listened is not done, because nobody knows whether it is still meant.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from flyball.control.telegram import words
from flyball.control.telegram.faults import ApiError, Fault
from flyball.control.telegram.inbox import Inbox
from flyball.control.telegram.messages import Pressed, Reply, Said, Update
from flyball.control.telegram.strangers import Strangers
from flyball.control.telegram.talk import MENU, Person, Talk
from flyball.control.text import one_line
from flyball.errors import FlyballError

log = logging.getLogger(__name__)

FIRST_WAIT: Final = 0.5
LONGEST_WAIT: Final = 60.0
"""Seconds between attempts: the first, then twice as long each time, up to this."""
ASKED_TO_WAIT_MAX: Final = 300.0
"""Seconds that Telegram may ask to be left alone for."""
SILENT: Final = 2
"""Failures in a row that are nobody's business: a network does that."""
ATTEMPTS_MAX: Final = 3
"""To say something. Then it is in the log alone."""
DOING_MAX: Final = 200
"""Characters of a command that are kept while it is done."""
DROPPED_MAX: Final = 100
"""Commands that came too late and are remembered until they are told, in each chat."""


class Api(Protocol):
    """What is needed of Telegram."""

    async def name(self) -> str: ...
    async def offer(self, commands: Sequence[tuple[str, str]]) -> None: ...
    async def news(self, after: int | None, *, wait: bool) -> list[Update]: ...
    async def send(self, chat: int, reply: Reply) -> None: ...
    async def edit(self, chat: int, number: int, reply: Reply) -> None: ...
    async def answer(self, press: str, toast: str) -> None: ...


Tell = Callable[[str], None]
Audit = Callable[[str, str], Awaitable[None]]
"""Writes down that somebody was refused: who, and what was asked."""


class Polling:
    """Listens, has things done, and answers."""

    def __init__(
        self,
        *,
        api: Api,
        talk: Talk,
        inbox: Inbox,
        people: Mapping[int, Person],
        chats: frozenset[int],
        stale_after: float,
        trouble: Tell,
        audit: Audit,
        clock: Callable[[], float],
        full: int,
    ) -> None:
        self._api, self._talk, self._inbox = api, talk, inbox
        self._people, self._chats = people, chats
        self._stale_after = stale_after
        self._trouble, self._audit = trouble, audit
        self._clock = clock
        self._full = full
        """So many updates at once: there are more."""
        self._strangers = Strangers()
        self._dropped: dict[int, dict[int, tuple[str, float]]] = {}
        """What came too late, by chat and number: its words, and how old it was (-1: nobody knows)."""
        self._listened: float | None = None
        """When the last answer came with which there was nothing left; None: none yet."""
        self._ending = False
        self.is_busy = False
        """Something is being done."""

    def end(self) -> None:
        """Do nothing more than what is being done."""
        self._ending = True

    async def run(self) -> None:
        """Listen until it is cancelled, or told to end."""
        await self._begin()
        failures = 0
        while not self._ending:
            # Telegram does not say when a button was pressed: not before the last time that nothing was left. What has
            # gathered since is taken first, without waiting for more: so what comes then is known to be new. After a
            # fault it is not waited either: so it is soon known that it is over.
            late = self._listened is None or self._clock() - self._listened > self._stale_after
            try:
                updates = await self._api.news(self._inbox.next, wait=not (late or failures))
                fresh = await self._handle(updates, late=late)
            except ApiError as error:
                failures += 1
                await asyncio.sleep(self._failed(error, failures))
                continue
            except FlyballError as error:
                # Nothing can be kept, so nothing may be done.
                failures += 1
                self._trouble(f"Telegram: what is asked for cannot be noted, so nothing is done: {error}")
                await asyncio.sleep(_wait(failures))
                continue
            if failures > SILENT:
                log.info("Telegram answers again")
            failures = 0
            self._trouble("")
            if len(updates) < self._full:
                self._listened = self._clock()
                await self._tell_dropped()
            if updates and not fresh:
                await asyncio.sleep(FIRST_WAIT)  # it says the same again and again: that must not be asked for at once

    async def _begin(self) -> None:
        """Say what was interrupted, and what there is to say. None of it has to work."""
        left = self._inbox.open()
        if left.doing:
            await self._say(left.chat, Reply(words.interrupted(left.doing)))
            await self._inbox.done()
        try:
            self._talk.me = await self._api.name()
            await self._api.offer(MENU)
        except ApiError as error:
            log.info("Telegram: %s", error)

    def _failed(self, error: ApiError, failures: int) -> float:
        """Say what is wrong; the seconds to wait."""
        match error.fault:
            case Fault.CONFLICT:
                self._trouble(f"Telegram: another program listens with this bot's token ({error}). End it.")
            case Fault.TOKEN:
                self._trouble(
                    f"Telegram does not know this bot's token ({error}). Check `telegram.token`, then reload."
                )
            case Fault.WAIT:
                if failures > SILENT:
                    self._trouble(f"Telegram asks to be left alone: {error}")
                return min(max(error.after, FIRST_WAIT), ASKED_TO_WAIT_MAX)
            case _:
                if failures > SILENT:
                    self._trouble(f"Telegram cannot be reached: {error}")
        return _wait(failures)

    # Updates.

    async def _handle(self, updates: Sequence[Update], *, late: bool) -> bool:
        """Each in its turn, and once; whether any of them was new."""
        fresh, passed = False, None
        for update in sorted(updates, key=lambda one: one.number):
            if self._ending:
                break
            if self._inbox.handled(update.number):
                continue
            fresh, passed = True, update.number
            if isinstance(update, Said | Pressed) and await self._heeds(update):
                if self._is_stale(update, late=late):
                    continue
                self.is_busy = True
                await self._do(update)
                self.is_busy = False
                passed = None
        if passed is not None:
            await self._inbox.claim(passed)
        return fresh

    async def _heeds(self, update: Said | Pressed) -> bool:
        """Whether it is for us, and from somebody who is listed; whoever is not is told."""
        if isinstance(update, Said):
            command = self._talk.is_for_me(update.text)
            if not update.own or not (command or update.private):
                return False
        listed, here = update.sender in self._people, update.private or update.chat in self._chats
        if listed and here:
            return True
        if self._strangers.is_news(update.sender, self._clock()):
            asked = one_line(update.text if isinstance(update, Said) else "a button")[:DOING_MAX]
            await self._audit(f"telegram:{update.sender}", asked)
            if not listed and (here or update.private):
                await self._say(update.chat, Reply(f"You are not listed here. Your id is {update.sender}."))
            elif listed:
                await self._say(update.chat, Reply(f"I do not listen in this chat. Its id is {update.chat}."))
        if isinstance(update, Pressed):
            await self._toast(update, "You are not listed here.")
        return False

    def _is_stale(self, update: Said | Pressed, *, late: bool) -> bool:
        """Whether it came too late to be done; then it is remembered, to be told."""
        if isinstance(update, Said):
            age = self._clock() - update.at
            if age <= self._stale_after:
                return False
            what = one_line(update.text)
        else:
            if not late:
                return False
            age, what = -1.0, "a button"
        kept = self._dropped.setdefault(update.chat, {})
        if len(kept) < DROPPED_MAX:
            kept[update.number] = (what, age)
        return True

    async def _tell_dropped(self) -> None:
        """Say once what was not done."""
        dropped, self._dropped = self._dropped, {}
        for chat, kept in dropped.items():
            log.info("Telegram: %d commands came too late in chat %d, and were not done", len(kept), chat)
            await self._say(chat, Reply(words.dropped(list(kept.values()), self._stale_after)))

    async def _do(self, update: Said | Pressed) -> None:
        """Note it, do it, answer."""
        doing = one_line(update.text if isinstance(update, Said) else "a button")[:DOING_MAX]
        await self._inbox.claim(update.number, update.chat, doing)
        person = self._people[update.sender]
        try:
            if isinstance(update, Said):
                await self._say(update.chat, await self._talk.said(update, person, self._clock()))
            else:
                await self._press(update, person)
        except FlyballError as error:
            await self._say(update.chat, Reply(words.error(str(error), error.remedy)))
        except Exception:  # a fault of ours is the end of this command, and not of listening
            log.exception("Telegram: %s", doing)
            await self._say(update.chat, Reply("Something is wrong here: it is in the log of the daemon."))
        await self._inbox.done()

    async def _press(self, update: Pressed, person: Person) -> None:
        outcome = await self._talk.pressed(update, person, self._clock())
        await self._toast(update, outcome.toast)
        if outcome.edit is not None and not await self._edit(update, outcome.edit):
            await self._say(update.chat, outcome.edit)
        for reply in outcome.replies:
            await self._say(update.chat, reply)

    # Answers.

    async def _say(self, chat: int, reply: Reply) -> bool:
        return await self._tried(f"chat {chat}", lambda: self._api.send(chat, reply))

    async def _edit(self, update: Pressed, reply: Reply) -> bool:
        return await self._tried(f"chat {update.chat}", lambda: self._api.edit(update.chat, update.message, reply))

    async def _toast(self, update: Pressed, text: str) -> bool:
        return await self._tried("a button", lambda: self._api.answer(update.press, words.toast(text)))

    async def _tried(self, where: str, work: Callable[[], Awaitable[None]]) -> bool:
        """Try a few times. What cannot be said is in the log: what was done is done all the same."""
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                await work()
            except ApiError as error:
                if error.fault is Fault.REFUSED or attempt == ATTEMPTS_MAX:
                    log.warning("Telegram: nothing could be said in %s: %s", where, error)
                    return False
                await asyncio.sleep(min(max(error.after, _wait(attempt)), LONGEST_WAIT))
            else:
                return True
        return False


def _wait(failures: int) -> float:
    return min(FIRST_WAIT * 2.0 ** min(failures - 1, 30), LONGEST_WAIT)

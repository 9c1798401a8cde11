"""The bot in a daemon: a thread with a loop of its own, so that neither the network nor a library ever delays a unit.

Verbs cross over to the daemon's loop. A bot that cannot be is no reason for a daemon not to be: it is told where people
look.
"""

import asyncio
import contextlib
import logging
import threading
import time
from typing import Any, Final

from flyball.config.telegram import Telegram
from flyball.control.context import Args, Caller, Right
from flyball.control.telegram.inbox import Inbox
from flyball.control.telegram.polling import Polling
from flyball.control.telegram.talk import Ask, Person, Talk
from flyball.core.event import Ordered
from flyball.errors import StoreError
from flyball.governor import Governor

log = logging.getLogger(__name__)

FINISHES_WITHIN: Final = 2.0
"""Seconds for the command that is being done. The next bot says that it was interrupted, if it was."""
LOOK_EVERY: Final = 0.02
"""Seconds between looks whether it is."""
ENDS_WITHIN: Final = 5.0
"""Seconds: longer than to let go of a connection. Who is not done by then ends with the process."""
MISSING: Final = (
    "the Telegram bot needs python-telegram-bot, which is not installed: pip install 'flyball-governor[telegram]'"
)


class TelegramBot:
    """Listens from `start` to `stop`."""

    def __init__(self, settings: Telegram, ask: Ask, governor: Governor) -> None:
        """To be made in the daemon's loop, in which it asks."""
        self.settings = settings
        self.trouble = ""
        """Why nobody is heard; nothing if they are. Read from any thread."""
        self._ask, self._governor = ask, governor
        self._daemon = asyncio.get_running_loop()
        self._own = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._polling: Polling | None = None
        self._thread = threading.Thread(target=self._live, name="telegram", daemon=True)

    def start(self) -> None:
        """Begin to listen; returns at once."""
        self._thread.start()

    async def stop(self) -> None:
        """End. What is being done has a moment to come to its answer."""
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._own.call_soon_threadsafe(self._end, self._own.time() + FINISHES_WITHIN)
        await asyncio.to_thread(self._thread.join, ENDS_WITHIN)

    def _end(self, at: float) -> None:
        """In its own loop: now if it waits, otherwise when it is done, and at that time in any case."""
        if self._polling is not None:
            self._polling.end()
            if self._polling.is_busy and self._own.time() < at:
                self._own.call_later(LOOK_EVERY, self._end, at)
                return
        if self._task is not None:
            self._task.cancel()

    def _live(self) -> None:
        """In its own thread."""
        with contextlib.closing(self._own), contextlib.suppress(asyncio.CancelledError):
            self._task = self._own.create_task(self._run())
            self._own.run_until_complete(self._task)

    async def _run(self) -> None:
        try:
            await self._listen()
        except ImportError:
            self._troubled(MISSING)
        except Exception as error:  # a fault of ours is the end of the bot, and not of the daemon
            log.exception("the Telegram bot ended")
            self._troubled(f"the Telegram bot ended by a fault: {type(error).__name__}; see the daemon's log")

    async def _listen(self) -> None:
        from flyball.control.telegram.api import UPDATES_MAX, Api  # noqa: PLC0415 - an extra, and 25 MB

        settings = self.settings
        people = {
            user.id: Person(f"telegram:{user.name or user.id}", Right[user.role.upper()]) for user in settings.users
        }
        async with Api(settings.token, settings.base_url) as api:
            self._polling = Polling(
                api=api,
                talk=Talk(self._asked),
                inbox=Inbox(self._governor, settings.token.partition(":")[0]),
                people=people,
                chats=frozenset(settings.chats),
                stale_after=settings.stale_after,
                trouble=self._troubled,
                audit=self._refused,
                clock=time.time,
                full=UPDATES_MAX,
            )
            await self._polling.run()

    def _troubled(self, text: str) -> None:
        """Say it where people look; in the log once."""
        if text and text != self.trouble:
            log.warning("%s", text)
        self.trouble = text

    async def _asked(self, caller: Caller, verb: str, args: Args) -> Any:
        """Have the daemon do it."""
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(_awaited(self._ask, caller, verb, args), self._daemon)
        )

    async def _refused(self, who: str, asked: str) -> None:
        """Somebody who is not listed asked for something."""
        ordered = Ordered(verb="telegram", by=who, channel="telegram", asked=asked, refused="not_listed")
        try:
            await asyncio.to_thread(self._governor.submit, ordered)
        except StoreError as error:
            log.error("not on the audit trail: %s was refused: %s", who, error)


async def _awaited(ask: Ask, caller: Caller, verb: str, args: Args) -> Any:
    """As a coroutine: nothing else crosses to another loop."""
    return await ask(caller, verb, args)

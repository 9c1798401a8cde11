"""What was handled already, kept in the store: a command is done at most once, also over a kill -9.

Before anything is done, the store knows that it was begun. Whoever dies in between leaves a command that may or may not
have been done: the next one does not do it again, and says so to whoever asked. The other order, doing before noting,
would pause or reset twice; a person can look and repeat, but cannot take back.
"""

import asyncio
from typing import Final

import msgspec

from flyball.core.policy import Key
from flyball.core.time import DAY, Instant, Span
from flyball.governor import Governor
from flyball.store import Draft, Snapshot

POLICY: Final = "telegram"
"""The name of its record; no policy has it."""
NUMBERS_LAST: Final[Span] = 6 * DAY
"""After a week without anything, Telegram begins to count anew, perhaps below. What came before that it has forgotten
by then: it keeps things for a day."""


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far it is."""

    next: int = 0
    """The number of the next update: all below it were handled."""
    at: Instant = 0
    """When the last one was."""
    doing: str = ""
    """What was begun, and has not ended."""
    chat: int = 0
    """Where that was said."""


class Inbox:
    """The mark of one bot."""

    def __init__(self, governor: Governor, bot: str) -> None:
        self._governor = governor
        self._key = Key(POLICY, "fleet", bot)
        self._mark = Mark()

    def open(self) -> Mark:
        """Read what is kept: what a bot before this one left."""
        found = self._governor.store.read([self._key]).records.get(self._key)
        if found is not None:
            try:
                self._mark = msgspec.json.decode(found, type=Mark)
            except msgspec.MsgspecError:
                self._mark = Mark()
        return self._mark

    @property
    def next(self) -> int | None:
        """The number to ask for; None: whatever there is."""
        return self._mark.next if self._mark.next and self._counts else None

    def handled(self, number: int) -> bool:
        """Whether that update was."""
        return self._counts and number < self._mark.next

    async def claim(self, number: int, chat: int = 0, doing: str = "") -> None:
        """Handle that one, and nobody does again. It is on the disk before this returns."""
        await self._write(Mark(number + 1, self._governor.clock.now(), doing, chat), sync=True)

    async def done(self) -> None:
        """What was begun has ended."""
        await self._write(Mark(self._mark.next, self._mark.at), sync=False)

    @property
    def _counts(self) -> bool:
        return self._governor.clock.now() - self._mark.at < NUMBERS_LAST

    async def _write(self, mark: Mark, *, sync: bool) -> None:
        def draft(snapshot: Snapshot) -> Draft:
            return Draft(max(self._governor.clock.now(), snapshot.at), {self._key: msgspec.json.encode(mark)}, None)

        await asyncio.wrap_future(self._governor.store.transact_soon([self._key], draft, sync=sync))
        self._mark = mark

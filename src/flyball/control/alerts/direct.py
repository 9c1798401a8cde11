"""What people are told when the store itself cannot be used: messages wait in an outbox that is in it, so this one goes
to the channels directly. As well as it can: once for each outage, and once when it is over.

That it was told is noted in a file, so that a daemon that was started anew meanwhile, as a host is whose lease ran out,
knows what it owes. Where the disk is what is full, that is known in memory alone.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from flyball.config.alerts import Alerts
from flyball.control.alerts.channel import TEXT_MAX, Channel, ChannelError, Message
from flyball.control.alerts.notices import KINDS, Notice
from flyball.control.alerts.quiet import channels_for, is_held_back
from flyball.core.time import SECOND, Instant, Span, format_span

log = logging.getLogger(__name__)

KIND: Final = "store_away"
FILE: Final = "store-away"
"""The name of that file, in the state folder."""
LOOK_EVERY: Final = 0.5
"""Seconds between looks."""
AWAY_FOR: Final[Span] = 3 * SECOND
"""It has to be away for so long: what is shorter is a hiccup."""
OF_LEASE: Final = 5
"""Of a host the fifth part of its lease, if that is shorter: after three of them it ends, and tells no more."""
BACK_FOR: Final[Span] = 5 * SECOND
"""It has to be back for so long: what fails again before that is the same outage."""
SEND_MAX: Final = 15.0
"""Seconds for one message. Nobody waits for more, and there may be no later."""


class Told(msgspec.Struct, frozen=True):
    """An outage that people were told of."""

    since: Instant
    ids: dict[str, str]
    """By channel, the id by which its message can be changed."""


class Direct:
    """Watches whether the store can be used. From the loop only."""

    def __init__(
        self,
        settings: Alerts,
        channels: Mapping[str, Channel],
        turns: Mapping[str, asyncio.Lock],
        *,
        trouble: Callable[[], str],
        clock: Callable[[], Instant],
        folder: Path | None = None,
        who: str = "",
        lease: Span = 0,
        every: float = LOOK_EVERY,
    ) -> None:
        """`turns`: each channel is used by one task at a time. `trouble` says why the store cannot be used; nothing: it
        can be. `who` tells, and with which lease, if it is one of several hosts. `every` so many seconds it looks."""
        self._settings, self._channels, self._turns = settings, channels, turns
        self._trouble, self._clock, self._who, self._every = trouble, clock, who, every
        self._file = folder / FILE if folder is not None else None
        self._away_for = min(AWAY_FOR, lease // OF_LEASE) if lease else AWAY_FOR
        self._told = self._read()
        self._since: Instant | None = None
        """Since when it is other than people were told."""

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                await self.look()
            except Exception:  # a fault of ours must not keep people from being told the next time
                log.exception("whether the store can be used could not be told")
            await asyncio.sleep(self._every)

    async def look(self) -> None:
        """Tell people what is so for long enough, and what they were not told yet."""
        why, now = self._trouble(), self._clock()
        if bool(why) == (self._told is not None):
            self._since = None
            return
        self._since = now if self._since is None else self._since
        if now - self._since < (self._away_for if why else BACK_FOR):
            return
        since, self._since = self._since, None
        if not why:
            await self.tell_back(since)
            return
        self._told = Told(since, {})
        self._told = Told(since, await self._send(self._message(why, since), {}, now))
        await asyncio.to_thread(self._write)

    async def tell_back(self, since: Instant) -> None:
        """It can be used again, since then: tell those who were told here that it could not. If nobody was, nobody
        is."""
        told, self._told = self._told, None
        if told is not None:
            await self._send(self._back(told, since), told.ids, self._clock())
            await asyncio.to_thread(self._write)

    def _message(self, why: str, since: Instant) -> Message:
        kind = KINDS[KIND]
        return Message(
            title=f"{self._whose}the store {kind.words}",
            text=why[:TEXT_MAX],
            severity=kind.severity,
            kind=KIND,
            at=since,
            tags=(KIND, kind.severity),
            group=KIND,
            id=f"{KIND}-{since}",
        )

    def _back(self, told: Told, since: Instant) -> Message:
        lasted = max(0, since - told.since) // SECOND * SECOND
        return Message(
            title=f"Resolved: {self._whose}the store {KINDS[KIND].words}",
            text=f"It lasted {format_span(lasted)}. What happened meanwhile is written down now.",
            severity="info",
            kind=KIND,
            resolved=True,
            at=since,
            tags=(KIND, "info"),
            group=KIND,
            id=f"{KIND}-{told.since}-over",
        )

    @property
    def _whose(self) -> str:
        return f"{self._who}: " if self._who else ""

    async def _send(self, message: Message, previous: Mapping[str, str], now: Instant) -> dict[str, str]:
        """By all channels that are to be told of it, at once; the ids of those that took it."""
        severity = KINDS[KIND].severity
        wanted = channels_for(Notice(kind=KIND, severity=severity, at=now), self._settings)
        if message.resolved:
            wanted = tuple(name for name in wanted if name in previous)  # who was not told need not know
        elif is_held_back(self._settings.quiet, severity, now):
            return {}
        ids = await asyncio.gather(*(self._sent(name, message, previous.get(name) or None) for name in wanted))
        return {name: id_ for name, id_ in zip(wanted, ids, strict=True) if id_ is not None}

    async def _sent(self, name: str, message: Message, previous: str | None) -> str | None:
        try:
            async with asyncio.timeout(SEND_MAX), self._turns[name]:
                return await self._channels[name].send(message, previous)
        except (ChannelError, TimeoutError) as error:
            log.warning("not told by %s that the store is away or back: %s", name, error)
        except Exception:  # a fault of one channel keeps nobody from being told by the others
            log.exception("the alert channel %s failed", name)
        return None

    def _read(self) -> Told | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Told) if self._file is not None else None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None

    def _write(self) -> None:
        if self._file is None:
            return
        with contextlib.suppress(OSError):  # perhaps it is the disk that is full
            if self._told is None:
                self._file.unlink(missing_ok=True)
            else:
                self._file.write_bytes(msgspec.json.encode(self._told))

"""From settings to a service with its channels. The only place here that knows which channels there are."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from flyball.config.alerts import Alerts, ChannelSettings, TelegramChannel
from flyball.control.alerts.channel import Channel, ChannelError, Message
from flyball.control.alerts.channels import open_channel
from flyball.control.alerts.direct import FILE, Direct
from flyball.control.alerts.service import AlertService, Links
from flyball.core.time import Span
from flyball.errors import FlyballError
from flyball.governor import Governor

log = logging.getLogger(__name__)


class Unopened:
    """A channel that cannot be used, because something is not installed. People are told of it by the others, and
    whoever asks is told why."""

    def __init__(self, name: str, error: FlyballError) -> None:
        self.name = name
        self._why = f"{error}. {error.remedy}".rstrip(". ")

    async def send(self, message: Message, previous: str | None) -> str:
        raise ChannelError(self._why, retry=True)

    async def close(self) -> None:
        pass


def open_service(
    governor: Governor,
    settings: Alerts,
    folder: Path,
    *,
    bot: str = "",
    trouble: Callable[[], str] = lambda: "",
    who: str = "",
    lease: Span = 0,
) -> AlertService:
    """The service of these settings. `folder` is the state folder; `bot`: the token of a Telegram bot that listens for
    what people press there; nothing: none does. `trouble` says why the store cannot be used; `who` this is, and
    with which lease, if it is one of several hosts."""
    channels = [
        _opened(channel, bot=isinstance(channel, TelegramChannel) and channel.token == bot)
        for channel in settings.channels
    ]
    return AlertService(
        governor,
        settings,
        channels,
        links=_links(governor, settings, folder),
        trouble=trouble,
        folder=folder,
        who=who,
        lease=lease,
    )


async def tell_back(governor: Governor, settings: Alerts, folder: Path, who: str) -> None:
    """The daemon before this one may have told people that the store is away. Now it is not, and it is another host
    that speaks: tell them that it is over."""
    if not (folder / FILE).exists():
        return
    channels = {channel.name: _opened(channel, bot=False) for channel in settings.channels}
    turns = {name: asyncio.Lock() for name in channels}
    direct = Direct(settings, channels, turns, trouble=str, clock=governor.clock.now, folder=folder, who=who)
    try:
        await direct.tell_back(governor.clock.now())
    finally:
        for channel in channels.values():
            with contextlib.suppress(Exception):
                await channel.close()


def _opened(settings: ChannelSettings, *, bot: bool) -> Channel:
    try:
        return open_channel(settings, bot=bot)
    except FlyballError as error:
        log.error("the alert channel %s cannot be used: %s. %s", settings.name, error, error.remedy)
        return Unopened(settings.name, error)


def _links(governor: Governor, settings: Alerts, folder: Path) -> Links | None:
    """Where the page cannot be reached from outside, a link would lead nowhere."""
    if not settings.url:
        return None
    from flyball.control.links import Links as ActionLinks  # noqa: PLC0415 - in memory only where there are some
    from flyball.control.links import key_of  # noqa: PLC0415 - as above

    try:
        return ActionLinks(governor, key_of(folder), settings.url).on
    except FlyballError as error:
        log.error("alerts have no links to act by: %s. %s", error, error.remedy)
        return None

"""Whatever Apprise knows: more than a hundred services, each by a URL. It says whether a service took a message, but
not why: what it logs may hold the URL, so nothing of that is passed on.

Messages are not changed later, and have no buttons: links stand in their text.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from flyball.config.alerts import AppriseChannel
from flyball.control.alerts.channel import ChannelError, Message
from flyball.control.alerts.channels.parts import Parts
from flyball.control.alerts.channels.plain import plain
from flyball.core.time import SECOND
from flyball.errors import FlyballError

if TYPE_CHECKING:
    from apprise import Apprise

KINDS: Final = {"info": "info", "warning": "warning", "critical": "failure"}
RESOLVED_KIND: Final = "success"
_SERVICE: Final = re.compile(r"([a-z][a-z0-9+.-]{0,19})://", re.IGNORECASE)


class AppriseServices:
    """Some services."""

    def __init__(self, settings: AppriseChannel) -> None:
        try:
            import apprise  # noqa: PLC0415 - an extra
        except ImportError:
            raise FlyballError(
                f"the alert channel {settings.name!r} needs apprise, which is not installed",
                remedy="Install it: pip install 'flyball-governor[apprise]'",
            ) from None
        # Its log has addresses, and what services answered.
        logging.getLogger("apprise").setLevel(logging.CRITICAL)
        self.name = settings.name
        self._timeout = settings.timeout / SECOND
        self._parts = Parts()
        self._services: list[tuple[str, Apprise]] = []
        for place, url in enumerate(settings.urls, start=1):
            service = apprise.Apprise(asset=apprise.AppriseAsset(async_mode=False, secure_logging=True))
            if not service.add(url):
                raise FlyballError(
                    f"the alert channel {settings.name!r}: {_called(place, url)} is none that Apprise knows",
                    remedy="See Apprise's list of services for how its address is written.",
                )
            self._services.append((_called(place, url), service))
        # One at a time, and not among the threads that others wait for.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="apprise")

    async def send(self, message: Message, previous: str | None) -> str:
        said = {
            "title": message.title,
            "body": plain(message) or message.title,
            "notify_type": RESOLVED_KIND if message.resolved else KINDS.get(message.severity, "warning"),
        }
        taken = self._parts.of(message.id)
        left = [(name, service) for name, service in self._services if name not in taken]
        work = asyncio.get_running_loop().run_in_executor(self._thread, _notify, left, said, taken)
        try:
            failed = await asyncio.wait_for(asyncio.shield(work), self._timeout)
        except TimeoutError:
            raise ChannelError(f"the services did not answer within {self._timeout:g} s", retry=True) from None
        if failed:
            raise ChannelError(f"not taken by {', '.join(failed)}", retry=True)
        return ""

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def _notify(services: "Sequence[tuple[str, Apprise]]", said: Mapping[str, Any], taken: dict[str, str]) -> Sequence[str]:
    """Those that did not take it; the others are added to those that did."""
    for name, service in services:
        with contextlib.suppress(Exception):  # of one of a hundred services; what it says may hold the address
            if service.notify(**said):
                taken[name] = ""
    return [name for name, _ in services if name not in taken]


def _called(place: int, url: str) -> str:
    """What a service is called without its address: its kind, and its place in the list."""
    found = _SERVICE.match(url)
    return f"address {place} ({found[1]})" if found else f"address {place}"

"""Whatever Apprise knows: more than a hundred services, each by a URL. It says whether a service took a message, but
not why: what it logs may hold the URL, so nothing of that is passed on.

Messages are not changed later, and have no buttons: links stand in their text. All of it happens in a thread: Apprise
waits for its services, and takes seconds to load.
"""

import asyncio
import contextlib
import importlib.util
import logging
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from flyball.config.alerts import AppriseChannel
from flyball.control.alerts.channel import ChannelError, Message
from flyball.control.alerts.channels.parts import Parts
from flyball.control.alerts.channels.plain import plain
from flyball.core.time import SECOND
from flyball.errors import FlyballError

if TYPE_CHECKING:
    from apprise import Apprise

log = logging.getLogger(__name__)

KINDS: Final = {"info": "info", "warning": "warning", "critical": "failure"}
RESOLVED_KIND: Final = "success"
_SERVICE: Final = re.compile(r"([a-z][a-z0-9]{0,19})s?://", re.IGNORECASE)

_Services = list[tuple[str, "Apprise"]]


class AppriseServices:
    """Some services."""

    def __init__(self, settings: AppriseChannel) -> None:
        if importlib.util.find_spec("apprise") is None:
            raise FlyballError(
                f"the alert channel {settings.name!r} needs apprise, which is not installed",
                remedy="Install it: pip install 'flyball-governor[apprise]'",
            )
        self.name = settings.name
        self._seconds = settings.timeout / SECOND
        self._parts = Parts()
        # One message at a time, and not among the threads that others wait for.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="apprise")
        self._loaded: Future[_Services] = self._thread.submit(_load, settings.urls)
        self._loaded.add_done_callback(self._say_wrong)

    async def send(self, message: Message, previous: str | None) -> str:
        said = {
            "title": message.title,
            "body": plain(message) or message.title,
            "notify_type": RESOLVED_KIND if message.resolved else KINDS.get(message.severity, "warning"),
        }
        taken = self._parts.of(message.id)
        work = asyncio.get_running_loop().run_in_executor(self._thread, _notify, self._loaded, said, taken)
        try:
            failed = await asyncio.wait_for(asyncio.shield(work), self._seconds)
        except TimeoutError:
            work.add_done_callback(lambda late: late.cancelled() or late.exception())
            raise ChannelError(f"the services did not answer within {self._seconds:g} s", retry=True) from None
        if failed:
            raise ChannelError(f"not taken by {', '.join(failed)}", retry=True)
        return ""

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _say_wrong(self, loaded: "Future[_Services]") -> None:
        """As soon as it is known, and not when the first alert cannot be sent."""
        if not loaded.cancelled() and (error := loaded.exception()) is not None:
            log.error("channel %s: %s", self.name, error)


# In the thread.


def _load(urls: Sequence[str]) -> _Services:
    """ChannelError if one of them is none that Apprise knows."""
    import apprise  # noqa: PLC0415 - an extra

    # Its log has addresses, and what services answered.
    logging.getLogger("apprise").setLevel(logging.CRITICAL)
    services: _Services = []
    for place, url in enumerate(urls, start=1):
        service = apprise.Apprise(asset=apprise.AppriseAsset(async_mode=False, secure_logging=True))
        if not service.add(url):
            text = f"address {place} is none that Apprise knows: see its list of services for how it is written"
            raise ChannelError(text, retry=True)
        found = _SERVICE.match(url)
        services.append((f"address {place} ({found[1]})" if found else f"address {place}", service))
    return services


def _notify(loaded: "Future[_Services]", said: Mapping[str, Any], taken: dict[str, str]) -> Sequence[str]:
    """Those that did not take it; the others are added to those that did."""
    left = [(name, service) for name, service in loaded.result() if name not in taken]
    for name, service in left:
        with contextlib.suppress(Exception):  # of one of a hundred services; what it says may hold the address
            if service.notify(**said):
                taken[name] = ""
    return [name for name, _ in left if name not in taken]

"""The channels of alerts: each is tried by a test message, by the daemon if one runs, otherwise from here."""

import asyncio
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from flyball.config.alerts import ChannelSettings
from flyball.control.alerts.channel import ChannelError, Message
from flyball.control.alerts.channels import open_channel
from flyball.core.time import SECOND
from flyball.doctor.finding import Finding, bad, ok, warning
from flyball.doctor.scene import Scene
from flyball.errors import FlyballError

if TYPE_CHECKING:
    from flyball.control.client import Client

WAIT_MAX: Final = 40.0
"""Seconds that a test is waited for: a channel has thirty at most."""
LOOK_EVERY: Final = 0.2
TRY: Final = "Put it right in the settings, `flyball reload`, then `flyball alerts test {name}`."
UNKNOWN: Final = "the daemon knows no such channel: it has other settings"
TEXT: Final = "If you can read this, alerts reach you this way."


def check(scene: Scene) -> Iterator[Finding]:
    """Messages are sent unless that is not wanted."""
    channels = scene.fallback.alerts.alerts.channels
    if not channels:
        remedy = "Name a channel under `alerts:` in the settings: ntfy, email, webhook, telegram, apprise."
        yield warning("there are no channels for alerts, so nobody is told anything", remedy)
        return
    if not scene.send:
        for channel in channels:
            yield judge_unsent(channel)
        return
    fates = sent(channels, scene.connect(), scene.clock())
    for channel in channels:
        yield judge(channel, fates.get(channel.name, (False, UNKNOWN)))


def judge_unsent(channel: ChannelSettings) -> Finding:
    """What can be said without a message: whether all is there that it needs."""
    try:
        open_channel(channel)
    except FlyballError as error:
        return bad(f"{channel.name} ({channel.TYPE}) cannot be used: {error}", error.remedy)
    return ok(f"{channel.name} ({channel.TYPE}) is set up; no message was sent")


def judge(channel: ChannelSettings, fate: tuple[bool, str]) -> Finding:
    """What came of the message."""
    arrived, said = fate
    if arrived:
        return ok(f"{channel.name} ({channel.TYPE}) took a test message{said}")
    return bad(f"{channel.name} ({channel.TYPE}) did not take a test message: {said}", TRY.format(name=channel.name))


def sent(channels: Sequence[ChannelSettings], daemon: "Client | None", now: float) -> Mapping[str, tuple[bool, str]]:
    """What became of a message by each, by its name: whether it was taken, and what there is to say of that."""
    if daemon is None:
        return asyncio.run(_from_here(channels, round(now * SECOND)))
    with daemon:
        return _by_daemon(daemon, [channel.name for channel in channels])


async def _from_here(channels: Sequence[ChannelSettings], now: int) -> Mapping[str, tuple[bool, str]]:
    id_ = f"doctor-{uuid.uuid4().hex[:8]}"
    message = Message(title="flyball: a test", text=TEXT, severity="info", kind="test", at=now, group=id_, id=id_)

    async def one(settings: ChannelSettings) -> tuple[bool, str]:
        channel = None
        try:
            channel = open_channel(settings)
            async with asyncio.timeout(WAIT_MAX):
                await channel.send(message, None)
        except TimeoutError:
            return False, f"no answer within {WAIT_MAX:g} s"
        except (ChannelError, FlyballError) as error:
            return False, f"{error}. {error.remedy}".rstrip(". ")
        except Exception as error:  # noqa: BLE001 - whatever a channel does not like is told
            return False, f"{type(error).__name__}: {error}"
        finally:
            if channel is not None:
                with suppress(Exception):
                    await channel.close()
        return True, ""

    fates = await asyncio.gather(*map(one, channels))
    return {channel.name: fate for channel, fate in zip(channels, fates, strict=True)}


def _by_daemon(daemon: "Client", names: Sequence[str]) -> Mapping[str, tuple[bool, str]]:
    try:
        asked = daemon.ask("test_alert", {"channel": ""})
        known: Mapping[str, Any] = {}
        end = time.monotonic() + WAIT_MAX
        while time.monotonic() < end:
            known = daemon.ask("alerts", {"test": asked["id"]})["test"]
            states = [(known.get(name) or {"state": "waiting"})["state"] for name in asked["channels"]]
            if "waiting" not in states:
                break
            time.sleep(LOOK_EVERY)
    except FlyballError as error:
        return {name: (False, f"{error}. {error.remedy}".rstrip(". ")) for name in names}
    fates = {name: known.get(name) or {"state": "waiting", "error": ""} for name in asked["channels"]}
    return {
        name: (
            fate["state"] == "sent",
            ", by the daemon" if fate["state"] == "sent" else fate["error"] or fate["state"],
        )
        for name, fate in fates.items()
    }

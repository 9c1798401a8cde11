"""What people are told when the store itself cannot be used."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from flyball.config.alerts import AlertRule, Alerts, Quiet
from flyball.control.alerts import opening
from flyball.control.alerts.channel import ChannelError
from flyball.control.alerts.direct import AWAY_FOR, BACK_FOR, FILE, Direct
from flyball.core.time import SECOND, Span
from flyball.errors import StoreError
from flyball.governor import Governor
from flyball.store import Snapshot
from flyball.store.memory import MemoryStore
from flyball.testing.clock import FakeClock
from tests.control.alerts.fixtures import Remembers, Site, alerts
from tests.control.alerts.test_service import play


class Outage:
    """A store that can be away, and people who are told."""

    def __init__(
        self, *channels: Remembers, settings: Alerts | None = None, folder: Path | None = None, lease: Span = 0
    ) -> None:
        self.channels = channels or (Remembers(),)
        self.settings = settings or alerts(*(channel.name for channel in self.channels))
        self.folder, self.lease = folder, lease
        self.clock = FakeClock()
        self.why = ""
        self.begin()

    def begin(self) -> None:
        """A daemon is started."""
        named = {channel.name: channel for channel in self.channels}
        self.direct = Direct(
            self.settings,
            named,
            {name: asyncio.Lock() for name in named},
            trouble=lambda: self.why,
            clock=self.clock.now,
            folder=self.folder,
            who="host a",
            lease=self.lease,
        )

    async def lasts(self, length: Span) -> None:
        """So it is for so long, and is looked at meanwhile."""
        for _ in range(10):
            await self.direct.look()
            self.clock.move(length // 10)
        await self.direct.look()

    @property
    def titles(self) -> list[str]:
        return self.channels[0].titles


def run(work: Callable[[Outage], Awaitable[None]], outage: Outage) -> Outage:
    async def main() -> None:
        await work(outage)

    asyncio.run(main())
    return outage


AWAY, BACK = "host a: the store cannot be used", "Resolved: host a: the store cannot be used"


def test_away_and_back() -> None:
    """Once when it is away for a while, with why; once when it is back, in the same message, with how long it was."""

    async def work(outage: Outage) -> None:
        outage.why = "no room left. Free some disk space."
        await outage.lasts(AWAY_FOR)
        await outage.lasts(60 * SECOND)
        [(message, previous)] = outage.channels[0].sent
        assert (message.title, message.text, previous) == (AWAY, outage.why, None)
        assert (message.severity, message.kind) == ("critical", "store_away")
        outage.why = ""
        await outage.lasts(BACK_FOR)
        await outage.lasts(60 * SECOND)
        message, previous = outage.channels[0].sent[-1]
        assert (message.title, message.resolved, previous) == (BACK, True, "phone-1")
        assert message.text == "It lasted 1 min 3 s. What happened meanwhile is written down now."
        assert len(outage.channels[0].sent) == 2

    run(work, Outage())


def test_a_hiccup() -> None:
    """What is shorter than that is not told, however often it comes; a store that comes and goes is one outage."""

    async def work(outage: Outage) -> None:
        for _ in range(5):
            outage.why = "away"
            await outage.lasts(AWAY_FOR // 2)
            outage.why = ""
            await outage.lasts(SECOND)
        assert outage.titles == []
        for _ in range(5):
            outage.why = "away"
            await outage.lasts(AWAY_FOR)
            outage.why = ""
            await outage.lasts(BACK_FOR // 2)
        assert outage.titles == [AWAY]

    run(work, Outage())


def test_started_anew_meanwhile(tmp_path: Path) -> None:
    """A daemon that was started anew during the outage tells that it is over, and not once more that it began."""

    async def work(outage: Outage) -> None:
        outage.why = "away"
        await outage.lasts(AWAY_FOR)
        outage.begin()
        await outage.lasts(60 * SECOND)
        assert outage.titles == [AWAY]
        outage.why = ""
        outage.begin()
        await outage.lasts(BACK_FOR)
        assert outage.titles == [AWAY, BACK]
        assert outage.channels[0].sent[-1][1] == "phone-1", "it is the same message"
        outage.begin()
        await outage.lasts(BACK_FOR)
        assert outage.titles == [AWAY, BACK]
        assert not (tmp_path / FILE).exists()

    run(work, Outage(folder=tmp_path))


def test_another_host_speaks_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host that told of the outage tells of its end, also if it is another one that speaks by then; once, and only
    if it told."""
    phone = Remembers()
    monkeypatch.setattr(opening, "open_channel", lambda *_, **__: phone)
    governor = Governor((), MemoryStore(), FakeClock())

    async def work(outage: Outage) -> None:
        await opening.tell_back(governor, outage.settings, tmp_path, "host a")
        assert phone.titles == []
        outage.why = "away"
        await outage.lasts(AWAY_FOR)
        for _ in range(2):
            await opening.tell_back(governor, outage.settings, tmp_path, "host a")
        assert phone.titles == [AWAY, BACK]
        assert phone.closed

    run(work, Outage(phone, folder=tmp_path))


@pytest.mark.parametrize(("lease", "seconds"), [(0, 3.0), (15 * SECOND, 3.0), (60 * SECOND, 3.0), (5 * SECOND, 1.0)])
def test_told_before_its_lease_ends(lease: Span, seconds: float) -> None:
    """A host that cannot renew its lease ends after three fifths of it: it tells after one."""

    async def work(outage: Outage) -> None:
        outage.why = "away"
        await outage.direct.look()
        outage.clock.move(round(seconds * SECOND) - 1)
        await outage.direct.look()
        assert outage.titles == []
        outage.clock.move(1)
        await outage.direct.look()
        assert outage.titles == [AWAY]

    run(work, Outage(lease=lease))


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"since": "x"}'])
def test_what_was_noted_cannot_be_read(tmp_path: Path, data: bytes) -> None:
    """Then nothing is known of an outage before."""
    (tmp_path / FILE).write_bytes(data)

    async def work(outage: Outage) -> None:
        await outage.lasts(BACK_FOR)
        assert outage.titles == []

    run(work, Outage(folder=tmp_path))


def test_cannot_be_noted(tmp_path: Path) -> None:
    """A disk that takes no note keeps nobody from being told."""

    async def work(outage: Outage) -> None:
        outage.why = "full"
        await outage.lasts(AWAY_FOR)
        outage.why = ""
        await outage.lasts(BACK_FOR)
        assert outage.titles == [AWAY, BACK]

    run(work, Outage(folder=tmp_path / "not there"))


def test_channels_that_fail() -> None:
    """Each channel on its own: one that fails or hangs keeps nobody from being told by the others, and who was not told
    that it began is not told that it is over."""
    broken, phone = Remembers("broken"), Remembers("phone")
    broken.fails = ChannelError("no", retry=True)

    async def work(outage: Outage) -> None:
        outage.why = "away"
        await outage.lasts(AWAY_FOR)
        outage.why = ""
        broken.fails = None
        await outage.lasts(BACK_FOR)
        assert (broken.titles, phone.titles) == ([], [AWAY, BACK])

    run(work, Outage(broken, phone))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"rules": (AlertRule(kinds=("quarantined",)),)}, []),
        ({"rules": (AlertRule(kinds=("store_away",)),)}, [AWAY]),
        ({"quiet": Quiet(start=0, end=24 * 60 - 1, timezone="UTC", passes="critical")}, [AWAY]),
    ],
)
def test_rules_and_quiet_hours_hold(more: dict[str, object], told: list[str]) -> None:
    """It is an alert as any other: rules say by which channels, and it is critical in quiet hours."""

    async def work(outage: Outage) -> None:
        outage.why = "away"
        await outage.lasts(AWAY_FOR)
        assert outage.titles == told

    run(work, Outage(settings=alerts("phone", **more)))


class Away(MemoryStore):
    """A store that is there, or is not."""

    there = True

    def read(self, keys: object) -> Snapshot:
        if not self.there:
            raise StoreError("nobody answers at db", remedy="Start it.")
        return super().read(keys)  # type: ignore[arg-type]  # as it is given


def test_the_service_notices_by_itself() -> None:
    """That the store cannot be read is told though no unit has written anything; and no alert is lost: what happened
    before is told when it is back."""
    store = Away()

    async def work(site: Site) -> None:
        site.quarantine("shop")
        store.there = False
        site.service.poke()
        for _ in range(5):
            await site.passes(300 * SECOND)
        assert site.phone.titles == ["the store cannot be used"]
        assert site.phone.sent[0][0].text == "nobody answers at db. Start it."
        store.there = True
        for _ in range(5):
            site.service.poke()
            await site.passes(300 * SECOND)
        assert "Resolved: the store cannot be used" in site.phone.titles
        assert "shop quarantined" in site.phone.titles

    play(work, store=store)

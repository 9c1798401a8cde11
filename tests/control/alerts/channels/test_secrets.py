"""No secret of a channel is ever said: not by an error, nor by the log, nor by the channel itself, whatever goes wrong,
and even if the other side repeats all that it was told."""

import asyncio
import base64
import logging
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from flyball.config.alerts import AppriseChannel, ChannelSettings, Email, Ntfy, TelegramChannel, WebhookChannel
from flyball.control.alerts.channel import Channel, ChannelError
from flyball.control.alerts.channels import open_channel
from flyball.core.time import SECOND
from flyball.errors import FlyballError
from tests.control.alerts.channels.stage import MESSAGE, QUICK
from tests.servers import certificates
from tests.servers.http import Asked, Drop, Hang, HttpSite, Reply, replies
from tests.servers.smtp import script

CANARY = "c4n4ry-" + "x" * 20
TOPIC = "t0p1c-" + "y" * 20
BOT = "123456:" + "c4n4ry" * 6
FORMS = (
    CANARY,
    TOPIC,
    BOT,
    BOT.partition(":")[2],
    base64.b64encode(CANARY.encode()).decode(),
    base64.b64encode(f"\0fly\0{CANARY}".encode()).decode(),
    base64.b64encode(f"fly:{CANARY}".encode()).decode(),
)

OF_MAIL = (CANARY, *FORMS[4:6])

Make = Callable[[str, int], ChannelSettings]
KINDS: dict[str, Make] = {
    "ntfy": lambda url, _: Ntfy(name="one", topic=TOPIC, url=url, token=CANARY, timeout=QUICK),
    "webhook": lambda url, _: WebhookChannel(
        name="one", url=f"{url}/{CANARY}?key={CANARY}", secret=CANARY, timeout=QUICK
    ),
    "webhook_login": lambda url, _: WebhookChannel(
        name="one", url=url.replace("://", f"://fly:{CANARY}@"), secret=CANARY, timeout=QUICK
    ),
    "telegram": lambda url, _: TelegramChannel(name="one", token=BOT, chats=("100",), url=url, timeout=QUICK),
    "apprise": lambda _, port: AppriseChannel(
        name="one", urls=(f"json://fly:{CANARY}@127.0.0.1:{port}/{CANARY}",), timeout=QUICK
    ),
    "apprise_unknown": lambda _, port: AppriseChannel(name="one", urls=(f"{CANARY}://127.0.0.1:{port}",)),
}


def _echo(status: int) -> Callable[[Asked], Reply]:
    """Says all that it was told, as an error would."""

    def answer(asked: Asked) -> Reply:
        heard = f"{asked.path} {dict(asked.headers)} {asked.body.decode()}".replace('"', "'").replace("\\", "/")
        said = f'{{"ok":false,"error":"{heard}","description":"{heard}"}}'
        return Reply(status, said.encode(), {"retry-after": "1", "location": f"http://{CANARY}.example/"})

    return answer


FAULTS: dict[str, Callable[[Asked], Reply]] = {
    "echo_400": _echo(400),
    "echo_401": _echo(401),
    "echo_403": _echo(403),
    "echo_429": _echo(429),
    "echo_500": _echo(500),
    "redirect": _echo(307),
    "hangs": replies(Hang),
    "drops": replies(Drop),
    "garbage": replies(Reply(200, b"\xff\xfe{")),
}


@pytest.fixture(autouse=True)
def listening(caplog: pytest.LogCaptureFixture) -> None:
    """At the level that a daemon logs at."""
    caplog.set_level(logging.INFO)


def _keeps_silent(caplog: pytest.LogCaptureFixture, settings: ChannelSettings) -> None:
    """Send it, then look at everything that was said."""
    said = [repr(settings), str(settings)]

    async def play() -> None:
        channel: Channel | None = None
        try:
            channel = open_channel(settings)
            said.append(repr(channel))
            await channel.send(MESSAGE, "100:1" if isinstance(settings, TelegramChannel) else None)
        except (ChannelError, FlyballError) as error:
            said.extend([str(error), repr(error), error.remedy, *traceback.format_exception(error)])
        finally:
            if channel is not None:
                await channel.close()

    asyncio.run(play())
    said.append(caplog.text)
    for form in FORMS:
        assert not [line for line in said if form in line]


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")  # of Apprise
@pytest.mark.parametrize("kind", KINDS)
def test_requests(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Channels that make requests, to servers that refuse, repeat, move, hang, hang up and talk nonsense."""
    for fault in FAULTS.values():
        with HttpSite(fault) as site:
            _keeps_silent(caplog, KINDS[kind](site.url, site.port))


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")  # of Apprise
@pytest.mark.parametrize("kind", KINDS)
def test_nobody_there(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Servers that are not up."""
    with HttpSite(replies(Reply())) as site:
        settings = KINDS[kind](site.url, site.port)
    _keeps_silent(caplog, settings)


@pytest.mark.parametrize("kind", ["ntfy", "webhook", "webhook_login", "telegram"])
def test_certificate(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Servers with a certificate that nobody trusts."""
    made = certificates.make(tmp_path)
    with HttpSite(replies(Reply()), tls=made.server()) as site:
        _keeps_silent(caplog, KINDS[kind](site.url, site.port))


def _echoes(code: bytes) -> tuple[bytes, ...]:
    """A mail server that knows what it will be told, and says it in every answer."""
    said = b" ".join(form.encode() for form in OF_MAIL)
    greeting = (b"220 here\r\n", b"250-here\r\n250 AUTH PLAIN LOGIN\r\n")
    return (*greeting, *[code + b" " + said + b"\r\n"] * 6)


@pytest.mark.parametrize(
    "lines",
    [
        (),
        (b"554 " + CANARY.encode() + b"\r\n",),
        _echoes(b"535"),
        _echoes(b"454"),
        _echoes(b"235"),
        _echoes(b"250"),
        _echoes(b"550"),
        (b"\xff\xff\n",),
    ],
    ids=["silent", "refuses", "535", "454", "235", "250", "550", "garbage"],
)
def test_mail(lines: tuple[bytes, ...], caplog: pytest.LogCaptureFixture) -> None:
    """A mail server that refuses in every way there is, and says again what it was told; however it is talked to."""
    for security in ("none", "starttls", "tls"):
        with script(*lines) as port:
            settings = Email(
                name="one",
                host="127.0.0.1",
                port=port,
                security=security,
                user="fly",
                password=CANARY,
                sender="flyball@example.org",
                to=("ops@example.org",),
                timeout=SECOND // 5,
            )
            _keeps_silent(caplog, settings)

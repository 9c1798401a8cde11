"""E-mail over SMTP: in plain text and as simple HTML. All mails about one thing are one thread: each answers the first.

Whoever runs the fleet gets links to act by. The user whom a unit belongs to is only told: links are orders, and a user
gives none.
"""

import asyncio
import base64
import contextlib
import hashlib
import html
import ipaddress
import logging
import re
import secrets
import smtplib
import socket
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Any, Final

import httpx
from msgspec.structs import replace

from flyball.config.alerts import USER, Email
from flyball.control.alerts.channel import ChannelError, Message
from flyball.control.alerts.channels.parts import Parts
from flyball.control.alerts.channels.plain import plain
from flyball.core.hiding import hide
from flyball.core.time import SECOND
from flyball.http_client import unanswered

log = logging.getLogger(__name__)

SAID_MAX: Final = 200
"""Characters of what the server says was wrong."""
TOLD_MAX: Final = 10_000
"""Users of whom it is known that they were told."""
EVERYBODY: Final = "to"
"""What the mail to all who are listed is called, among the parts of a message."""
PERMANENT: Final = 500
"""From this code on, another attempt meets the same."""
_ADDRESS: Final = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")


_Part = tuple[str, Sequence[str], EmailMessage]
"""A mail, to whom, and what that part of the message is called."""


class Mail:
    """Mails to some people, and to the user of whatever they are about."""

    def __init__(self, settings: Email) -> None:
        self.name = settings.name
        self._settings = settings
        self._to = tuple(one for one in settings.to if one != USER)
        self._seconds = settings.timeout / SECOND
        both = f"\0{settings.user}\0{settings.password}".encode()
        encoded = [base64.b64encode(part).decode() for part in (settings.password.encode(), both)]
        self._secrets = [settings.password, *encoded] if settings.password else []
        self._parts = Parts()
        self._told: dict[str, str] = {}
        """Ids of what users were told. After a restart they may be told once more, under the same Message-ID."""
        self._trusted: ssl.SSLContext | None = None
        self._lines: list[smtplib.SMTP] = []
        """Connections that are open."""
        # One mail at a time, and not among the threads that others wait for.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mail")

    async def send(self, message: Message, previous: str | None) -> str:
        own = _id_of(message.id)
        first = previous or own
        sender, taken = self._settings.sender, self._parts.of(message.id)
        mails: list[_Part] = []
        if self._to:
            mails.append((EVERYBODY, self._to, composed(message, sender, self._to, own, first)))
        mails += self._to_users(message)
        left = [part for part in mails if part[0] not in taken]
        if not left:
            return first if self._to else ""
        work = asyncio.get_running_loop().run_in_executor(self._thread, self._deliver, left, taken)
        try:
            await asyncio.wait_for(asyncio.shield(work), self._seconds)
        except TimeoutError:
            self._hang_up()
            work.add_done_callback(_unheard)
            raise ChannelError(
                f"{self._settings.host} did not take the mail within {self._seconds:g} s", retry=True
            ) from None
        except asyncio.CancelledError:
            self._hang_up()
            work.add_done_callback(_unheard)
            raise
        self._told.update({part: "" for part in taken if part != EVERYBODY})
        while len(self._told) > TOLD_MAX:
            del self._told[next(iter(self._told))]
        return first if self._to else ""

    def _to_users(self, message: Message) -> "list[_Part]":
        """Mails to users who were not told yet."""
        mails: list[_Part] = []
        for one in message.users if USER in self._settings.to else ():
            if one.user in self._to or one.id in self._told or not _ADDRESS.fullmatch(one.user):
                continue
            told = replace(message, title=one.title, text=one.text, actions=(), url="")
            own, thread = _id_of(one.id), _id_of(one.thread)
            mails.append((one.id, (one.user,), composed(told, self._settings.sender, (one.user,), own, thread)))
        return mails

    async def close(self) -> None:
        self._hang_up()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _hang_up(self) -> None:
        """End what the thread waits for, so that it does not wait for it any more."""
        for line in self._lines:
            sock = getattr(line, "sock", None)  # it may not be open yet
            if sock is not None:
                with contextlib.suppress(OSError):  # it is not open any more
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)

    # In the thread.

    def _deliver(self, mails: "Sequence[_Part]", taken: dict[str, str]) -> None:
        settings = self._settings
        if settings.user and settings.security == "none" and not _is_here(settings.host):
            text = f"the password would go to {settings.host} in plain text: set `security` to starttls or tls"
            raise ChannelError(text, retry=False)
        refused: smtplib.SMTPRecipientsRefused | None = None
        try:
            with contextlib.closing(self._connected()) as line:
                if settings.security == "starttls":
                    line.starttls(context=self._trusted)
                if settings.user:
                    line.login(settings.user, settings.password)
                for part, to, mail in mails:
                    try:
                        some = line.send_message(mail, settings.sender, to)
                    except smtplib.SMTPRecipientsRefused as error:
                        refused = error  # those of the other mail are told all the same
                        continue
                    taken[part] = ""
                    for address, (code, said) in some.items():
                        log.warning("channel %s: %s is refused: %d %s", self.name, address, code, self._plain(said))
                with contextlib.suppress(smtplib.SMTPException, OSError):  # it has them: nothing else counts
                    line.quit()
            if refused is not None:
                raise refused
        except (smtplib.SMTPException, OSError, ValueError) as error:
            raise self._failed(error) from None
        finally:
            self._lines.clear()

    def _connected(self) -> smtplib.SMTP:
        settings, opened = self._settings, self._lines.append
        here = socket.gethostname()  # what smtplib looks up itself can take as long as the name servers like
        if settings.security != "none" and self._trusted is None:
            self._trusted = httpx.create_ssl_context()
        if settings.security == "tls":
            return _tls_line(opened)(settings.host, settings.port, here, timeout=self._seconds, context=self._trusted)
        return _line(opened)(settings.host, settings.port, here, timeout=self._seconds)

    def _failed(self, error: Exception) -> ChannelError:
        host = self._settings.host
        match error:
            case smtplib.SMTPAuthenticationError():
                text = f"{host} does not accept the login: {error.smtp_code} {self._plain(error.smtp_error)}"
                return ChannelError(text, retry=_passes(error.smtp_code))
            case smtplib.SMTPNotSupportedError():
                if self._settings.security == "starttls" and "STARTTLS" in str(error):
                    return ChannelError(f"{host} does not offer STARTTLS: try `security: tls`", retry=False)
                return ChannelError(f"{host} cannot do what is needed to take the mail: {error}", retry=False)
            case smtplib.SMTPRecipientsRefused():
                codes = [code for code, _ in error.recipients.values()]
                said = next(iter(error.recipients.values()))[1] if codes else b""
                text = f"{host} takes no mail for any of the receivers: {codes[0] if codes else ''} {self._plain(said)}"
                return ChannelError(text.rstrip(), retry=any(_passes(code) for code in codes))
            case smtplib.SMTPResponseException():
                text = f"{host} does not take the mail: {error.smtp_code} {self._plain(error.smtp_error)}"
                return ChannelError(text.rstrip(), retry=_passes(error.smtp_code))
            case TimeoutError():
                return ChannelError(f"{host} did not answer within {self._seconds:g} s", retry=True)
            case ConnectionRefusedError():
                return ChannelError(f"{host} refused the connection; is it up?", retry=True)
            case OSError():  # also what smtplib says of a connection that was closed
                return ChannelError(unanswered(error, host).text, retry=True)
        return ChannelError("the mail cannot be sent as it is: check the addresses", retry=False)

    def _plain(self, said: bytes | str) -> str:
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
        return hide(" ".join(text.split()), self._secrets)[:SAID_MAX]


def _line(opened: Callable[[smtplib.SMTP], None]) -> type[smtplib.SMTP]:
    class Line(smtplib.SMTP):
        """Known from before its first byte, so that it can be ended whatever it waits for."""

        def connect(self, *args: Any, **more: Any) -> Any:
            opened(self)
            return super().connect(*args, **more)

    return Line


def _tls_line(opened: Callable[[smtplib.SMTP], None]) -> type[smtplib.SMTP_SSL]:
    class Line(smtplib.SMTP_SSL):
        """The same."""

        def connect(self, *args: Any, **more: Any) -> Any:
            opened(self)
            return super().connect(*args, **more)

    return Line


def _id_of(known: str) -> str:
    return hashlib.blake2b((known or secrets.token_hex(16)).encode(), digest_size=16).hexdigest()


def _passes(code: int) -> bool:
    return code < PERMANENT


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _unheard(work: "asyncio.Future[None]") -> None:
    """Nobody waits any more: what came of it is not an error that nobody looked at."""
    if not work.cancelled():
        work.exception()


# What is written.


def composed(message: Message, sender: str, to: Sequence[str], own: str, first: str) -> EmailMessage:
    """The mail. `own` and `first` are ids, of this mail and of the first about the same thing."""
    domain = sender.rpartition("@")[2] or "flyball.invalid"
    mail = EmailMessage(policy=SMTP)
    mail["Subject"] = " ".join(message.title.split())
    mail["From"] = sender
    mail["To"] = ", ".join(to)
    mail["Date"] = format_datetime(
        datetime.fromtimestamp(message.at / SECOND, UTC) if message.at else datetime.now(UTC)
    )
    mail["Message-ID"] = f"<{own}@{domain}>"
    if own != first:
        mail["In-Reply-To"] = mail["References"] = f"<{first}@{domain}>"
    mail["Auto-Submitted"] = "auto-generated"  # no holiday replies, please
    if message.severity == "critical" and not message.resolved:
        mail["Importance"] = "high"
    mail.set_content(f"{message.title}\n\n{plain(message)}\n")
    mail.add_alternative(_html(message), subtype="html")
    return mail


def _html(message: Message) -> str:
    parts = [f"<h2>{html.escape(message.title)}</h2>"]
    if message.text:
        parts.append(f'<p style="white-space:pre-wrap">{html.escape(message.text)}</p>')
    links = [f'<a href="{html.escape(one.url)}">{html.escape(one.label)}</a>' for one in message.actions if one.url]
    if links and not message.resolved:
        parts.append(f"<p>{' &nbsp; '.join(links)}</p>")
    if message.url:
        parts.append(f'<p><a href="{html.escape(message.url)}">More</a></p>')
    return f"<!doctype html><html><body>{''.join(parts)}</body></html>"

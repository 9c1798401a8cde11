"""A real SMTP server for one test (aiosmtpd): it takes mails and shows them, logs people in, speaks TLS, and refuses
what it is told to refuse. Nothing of it outlives its `with`."""

import asyncio
import contextlib
import email
import email.policy
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Any, Final, Self

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

WAIT_MAX: Final = 20.0
"""Seconds that a server may take to open."""


@dataclass(frozen=True)
class Received:
    """One mail, as it came."""

    sender: str
    to: list[str]
    mail: EmailMessage
    encrypted: bool
    user: str


class _AnyPort(Controller):
    """At a port that was free."""

    def _trigger_server(self) -> None:
        assert isinstance(self.server, asyncio.Server)
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()  # type: ignore[no-untyped-call]  # the library's


class MailServer:
    """Takes mails at a free port of loopback."""

    def __init__(
        self,
        *,
        starttls: ssl.SSLContext | None = None,
        tls: ssl.SSLContext | None = None,
        user: str = "",
        password: str = "",
    ) -> None:
        self.mails: list[Received] = []
        self.refuse: dict[str, str] = {}
        """What is answered instead of taking it, by receiver; or by `MAIL` and `DATA`."""
        self._user, self._password = user, password
        self._starttls, self._tls = starttls, tls

    def __enter__(self) -> Self:
        more: dict[str, Any] = {"authenticator": self._login} if self._user else {}
        # With a password and without TLS: on loopback no secret is lost.
        more["auth_require_tls"] = self._starttls is not None
        self._controller = _AnyPort(
            self,
            hostname="127.0.0.1",
            port=0,
            ready_timeout=WAIT_MAX,
            ssl_context=self._tls,
            tls_context=self._starttls,
            require_starttls=self._starttls is not None,
            **more,
        )
        self._controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.stop()

    @property
    def port(self) -> int:
        return int(self._controller.port)

    # What the server asks.

    def _login(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: object) -> AuthResult:
        assert isinstance(data, LoginPassword)
        good = (data.login.decode(), data.password.decode()) == (self._user, self._password)
        return AuthResult(success=good, handled=False, auth_data=data)

    async def handle_MAIL(  # noqa: N802 - the library's name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if "MAIL" in self.refuse:
            return self.refuse["MAIL"]
        envelope.mail_from = address
        return "250 OK"

    async def handle_RCPT(  # noqa: N802 - the library's name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refuse:
            return self.refuse[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - as above
        if "DATA" in self.refuse:
            return self.refuse["DATA"]
        assert isinstance(envelope.content, bytes)
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        assert isinstance(mail, EmailMessage)
        data = session.auth_data
        who = data.login.decode() if isinstance(data, LoginPassword) else ""
        encrypted = session.ssl is not None or self._tls is not None
        self.mails.append(Received(str(envelope.mail_from), list(envelope.rcpt_tos), mail, encrypted, who))
        return "250 taken"


@contextlib.contextmanager
def script(*lines: bytes, drip: float = 0.0) -> Iterator[int]:
    """A port where somebody says these lines, one to each that comes in, whatever it is; then nothing at all. With
    `drip` it says a letter each so many seconds, for ever: never silent, and never done."""
    ending = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(0.1)

    def talk(line: socket.socket) -> None:
        with line, contextlib.suppress(OSError):
            line.settimeout(0.1)
            said = list(lines)
            if said:
                line.sendall(said.pop(0))
            while not ending.is_set():
                if drip:
                    line.sendall(b"2")
                    ending.wait(drip)
                    continue
                try:
                    if not line.recv(65536):
                        return
                except TimeoutError:
                    continue
                if said:
                    line.sendall(said.pop(0))

    def accept() -> None:
        while not ending.is_set():
            try:
                line, _ = listening.accept()
            except TimeoutError:
                continue
            threading.Thread(target=talk, args=(line,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        ending.set()
        thread.join(WAIT_MAX)
        listening.close()

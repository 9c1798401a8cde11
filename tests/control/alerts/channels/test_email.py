"""E-mail, by true traffic to a real SMTP server."""

import asyncio
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from flyball.config.alerts import Email
from flyball.control.alerts.channel import ChannelError, ForUser
from flyball.control.alerts.channels import open_channel
from flyball.core.time import SECOND, Span
from tests.control.alerts.channels.stage import HORSE, LINK, MESSAGE, QUICK, WRONG, failed, sent
from tests.servers import certificates
from tests.servers.smtp import MailServer, script


def _settings(
    port: int,
    *,
    security: str = "none",
    user: str = "",
    password: str = "",
    to: tuple[str, ...] = ("ops@example.org",),
    timeout: Span = 20 * SECOND,
    host: str = "127.0.0.1",
) -> Email:
    return Email(
        name="mail",
        host=host,
        port=port,
        security=security,
        user=user,
        password=password,
        sender="flyball@example.org",
        to=to,
        timeout=timeout,
    )


def test_what_people_get() -> None:
    """A mail in plain text and as HTML, with the links, to all who are listed."""
    with MailServer() as server:
        sent(_settings(server.port, to=("ops@example.org", "night@example.org")))
    (received,) = server.mails
    mail = received.mail
    assert (received.sender, received.to) == ("flyball@example.org", ["ops@example.org", "night@example.org"])
    assert (mail["Subject"], mail["Importance"]) == (MESSAGE.title, "high")
    assert mail["Auto-Submitted"] == "auto-generated"
    text, html = (mail.get_body((kind,)) for kind in ("plain", "html"))
    assert text is not None
    assert html is not None
    assert "3 failures of <Error> & co" in text.get_content()
    assert f"Reset 7f3a9c: {LINK}one" in text.get_content()
    assert "3 failures of &lt;Error&gt; &amp; co" in html.get_content()
    assert f'<a href="{LINK}two">Stop it</a>' in html.get_content()


def test_one_thread() -> None:
    """All mails about one thing answer the first; an attempt that is made again has the same Message-ID."""
    with MailServer() as server:
        settings = _settings(server.port)
        first = sent(settings)
        assert sent(settings) == first
        assert sent(settings, replace(MESSAGE, id="2"), first) == first
        assert sent(settings, replace(MESSAGE, id="3", resolved=True), first) == first
    ids = [received.mail["Message-ID"] for received in server.mails]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3
    assert [received.mail["In-Reply-To"] for received in server.mails] == [None, None, ids[0], ids[0]]
    assert [received.mail["References"] for received in server.mails] == [None, None, ids[0], ids[0]]
    assert "Importance" not in server.mails[3].mail
    body = server.mails[3].mail.get_body(("plain",))
    assert body is not None
    assert "Reset" not in body.get_content()


def _for(user: str, *, over: bool = False) -> ForUser:
    words = f"{'Resolved: ' if over else ''}{user} over its budget"
    return ForUser(user=user, title=words, text="1.00 USD", id=f"{user}-{over}", thread=user)


def test_user_is_told() -> None:
    """Each user whom it is about gets a mail of their own, of their own units, without links to act by and without the
    others' addresses (S1-37)."""
    spent = replace(
        MESSAGE, title="2 units over their budget", users=(_for("ann@example.com"), _for("bob@example.com"))
    )
    with MailServer() as server:
        sent(_settings(server.port, to=("ops@example.org", "user")), spent)
    assert [received.to for received in server.mails] == [["ops@example.org"], ["ann@example.com"], ["bob@example.com"]]
    told = server.mails[1].mail
    assert (told["To"], told["Subject"]) == ("ann@example.com", "ann@example.com over its budget")
    for hidden in (LINK, MESSAGE.url, "ops@example.org", "bob@example.com", "2 units", MESSAGE.text):
        assert hidden not in told.as_string()


def test_user_is_told_once() -> None:
    """However often the others are told more, a user is told once, and once that it is over, in the same thread."""
    with MailServer() as server:

        async def play() -> None:
            channel = open_channel(_settings(server.port, to=("ops@example.org", "user")))
            first = await channel.send(replace(MESSAGE, users=(_for("ann@example.com"),)), None)
            both = (_for("ann@example.com"), _for("bob@example.com"))
            await channel.send(replace(MESSAGE, id="2", users=both), first)
            over = (_for("ann@example.com", over=True),)
            await channel.send(replace(MESSAGE, id="3", resolved=True, users=over), first)
            await channel.close()

        asyncio.run(play())
    assert [received.to[0][:3] for received in server.mails] == ["ops", "ann", "ops", "bob", "ops", "ann"]
    told, over = server.mails[1].mail, server.mails[5].mail
    assert told["References"] == over["References"]
    assert told["Message-ID"] != over["Message-ID"]


def test_users_are_not_asked_for() -> None:
    """Where the settings do not say so, users get no mail."""
    with MailServer() as server:
        sent(_settings(server.port), replace(MESSAGE, users=(_for("ann@example.com"),)))
    assert [received.to for received in server.mails] == [["ops@example.org"]]


@pytest.mark.parametrize("user", ["", "ann", "ann@", "a\r\nBcc: x@example.org", "ann@example.org, eve@example.org"])
def test_user_without_address(user: str) -> None:
    """A user that is no address gets no mail, and is no error."""
    with MailServer() as server:
        assert sent(_settings(server.port, to=("user",)), replace(MESSAGE, users=(_for(user),))) == ""
        sent(_settings(server.port, to=("user", "ops@example.org")), replace(MESSAGE, users=(_for(user),)))
    assert [received.to for received in server.mails] == [["ops@example.org"]]


def test_one_part_fails() -> None:
    """When the user could not be told, the next attempt tells the user, and not the others a second time; when the
    others could not be, the user is told all the same."""
    message = replace(MESSAGE, users=(_for("ann@example.com"),))
    with MailServer() as server:

        async def play(refused: str) -> None:
            channel = open_channel(_settings(server.port, to=("ops@example.org", "user")))
            server.refuse = {refused: "451 try again later"}
            with pytest.raises(ChannelError) as caught:
                await channel.send(message, None)
            assert caught.value.retry
            server.refuse = {}
            await channel.send(message, None)
            await channel.close()

        asyncio.run(play("ann@example.com"))
        asyncio.run(play("ops@example.org"))
    assert [received.to[0][:3] for received in server.mails] == ["ops", "ann", "ann", "ops"]


def test_letters() -> None:
    """Titles may have any letters, and lines in them cannot become headers."""
    title = "größer 🚨\r\nBcc: eve@example.org"
    with MailServer() as server:
        sent(_settings(server.port), replace(MESSAGE, title=title))
    (received,) = server.mails
    assert received.mail["Subject"] == "größer 🚨 Bcc: eve@example.org"
    assert received.mail["Bcc"] is None
    assert received.to == ["ops@example.org"]


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_encrypted(security: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With STARTTLS, or TLS from the first byte, login and mail are encrypted. A certificate that is not trusted ends
    it before either is said."""
    made = certificates.make(tmp_path)
    context = made.server()
    tls = {"starttls": context} if security == "starttls" else {"tls": context}
    with MailServer(user="fly" if security == "starttls" else "", password=HORSE, **tls) as server:
        user = "fly" if security == "starttls" else ""
        settings = _settings(server.port, security=security, user=user, password=HORSE)
        error = failed(settings)
        assert not server.mails
        monkeypatch.setenv("SSL_CERT_FILE", str(made.file))
        sent(settings)
    assert error.retry
    assert "the certificate of 127.0.0.1 is not trusted" in str(error)
    assert [(received.encrypted, received.user) for received in server.mails] == [(True, user)]


def test_no_starttls() -> None:
    """A server that does not offer STARTTLS gets neither password nor mail."""
    with MailServer() as server:
        error = failed(_settings(server.port, security="starttls", user="fly", password=HORSE))
    assert not error.retry
    assert "does not offer STARTTLS" in str(error)
    assert not server.mails


def test_no_plain_password() -> None:
    """A password does not leave this machine unencrypted; nothing is even connected to."""
    error = failed(_settings(25, host="mail.example.org", user="fly", password=HORSE))
    assert not error.retry
    assert "plain text" in str(error)


def test_login() -> None:
    """The right password is taken; a wrong one is a failure that trying again does not mend."""
    with MailServer(user="fly", password=HORSE) as server:
        sent(_settings(server.port, user="fly", password=HORSE))
        error = failed(_settings(server.port, user="fly", password=WRONG))
    assert [received.user for received in server.mails] == ["fly"]
    assert not error.retry
    assert "does not accept the login: 535" in str(error)


@pytest.mark.parametrize(
    ("refuse", "retry", "says"),
    [
        ({"MAIL": "550 no such sender"}, False, "550 no such sender"),
        ({"MAIL": "451 later"}, True, "451 later"),
        ({"ops@example.org": "550 no such user"}, False, "550 no such user"),
        ({"ops@example.org": "450 mailbox busy"}, True, "450 mailbox busy"),
        ({"DATA": "554 looks like spam"}, False, "554 looks like spam"),
        ({"DATA": "452 disk full"}, True, "452 disk full"),
    ],
)
def test_refusals(refuse: dict[str, str], retry: bool, says: str) -> None:
    """A refusal for now is tried again, one for good is not."""
    with MailServer() as server:
        server.refuse = refuse
        error = failed(_settings(server.port))
    assert error.retry is retry
    assert says in str(error)


def test_some_receivers(caplog: pytest.LogCaptureFixture) -> None:
    """Of several receivers those that exist get it; the log names the others."""
    with MailServer() as server:
        server.refuse = {"gone@example.org": "550 no such user"}
        sent(_settings(server.port, to=("gone@example.org", "ops@example.org")))
    assert [received.to for received in server.mails] == [["ops@example.org"]]
    assert "gone@example.org is refused: 550" in caplog.text


@pytest.mark.parametrize("security", ["none", "tls", "starttls"])
def test_silent_server(security: str) -> None:
    """A server that says nothing is left after the time that the channel has."""
    with script() as port:
        began = time.monotonic()
        error = failed(_settings(port, security=security, timeout=QUICK))
    assert error.retry
    assert time.monotonic() - began < 5


def test_dripping_server() -> None:
    """A server that never stops saying something is left after that time too, and so is the thread that listened."""
    with script(drip=0.02) as port:

        async def play() -> None:
            channel = open_channel(_settings(port, timeout=QUICK))
            with pytest.raises(ChannelError) as caught:
                await channel.send(MESSAGE, None)
            assert caught.value.retry
            assert "within 0.5 s" in str(caught.value)
            with pytest.raises(ChannelError):  # the thread is free again
                await channel.send(MESSAGE, None)
            await channel.close()

        began = time.monotonic()
        asyncio.run(play())
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("lines", "retry"),
    [((b"554 go away\r\n",), False), ((b"421 too busy\r\n",), True), ((b"nonsense\r\n",), True), ((b"\xff\n",), True)],
)
def test_bad_greeting(lines: tuple[bytes, ...], retry: bool) -> None:
    """A server that does not want us, and one that speaks something else."""
    with script(*lines) as port:
        assert failed(_settings(port, timeout=QUICK)).retry is retry


def test_nobody_there() -> None:
    """A server that is not up, or whose name is not known, may be later."""
    with script() as port:
        pass
    assert "refused the connection" in str(failed(_settings(port)))
    unknown = failed(_settings(25, host="no-such-host.invalid"))
    assert unknown.retry
    assert "is not known" in str(unknown)


def test_cancelled() -> None:
    """Who does not want to wait any more does not wait; nothing is left behind that does."""
    with script() as port:

        async def play() -> None:
            channel = open_channel(_settings(port))
            sending = asyncio.ensure_future(channel.send(MESSAGE, None))
            await asyncio.sleep(0)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            await channel.close()

        began = time.monotonic()
        asyncio.run(play())
    assert time.monotonic() - began < 5

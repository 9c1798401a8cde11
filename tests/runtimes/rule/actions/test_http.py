"""Requests of rules, to a real server."""

import asyncio
import base64
import email.utils
import errno
import gzip
import logging
import socket
import sys
import time
import zlib
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from flyball import http_client
from flyball.config.rules import Http
from flyball.core.time import MINUTE, SECOND
from flyball.runtimes.rule import actions
from flyball.runtimes.rule.actions import http
from flyball.runtimes.rule.deed import TIMED_OUT, ActionFailed, Scene
from tests.runtimes.process.stage import until
from tests.runtimes.rule.actions.server import raw, says, serving
from tests.runtimes.rule.actions.stage import Stage, do, done, failed, mark, run

Answers = Callable[[socket.socket], None]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that runs this may have one."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_result(stage: Stage) -> None:
    """Status, headers and body are the result; what is JSON is there as such."""
    with serving(says("200 OK", b'{"price": 5, "of": ["a"]}', "Content-Type: application/json", "X-Who: me")) as server:
        result = done(stage.scene(), Http(url=f"{server.url}/price?of=a"))
    assert (result["status"], result["json"]) == (200, {"price": 5, "of": ["a"]})
    assert result["text"] == '{"price": 5, "of": ["a"]}'
    assert result["headers"]["x-who"] == "me"
    assert server.head().startswith("get /price?of=a http/1.1")


@pytest.mark.parametrize(
    ("deed", "line", "headers", "body"),
    [
        ({"method": "POST", "json": {"a": [1, None]}}, "post /", ["content-type: application/json"], b'{"a":[1,null]}'),
        ({"method": "post", "text": "ünï"}, "post /", ["content-type: text/plain; charset=utf-8"], "ünï".encode()),
        ({"method": "PUT", "json": {}, "headers": {"Content-Type": "x/y"}}, "put /", ["content-type: x/y"], b"{}"),
        ({"method": "DELETE"}, "delete /", ["user-agent: flyball", "accept-encoding: identity"], b""),
        ({"headers": {"X-Word": "ünï", "User-Agent": "me"}}, "get /", ["x-word: ünï", "user-agent: me"], b""),
        ({"json": False, "method": "POST"}, "post /", [], b"false"),
    ],
)
def test_what_is_sent(stage: Stage, deed: dict[str, Any], line: str, headers: list[str], body: bytes) -> None:
    """Method, headers and body are as the rule has them."""
    with serving(says()) as server:
        done(stage.scene(), Http(url=f"{server.url}/", **deed))
    assert server.head().startswith(line)
    assert set(headers) <= set(server.head().split("\r\n"))
    assert server.body() == body


@pytest.mark.parametrize(
    ("status", "expect", "is_success"),
    [
        (200, (), True),
        (204, (), True),
        (302, (), True),
        (399, (), True),
        (400, (), False),
        (500, (), False),
        (404, (404,), True),
        (200, (404,), False),
        (201, (200, 201), True),
        (302, (200,), False),
    ],
)
def test_success(stage: Stage, status: int, expect: tuple[int, ...], is_success: bool) -> None:
    """A status below 400 is a success, or one that was expected; a redirect is an answer, and not followed."""
    with serving(says(f"{status} So", b"", "Location: /elsewhere")) as server:
        deed = Http(url=server.url, expect=expect)
        if is_success:
            assert done(stage.scene(), deed)["status"] == status
        else:
            assert failed(stage.scene(), deed).status == status
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("status", "final"),
    [(400, True), (401, True), (404, True), (408, False), (425, False), (429, False), (500, False), (503, False)],
)
def test_whether_to_try_again(stage: Stage, status: int, final: bool) -> None:
    """What is wrong with the request itself is not tried again."""
    with serving(says(f"{status} No")) as server:
        assert failed(stage.scene(), Http(url=server.url)).final is final


@pytest.mark.parametrize(
    ("header", "wait", "final"),
    [
        ("7", 7 * SECOND, False),
        ("60", MINUTE, False),
        ("61", 0, True),
        ("999999999", 0, True),
        ("-5", 0, False),
        ("soon", 0, False),
        ("", 0, False),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0, False),
        ("Wed, 99 Foo 2015", 0, False),
    ],
)
def test_retry_after(stage: Stage, header: str, wait: int, final: bool) -> None:
    """Who asks to be left in peace is, for as long as a run of the rule may last; for a longer time the run is over."""
    with serving(says("429 Too Many Requests", b"", f"Retry-After: {header}")) as server:
        found = failed(stage.scene(), Http(url=server.url))
    assert (found.asks_to_wait, found.final) == (wait, final)


def test_retry_after_a_date(stage: Stage) -> None:
    """It may be a date as well."""
    date = email.utils.formatdate(time.time() + 30, usegmt=True)
    with serving(says("503 Busy", b"", f"Retry-After: {date}")) as server:
        found = failed(stage.scene(), Http(url=server.url))
    assert 20 * SECOND < found.asks_to_wait <= 30 * SECOND


# What comes back.


@pytest.mark.parametrize(
    ("body", "headers", "text", "value"),
    [
        (b"\xfc", ("Content-Type: text/plain; charset=latin-1",), "ü", None),
        (b"\xc3\xbc", ("Content-Type: text/plain; charset=nonsense",), "ü", None),
        (b"\xff{", (), "�{", None),
        (b"[" * 100_000, (), "[" * 100_000, None),
        (b"5", (), "5", 5),
        (gzip.compress(b'{"a": 1}'), ("Content-Encoding: gzip",), '{"a": 1}', {"a": 1}),
        (zlib.compress(b"[]"), ("Content-Encoding: deflate",), "[]", []),
        (b"plain", ("Content-Encoding: gzip",), "plain", None),
    ],
    ids=["latin-1", "nonsense", "no text", "deep", "number", "gzip", "deflate", "not packed"],
)
def test_bodies(stage: Stage, body: bytes, headers: tuple[str, ...], text: str, value: Any) -> None:
    """Whatever a server sends becomes text, and JSON where it is some."""
    with serving(says("200 OK", body, *headers)) as server:
        result = done(stage.scene(), Http(url=server.url))
    assert (result["text"], result["json"]) == (text, value)


@pytest.mark.parametrize("packed", [False, True])
def test_long_bodies(stage: Stage, packed: bool) -> None:
    """Of a long answer the beginning is read, also of one that is small only because it is packed."""
    body = b"[" + b"0," * (30 * http.BODY_MAX) + b"0]"
    sent = gzip.compress(body, 1) if packed else body
    with serving(says("200 OK", sent, *(["Content-Encoding: gzip"] if packed else []))) as server:
        result = done(stage.scene(), Http(url=server.url))
    assert result["text"] == body[: http.BODY_MAX].decode()
    assert result["json"] is None


def test_endless_body(stage: Stage) -> None:
    """An answer without end is not waited for."""

    def endless(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65_536)

    with serving(endless) as server:
        assert len(done(stage.scene(), Http(url=server.url))["text"]) == http.BODY_MAX


def test_no_cookies(stage: Stage) -> None:
    """What one request was given is not sent with the next: rules share nothing."""
    with serving(says("200 OK", b"", "Set-Cookie: who=me")) as server:
        for _ in range(2):
            done(stage.scene(), Http(url=server.url))
    assert "cookie" not in server.head()


def test_proxy_of_the_environment(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that the environment names is used."""
    with serving(says("200 OK", b"by proxy")) as server:
        monkeypatch.setenv("http_proxy", server.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert done(stage.scene(), Http(url="http://shop.invalid/x"))["text"] == "by proxy"
    assert server.head().startswith("get http://shop.invalid/x")


# What goes wrong.


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


FAILURES: dict[str, tuple[Answers, str, dict[str, Any]]] = {
    "status": (says("500 Oops"), "{url}/x", {"error": "HttpStatus", "status": 500}),
    "other status": (says("502 Oops"), "{url}/x", {"error": "HttpStatus", "status": 502}),
    "other place": (says("500 Oops"), "{url}/y", {"error": "HttpStatus", "status": 500}),
    "refused": (says(), "http://127.0.0.1:{free}/", {"error": "ConnectionRefused"}),
    "unknown host": (says(), "http://nowhere.invalid/", {"error": "UnknownHost"}),
    "no TLS": (says(), "https://{place}/", {"error": "TlsFailed"}),
    "closed": (raw(b""), "{url}/", {"error": "ConnectionLost"}),
    "closed half-way": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"), "{url}/h", {"error": "ConnectionLost"}),
    "no HTTP": (raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "{url}/", {"error": "BadAnswer"}),
    "bad URL": (says(), "http://{place}:x/", {"error": "BadUrl", "final": True}),
    "no URL": (says(), "price", {"error": "BadUrl", "final": True}),
    "other kind of URL": (says(), "file:///etc/passwd", {"error": "BadUrl", "final": True}),
}


@pytest.mark.parametrize("case", FAILURES)
def test_failures(stage: Stage, case: str) -> None:
    """Each way to fail has its name, and the same fingerprint each time."""
    answer, form, expected = FAILURES[case]
    with serving(answer) as server:
        url = form.format(url=server.url, place=server.place, free=_free_port())
        errors = [failed(stage.scene(), Http(url=url)) for _ in range(2)]
    found = {name: getattr(errors[0], name) for name in ("error", "status", "final", "starved")}
    assert found == {"status": None, "final": False, "starved": False, **expected}
    assert mark(errors[0]) == mark(errors[1])


@pytest.mark.parametrize(
    ("error", "name", "starved"),
    [
        (httpx.ConnectTimeout("x"), "ConnectTimeout", False),
        (httpx.ProxyError("407 x"), "ProxyFailed", False),
        (OSError(errno.EMFILE, "x"), "ConnectionLost", True),
        (OSError(errno.ENETUNREACH, "x"), "Unreachable", False),
        (OSError(errno.EHOSTUNREACH, "x"), "Unreachable", False),
        (OSError(errno.EACCES, "x"), "CannotConnect", False),
        (OSError("x", "y"), "CannotConnect", False),
        (ExceptionGroup("x", [OSError(errno.ECONNREFUSED, "x")]), "ConnectionRefused", False),
    ],
)
def test_names(error: Exception, name: str, starved: bool) -> None:
    """What cannot be had from a server here: the same name for the same reason."""
    if name in ("Unreachable", "CannotConnect", "ConnectionRefused"):
        outer = httpx.ConnectError("x")
        outer.__cause__ = error
        error = outer
    found = http._unanswered(error, "http://host/", "host")
    assert (found.error, found.starved) == (name, starved)
    assert "host" in str(found)


@pytest.mark.parametrize(
    "deed",
    [
        {"headers": {"X-Word": "two\r\nlines"}},
        {"headers": {"X Word": "x"}},
        {"method": "GE T"},
        {"json": {"a": object()}, "method": "POST"},
        {"text": "\ud800", "method": "POST"},
        {"headers": {"X-Word": "\ud800"}},
    ],
)
def test_bad_requests(stage: Stage, deed: dict[str, Any]) -> None:
    """A request that cannot be sent is a failure that another attempt does not help; nothing is sent."""
    with serving(says()) as server:
        found = failed(stage.scene(), Http(url=server.url, **deed))
    assert (found.error, found.final) == ("BadRequest", True)
    assert not any(server.asked)


def test_no_certificates(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trusted certificates that cannot be read are a failure that says so; when they can be, it is over."""
    http_client.certificates.cache_clear()
    with serving(says()) as server:
        with monkeypatch.context() as without:
            without.setenv("SSL_CERT_FILE", "/nowhere")
            assert failed(stage.scene(), Http(url=server.url)).error == "NoCertificates"
        assert done(stage.scene(), Http(url=server.url))["status"] == 200


def test_too_long(stage: Stage) -> None:
    """More than a request may have is not sent."""
    found = failed(stage.scene(), Http(url="http://127.0.0.1:1/", method="POST", text="x" * (http.SENT_MAX + 1)))
    assert (found.error, found.final) == ("RequestTooLong", True)


@pytest.mark.parametrize("begins", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nx"])
def test_timeout(stage: Stage, begins: bytes) -> None:
    """A server that does not answer, or not to the end, is not waited for."""

    def hangs(connection: socket.socket) -> None:
        connection.sendall(begins)
        connection.recv(1)  # until the other side gives up

    with serving(hangs) as server:
        found = failed(stage.scene(), Http(url=server.url), seconds=0.3)
    assert (found.error, found.final) == (TIMED_OUT, False)


def test_cancelled(stage: Stage) -> None:
    """When it is cancelled the connection is closed."""
    closed: list[bytes] = []

    def hangs(connection: socket.socket) -> None:
        closed.append(connection.recv(1))

    async def play(scene: Scene, url: str, asked: list[bytes]) -> None:
        doing = asyncio.ensure_future(do(scene, Http(url=url)))
        await until(lambda: asked)
        doing.cancel()
        await asyncio.wait((doing,))
        assert doing.cancelled()
        await until(lambda: closed)

    with serving(hangs) as server:
        run(play(stage.scene(), server.url, server.asked))
    assert closed == [b""]


SECRETS = ("hunter2hunter2", "tokentoken", "secretpath", "deadbeef")


@pytest.mark.parametrize("case", ["status", "closed", "refused", "bad URL", "bad header"])
def test_secrets(stage: Stage, case: str, caplog: pytest.LogCaptureFixture) -> None:
    """No header, password or part of an address but its host is in what people read, nor in the log."""
    caplog.set_level(logging.DEBUG)
    header, token, path, query = SECRETS
    answer = raw(b"") if case == "closed" else says("500 Oops", f"{header} is not allowed".encode())
    with serving(answer) as server:
        place = {"refused": f"127.0.0.1:{_free_port()}", "bad URL": "127.0.0.1:x"}.get(case, server.place)
        word = f"Bearer {header}" + ("\r\n" if case == "bad header" else "")
        deed = Http(url=f"http://me:{token}@{place}/{path}?key={query}", headers={"Authorization": word})
        found = failed(stage.scene(), deed)
    shown = f"{found} {found.detail} {found.__cause__} {[record.getMessage() for record in _ours(caplog)]}"
    assert not [secret for secret in SECRETS if secret in shown]
    assert not [secret for secret in (header, token, query) if secret in found.target]


def test_answer_says_what_it_was_asked(stage: Stage) -> None:
    """An answer that has the request in it tells nobody the secrets of that: headers, password, query."""

    def echo(connection: socket.socket) -> None:
        says("500 Oops", server.asked[-1])(connection)

    with serving(echo) as server:
        url = f"http://me:pass%20word@{server.place}/path?key=dead%20beef&other=1"
        found = failed(stage.scene(), Http(url=url, headers={"X-Key": "tokentoken"}))
    assert "/path" in found.detail
    basic = base64.b64encode(b"me:pass word").decode()
    assert f"Basic {basic}" in server.asked[-1].decode(), "that is how a password in an address is sent"
    secrets = (basic, "pass%20word", "pass word", "dead%20beef", "dead beef", "tokentoken")
    assert not [secret for secret in secrets if secret in found.detail]


def _ours(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """At the level that a daemon logs at."""
    return [record for record in caplog.records if record.levelno >= logging.INFO]


def test_not_installed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without httpx a request is a failure that says what to install."""
    monkeypatch.setitem(sys.modules, "httpx", None)
    monkeypatch.delitem(sys.modules, "flyball.runtimes.rule.actions.http", raising=False)

    async def play() -> None:
        await actions._later("http")(stage.scene(), Http(url="http://127.0.0.1:1/"), 1.0)

    with pytest.raises(ActionFailed) as caught:
        run(play())
    assert (caught.value.error, caught.value.final) == ("NotInstalled", True)
    assert "pip install 'flyball-governor[rules]'" in str(caught.value)

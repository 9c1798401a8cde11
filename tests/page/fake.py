"""A server that speaks what the page expects, without a daemon behind it: for states that no real fleet gets into on
demand (ten thousand units, a hostile name, another role), and for measuring the page alone."""

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import flyball.control

STATIC = Path(flyball.control.__file__).parent / "web" / "static"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'"
ALIVE_EVERY = 5.0
CSRF = "csrf-1"

Answer = Callable[[Mapping[str, Any]], Any]


def row(name: str, **fields: Any) -> dict[str, Any]:
    """A unit's row, healthy and running unless told otherwise."""
    return {
        "name": name,
        "kind": "unit",
        "state": "healthy",
        "held": False,
        "running": True,
        "since": time.time() - 3600,
        "until": None,
        "restarts": 0,
        "restarts_total": 0,
        "often": False,
        "failures": 0,
        "reason": "",
        "code": "",
        "error": "",
        "spent": 0,
        "limit": 0,
        "user": "",
        "waiting": 0,
        "questions": 0,
        "host": "",
        "problem": "",
        **fields,
    }


def problem(unit: str, code: str = "quarantined", **fields: Any) -> dict[str, Any]:
    """A problem with one safe thing to do."""
    return {
        "id": f"{unit}:{code}",
        "unit": unit,
        "code": code,
        "kind": "unit",
        "severity": "critical",
        "title": f"{unit} {code}" if unit else code,
        "text": "6 failures in 41 min",
        "remedy": "Will not retry until it is reset.",
        "fingerprint": "",
        "error": "",
        "since": time.time() - 840,
        "count": 1,
        "actions": [],
        "acknowledged": False,
        "by": "",
        "snoozed_until": None,
        **fields,
    }


class FakeServer:
    """What the page sees of a daemon. `orders` has all that was ordered; `answers` says what is answered to a verb."""

    def __init__(self, rows: Sequence[Mapping[str, Any]] = (), *, role: str = "admin") -> None:
        self.rows = {one["name"]: dict(one) for one in rows}
        self.problems: list[dict[str, Any]] = []
        self.fleet: dict[str, Any] = {
            "state": "running",
            "held": False,
            "reasons": [],
            "breaker": "closed",
            "breakers": [],
            "storm": False,
            "orders": [],
        }
        self.role = role
        self.logged_in = True
        self.silent = False
        """It keeps its streams open, and says nothing."""
        self.orders: list[tuple[str, dict[str, Any], str]] = []
        """Verb, arguments, CSRF header."""
        self.answers: dict[str, Answer] = {
            "spend": lambda _: {"points": [], "limit": None, "spent": 0, "meter": "usd", "at": time.time()},
            "events": lambda _: {"events": [], "last": 0},
        }
        self.files: dict[str, tuple[str, bytes]] = {}
        """Beside those of the page: by path, of which type, and what is in them."""
        self.rev = 0
        self.started = time.time() - 6 * 86400
        self._streams: list[queue.SimpleQueue[bytes | None]] = []
        self._lock = threading.Lock()

    # What is told.

    def totals(self) -> dict[str, Any]:
        """Counted from the rows."""
        states = [one["state"] for one in self.rows.values()]
        over = [one for one in self.rows.values() if one["limit"] and one["spent"] >= one["limit"]]
        return {
            "units": len(self.rows),
            "running": sum(one["running"] for one in self.rows.values()),
            **{word: states.count(word) for word in ("cooling", "quarantined", "halted", "paused", "failed")},
            "over_budget": len(over),
            "restarts_hour": sum(one["restarts"] for one in self.rows.values()),
            "spent_day": sum(one["spent"] for one in self.rows.values()),
            "limit_day": 20_000_000,
            "needs": sum(not (one["acknowledged"] or one["snoozed_until"]) for one in self.problems),
        }

    def frame(
        self,
        units: Sequence[Mapping[str, Any]],
        *,
        full: bool,
        gone: Sequence[str] = (),
        counted: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """A frame of these rows. Totals (counted now, unless they are given) and problems are in it; the fleet only if
        it is a full one."""
        return {
            "epoch": "e1",
            "rev": self.rev,
            "full": full,
            "at": time.time(),
            "units": list(units),
            "gone": list(gone),
            "fleet": self.fleet if full else None,
            "totals": self.totals() if counted is None else counted,
            "problems": self.problems,
        }

    def change(self, *rows: Mapping[str, Any], gone: Sequence[str] = ()) -> None:
        """Tell all streams of changed rows, or of changed problems."""
        with self._lock:
            self.rev += 1
            for one in rows:
                self.rows[one["name"]] = dict(one)
            for name in gone:
                self.rows.pop(name, None)
            self._send(self.frame(rows, full=False, gone=gone))

    def send(self, frame: Mapping[str, Any]) -> None:
        """Tell all streams just that."""
        with self._lock:
            self._send(frame)

    def _send(self, frame: Mapping[str, Any]) -> None:
        text = message("board", frame)
        for stream in self._streams:
            stream.put(text)

    def listen(self) -> "queue.SimpleQueue[bytes | None]":
        """A new stream; the whole board is in it already."""
        stream: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        with self._lock:
            stream.put(message("board", self.frame(list(self.rows.values()), full=True)))
            self._streams.append(stream)
        return stream

    def beat(self) -> None:
        """A sign of life, for pages whose time goes faster than ours."""
        with self._lock:
            for stream in self._streams:
                stream.put(message("alive", {"at": time.time()}))

    def hang_up(self) -> None:
        """End all streams."""
        with self._lock:
            for stream in self._streams:
                stream.put(None)
            self._streams.clear()

    # What is asked.

    def ask(self, verb: str, args: Mapping[str, Any]) -> Any:
        """The answer to a look."""
        match verb:
            case "me":
                return {
                    "who": "ann",
                    "role": self.role,
                    "csrf": CSRF,
                    "host": "prod-box",
                    "version": "1",
                    "pid": 1,
                    "started": self.started,
                }
            case "board":
                return self.frame(list(self.rows.values()), full=True)
            case _ if verb in self.answers:
                return self.answers[verb](args)
        return None


def message(event: str, data: Any) -> bytes:
    """One server-sent event."""
    return f"event: {event}\ndata: {json.dumps(data)}\n\n".encode()


@contextlib.contextmanager
def serving(fake: FakeServer) -> Iterator[str]:
    """Its address, as long as it is there."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if not fake.logged_in:
                return self._answer(401, b"<!doctype html><title>Log in</title><h1>Log in</h1>", "text/html")
            if url.path == "/api/v1/board/stream":
                return self._stream()
            if url.path.startswith("/api/v1/"):
                found = fake.ask(url.path.removeprefix("/api/v1/"), parse_qs(url.query))
                if found is None:
                    error = {"error": {"code": "not_found", "text": f"no {url.path}", "remedy": ""}}
                    return self._answer(404, json.dumps(error).encode(), "application/json")
                return self._answer(200, json.dumps(found).encode(), "application/json")
            if url.path in fake.files:
                kind, content = fake.files[url.path]
                return self._answer(200, content, kind)
            file = STATIC / (url.path.removeprefix("/static/") if url.path != "/" else "index.html")
            if not file.is_file() or not file.resolve().is_relative_to(STATIC):
                return self._answer(404, b"", "text/plain")
            return self._answer(200, file.read_bytes(), TYPES.get(file.suffix, "application/octet-stream"))

        def do_POST(self) -> None:
            verb = self.path.removeprefix("/api/v1/")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            args = json.loads(body or b"{}")
            fake.orders.append((verb, args, self.headers.get("X-Flyball-CSRF", "")))
            answer = fake.answers[verb](args) if verb in fake.answers else {}
            status = 409 if isinstance(answer, dict) and "error" in answer else 200
            self._answer(status, json.dumps(answer).encode(), "application/json")

        def _stream(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            stream = fake.listen()
            with contextlib.suppress(OSError):
                while True:
                    try:
                        text = stream.get(timeout=ALIVE_EVERY)
                    except queue.Empty:
                        text = message("alive", {"at": time.time()})
                    if text is None:
                        return
                    if not fake.silent:
                        self.wfile.write(text)

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Security-Policy", CSP)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # a browser that hangs up is no news

    server = Quiet(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        fake.hang_up()
        server.shutdown()
        server.server_close()
        thread.join(5)

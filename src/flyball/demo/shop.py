"""The shop: a real HTTP server on this machine, with a page for a browser and an API that can stop answering."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self

PAGE: Final = b"""<!doctype html><title>The shop</title><h1>Tea, 3.50</h1><button id="buy">Buy</button>"""
"""Its button was called #buy-now once, and is called #buy since."""
SILENT_MAX: Final = 60.0
"""Seconds that a request is left without an answer at most: long after whoever asked has given up."""


class Shop(ThreadingHTTPServer):
    """The shop, open as long as the block lasts."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = threading.Event()
        """Whether the API answers; while it does not, it is silent, as a machine is that hangs."""
        self.answers.set()
        self.was_down = False
        """An import is at its end only after an outage: so each is in the midst of its work when that comes."""
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.answers.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def go_down(self) -> None:
        """From now on the API says nothing."""
        self.was_down = True
        self.answers.clear()

    def come_back(self) -> None:
        """It answers again."""
        self.answers.set()

    def handle_error(self, request: object, client_address: object) -> None:
        """Who gives up, or is killed, leaves its connection as it is: that is nobody's fault here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Shop

    def do_GET(self) -> None:
        if self.path == "/":
            self._answer(200, PAGE, "text/html")
        elif self.path.startswith("/api/"):
            self.server.answers.wait(SILENT_MAX)
            self._answer(200, json.dumps({"last": self.server.was_down}).encode())
        else:
            self._answer(404)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(404)

    def _answer(self, status: int, body: bytes = b"{}", kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is Python's
        """It says nothing: what is seen is told by the narrator."""

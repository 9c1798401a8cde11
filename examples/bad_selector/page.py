"""A shop with one page, on this machine. Its button was called #buy-old once, and is called #buy now."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = b"""<!doctype html><title>The shop</title><h1>Tea, 3.50</h1>
<button id="buy">Buy</button>
<script>
  document.querySelector("#buy").onclick = async () => {
    await fetch("/buy", {method: "POST"});
    document.body.insertAdjacentHTML("beforeend", "<p id=thanks>Thank you</p>");
  };
</script>
"""


class Shop(ThreadingHTTPServer):
    """The shop. `sold` is how often something was bought."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.sold = 0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Who is killed leaves its connection as it is: that is nobody's fault here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Shop

    def do_GET(self) -> None:
        if self.path == "/":
            self._answer(200, PAGE)
        else:
            self._answer(404)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/buy":
            self.server.sold += 1
            self._answer(200, b"{}", "application/json")
        else:
            self._answer(503)

    def _answer(self, status: int, body: bytes = b"", kind: str = "text/html") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is Python's
        """It says nothing: what is seen is said by the walk."""


@contextmanager
def opened() -> Iterator[Shop]:
    """The shop, as long as it is open."""
    with Shop() as shop:
        thread = threading.Thread(target=shop.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield shop
        finally:
            shop.shutdown()
            thread.join()

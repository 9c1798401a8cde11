"""A web server on this machine with the pages that browsers meet in tests: good ones, broken ones, hostile ones."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SHOP = """<title>The shop</title><h1>  Best
 price </h1><input id=q value=old><button id=buy>Buy</button>
<button id=off disabled>Off</button><p id=hidden style="display:none">secret</p><div id=late></div>
<script>
  const $ = (selector) => document.querySelector(selector);
  $("#buy").onclick = () => { $("h1").textContent = "Bought " + $("#q").value };
  setTimeout(() => { $("#late").innerHTML = "<b id=done>Done</b>" }, 300);
</script>
"""
PAGES = {
    "/shop": SHOP,
    "/endless": "<title>x</title><script>while (true) {}</script>",
    "/hangs": "<title>x</title><button id=go onclick='setTimeout(() => { while (true) {} }, 0)'>Go</button>",
    "/popups": "<title>Popups</title><script>for (let i = 0; i < 5; i++) window.open('/shop')</script><h1>Here</h1>",
    "/alert": "<title>Alert</title><script>alert('stop!')</script><h1>After</h1>",
    "/long": "<title>" + "t" * 5_000 + "</title><p>" + "x" * 200_000 + "</p>",
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        status, kind, body = 200, "text/html", PAGES.get(path, "")
        if path.startswith("/status/"):
            status, body = int(path.rpartition("/")[2]), "<h1>Error</h1>"
        elif path == "/download":
            kind, body = "application/octet-stream", "x" * 1_000
        elif path not in PAGES:
            status, body = 404, "<h1>Nothing</h1>"
        sent = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is Python's
        """A test prints nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that is killed leaves its connections as they are."""


@contextmanager
def served() -> Iterator[str]:
    """The address of such a server, as long as it runs."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()

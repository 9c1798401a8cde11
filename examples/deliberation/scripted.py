"""A model that is a script, behind a real HTTP server: it speaks OpenAI's chat completions on a free port of the
loopback, and ends with the block.

It reads what it is asked as any model does, and finds in it which task it has, who it is and which round it is. Its
usage is what it is paid by: a quarter of a token for each character, as a rule of thumb.
"""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

AGREES_IN = 3
"""The round in which the last of them comes round to the first answer."""

VIEWS = (
    "The numbers carry it only if the first quarter holds; I would stage the spending and look again.",
    "Customers asked for this twice; what they will not forgive is a half-finished move.",
    "Nobody has named the failure that we would regret: write it down, then decide.",
    "The team can build it, but not beside everything else; something has to be dropped first.",
    "Rules in two of our markets are about to change; keep a way back until they are published.",
)
SETTLED = "We do it in stages: a small first step, one owner, a date to look again, and a way back that is tested."


class Refused(Exception):
    """It cannot be asked so."""


@dataclass(frozen=True)
class Script:
    """How the model behaves."""

    never_agree: bool = False
    thinks: bool = False
    """It uses all the output that it may, in thoughts that are paid and never seen."""
    hangs: bool = False
    """From the second round on it never answers."""


@contextmanager
def serve(script: Script) -> Iterator[str]:
    """The address of the server, as `OPENAI_BASE_URL` has it."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path != "/v1/chat/completions":
                self._say(404, {"error": {"message": f"there is no {self.path}"}})
                return
            if script.hangs and _round(asked) > 1:
                over.wait()
            try:
                self._say(200, _completion(script, asked))
            except Refused as refused:
                self._say(400, {"error": {"message": str(refused), "type": "invalid_request_error"}})

        def _say(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                self.close_connection = True  # whoever asked is gone

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False  # one that hangs is not waited for
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _completion(script: Script, asked: dict[str, Any]) -> dict[str, Any]:
    text = _answer(script, asked)
    written = asked.get("max_tokens", 400) if script.thinks else max(1, len(text) // 4)
    read = max(1, sum(len(message["content"]) for message in asked["messages"]) // 4)
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "model": asked["model"],
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }


def _answer(script: Script, asked: dict[str, Any]) -> str:
    if [message.get("role") for message in asked["messages"]] != ["system", "user"]:
        raise Refused("this model is asked with one system message and one of the user")
    system, user = (message["content"] for message in asked["messages"])
    number = _round(asked)
    task = re.match(r"Task: (\w+)", system)
    match task and task[1]:
        case "decompose":
            parts = ["What does it cost, and when?", "Who has to do it?", "How do we get back if it fails?"]
            return json.dumps({"parts": parts, "options": ["in stages", "at once", "not now"]})
        case "select":
            return json.dumps({"board": re.findall(r"^- (\w+)", user, re.MULTILINE)[:5]})
        case "facilitate":
            return "Say what would change your mind, and answer whoever spoke against you."
        case "speak":
            return json.dumps(_view(script, system, number))
        case _:
            heard = len(re.findall(r"^- ", user, re.MULTILINE))
            return f"Go in stages, with a tested way back and one owner. This rests on {heard} statements of the board."


def _view(script: Script, system: str, number: int) -> dict[str, str]:
    """What one voice says. Those that agree do so one after the other, until all do."""
    seat = int(re.search(r"seat (\d+)", system)[1])  # type: ignore[index]  # every voice has a seat
    options = re.findall(r"^([A-Z])\)", system, re.MULTILINE)
    if script.never_agree:
        doubt = f"In round {number} I hold to it, and add reason {number}{seat}."
        return {"position": options[seat % len(options)], "text": f"{VIEWS[seat % len(VIEWS)]} {doubt}"}
    if number >= AGREES_IN or seat < number:
        return {"position": options[0], "text": SETTLED}
    return {"position": options[seat % len(options)], "text": VIEWS[seat % len(VIEWS)]}


def _round(asked: dict[str, Any]) -> int:
    found = re.search(r"Round (\d+)", asked["messages"][-1]["content"])
    return int(found[1]) if found else 0

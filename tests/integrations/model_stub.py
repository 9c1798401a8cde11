"""A model on this machine: it speaks the OpenAI protocol (chat completions and responses) and says what it is told to.

A script is asked for each reply, by its number. After `CALLS_MAX` of them the stub gives up and says so: an agent that
nobody stops would otherwise go on for ever.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CALLS_MAX = 50
"""Replies before it gives up."""

INPUT_TOKENS, OUTPUT_TOKENS = 100, 10
"""What each reply says that it used."""

GIVES_UP = "I give up."


@dataclass(frozen=True)
class Reply:
    """What the model says, calls, or fails with."""

    text: str = ""
    tool: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    times: int = 1
    """So many calls of the tool at once."""
    status: int = 200


Script = Callable[[int], Reply]


def always(reply: Reply) -> Script:
    """The same for ever."""
    return lambda _: reply


def each(*replies: Reply) -> Script:
    """One after the other; the last of them for ever."""
    return lambda number: replies[min(number, len(replies)) - 1]


class ModelStub:
    """Where it listens, and what it was asked."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def calls(self) -> int:
        """How often the model was called."""
        return len(self.requests)

    def was_told(self, text: str) -> int:
        """In how many requests the model could read that."""
        return sum(text in json.dumps(request, ensure_ascii=False) for request in self.requests)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str, request: dict[str, Any]) -> tuple[int, list[dict[str, Any]], bool]:
        """Status, what is sent, and whether it is a stream of it."""
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
        reply = self.script(number) if number <= CALLS_MAX else Reply(text=GIVES_UP)
        if reply.status != 200:
            return reply.status, [{"error": {"message": "the model failed", "type": "server_error"}}], False
        if path.endswith("/responses"):
            return 200, [_response(number, reply)], False
        if request.get("stream"):
            return 200, list(_chunks(number, reply)), True
        return 200, [_completion(number, reply)], False


@contextmanager
def model_stub(script: Script) -> Iterator[ModelStub]:
    """A stub that is gone after the block."""
    stub = ModelStub(script)
    try:
        yield stub
    finally:
        stub.close()


def _handler(stub: ModelStub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answers, streams = stub.answer(self.path, json.loads(body))
            if streams:
                text = "".join(f"data: {json.dumps(answer)}\n\n" for answer in answers) + "data: [DONE]\n\n"
            else:
                text = json.dumps(answers[0])
            self.send_response(status)
            self.send_header("Content-Type", "text/event-stream" if streams else "application/json")
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class has it so
            pass

    return Handler


def _tool_calls(number: int, reply: Reply) -> list[dict[str, Any]]:
    function = {"name": reply.tool, "arguments": json.dumps(reply.arguments)}
    return [{"id": f"call_{number}_{n}", "type": "function", "function": function} for n in range(reply.times)]


def _usage() -> dict[str, int]:
    total = INPUT_TOKENS + OUTPUT_TOKENS
    return {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS, "total_tokens": total}


def _completion(number: int, reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.tool:
        message["tool_calls"] = _tool_calls(number, reply)
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if reply.tool else "stop"}
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "stub-1",
        "choices": [choice],
        "usage": _usage(),
    }


def _chunks(number: int, reply: Reply) -> Iterator[dict[str, Any]]:
    base = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "stub-1"}
    if reply.tool:
        calls = [{"index": index, **call} for index, call in enumerate(_tool_calls(number, reply))]
        delta: dict[str, Any] = {"role": "assistant", "tool_calls": calls}
        yield {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    for word in reply.text.split():
        delta = {"role": "assistant", "content": word + " "}
        yield {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    reason = "tool_calls" if reply.tool else "stop"
    yield {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    yield {**base, "choices": [], "usage": _usage()}


def _response(number: int, reply: Reply) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if reply.text:
        content = {"type": "output_text", "text": reply.text, "annotations": []}
        message = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
        output.append({**message, "content": [content]})
    for made in _tool_calls(number, reply) if reply.tool else ():
        call = {"type": "function_call", "id": f"fc_{made['id']}", "call_id": made["id"], "status": "completed"}
        output.append({**call, **made["function"]})
    usage = {
        "input_tokens": INPUT_TOKENS,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": OUTPUT_TOKENS,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
    }
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_700_000_000,
        "model": "stub-1",
        "status": "completed",
        "output": output,
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
    }

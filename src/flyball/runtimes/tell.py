"""Speaking to the supervisor from inside a run: one datagram to the notify socket, and the answer to it.

This is all that a child needs, in any language; nothing here needs the rest of flyball.
"""

import contextlib
import json
import os
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from flyball.errors import FlyballError

ANSWER_MAX: Final = 10.0
"""Seconds to wait for an answer. It takes one commit, milliseconds: who has not answered by then is not there."""
ANSWER_BYTES_MAX: Final = 65_536

MAKES_UP_NAMES: bool = os.uname().sysname == "Linux"
"""Whether the system finds a name for a socket that is to have one."""

Pairs = Sequence[tuple[str, str]]


def tell(pairs: Pairs, env: Mapping[str, str] = os.environ) -> None:
    """Say something that needs no answer. FlyballError if nobody listens."""
    with _connected(env) as connected:
        connected.send(_message(pairs, env))


def ask(pairs: Pairs, env: Mapping[str, str] = os.environ, *, answer_max: float = ANSWER_MAX) -> dict[str, Any]:
    """Say something and wait for the answer to it. FlyballError if there is none: no answer is no leave."""
    with _connected(env) as connected, _address_for(connected):
        connected.settimeout(answer_max)
        try:
            connected.send(_message(pairs, env))
            data = connected.recv(ANSWER_BYTES_MAX)
        except TimeoutError:
            raise FlyballError(
                f"the supervisor has not answered within {answer_max:g} s",
                remedy="Is it still there? `flyball status` tells.",
            ) from None
    answer = json.loads(data)
    if "error" in answer:
        raise FlyballError(
            f"the supervisor refused the report: {answer['error']}",
            remedy="Report it as the page on reports has it: nothing of this one was counted.",
        )
    assert isinstance(answer, dict)  # noqa: S101 - the supervisor's own word
    return answer


def _message(pairs: Pairs, env: Mapping[str, str]) -> bytes:
    run = [("X_FLYBALL_RUN", env["FLYBALL_RUN"])] if env.get("FLYBALL_RUN") else []
    return "\n".join(f"{key}={value}" for key, value in (*pairs, *run)).encode("utf-8", "replace")


@contextlib.contextmanager
def _connected(env: Mapping[str, str]) -> Iterator[socket.socket]:
    path = env.get("NOTIFY_SOCKET", "")
    if not path:
        raise FlyballError(
            "there is nobody to report to: NOTIFY_SOCKET is not set",
            remedy="This works inside what flyball runs: `flyball run -- COMMAND`, or a unit of `flyball up`.",
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connected:
        try:
            connected.connect("\0" + path[1:] if path.startswith("@") else path)
            yield connected
        except TimeoutError:
            raise
        except OSError as error:
            raise FlyballError(
                f"cannot report to {path}: {error.strerror or error}",
                remedy="Is the supervisor still there? `flyball status` tells.",
            ) from None


@contextlib.contextmanager
def _address_for(connected: socket.socket) -> Iterator[None]:
    """Somewhere to send an answer to. Linux makes up a name; elsewhere it is a file."""
    if MAKES_UP_NAMES:
        connected.bind("")
        yield
        return
    with tempfile.TemporaryDirectory(prefix="flyball-") as folder:
        connected.bind(os.fspath(Path(folder) / "answer"))
        yield

"""Real children for tests: started in a session of their own, and gone with all they started when the test ends."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

WITHIN = 10.0
"""Seconds after which what a test waits for is given up."""

SAY = """
import os, socket, sys
def say(*lines, files=()):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.connect(os.environ["NOTIFY_SOCKET"])
        socket.send_fds(s, ["\\n".join(lines).encode()], list(files)) if files else s.send("\\n".join(lines).encode())
"""
"""For the text of a Python child: how to say something, written by hand as any program would."""


@contextlib.contextmanager
def python(text: str, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A Python child that knows `say`."""
    with command(sys.executable, "-c", SAY + textwrap.dedent(text), env=env) as child:
        yield child


@contextlib.contextmanager
def command(*words: str, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Any child. It can be ended by closing its standard input, too."""
    child = subprocess.Popen(
        words,
        env={**os.environ, **(env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


async def until(happened: Callable[[], object], within: float = WITHIN) -> None:
    """Let the event loop run until that is so."""
    async with asyncio.timeout(within):
        while not happened():
            await asyncio.sleep(0.002)


def say_from_here(path: Path, *lines: str) -> None:
    """This process says something: a stranger to every run."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaking:
        speaking.connect(os.fspath(path))
        speaking.send("\n".join(lines).encode())

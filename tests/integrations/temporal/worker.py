"""A worker of the tests as a process of its own, and what restarts it: `python -m tests.integrations.temporal.worker
JSON`. Its host may have a name of its own, as if it were another machine.

Each worker is forked before anything of it lives, so that the next one is there at once."""

import asyncio
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Interceptor, Worker

import flyball
from flyball.config import Settings
from flyball.integrations import temporal
from tests.integrations.temporal.workflows import ALL


class Task(msgspec.Struct, kw_only=True):
    """What the worker is told."""

    address: str
    queue: str
    folder: str
    """Where everything is."""
    host: str
    guarded: bool = True
    restarts: bool = True
    limits: dict[str, Any] = {}
    settings: dict[str, Any] = {}


@activity.defn
async def suicidal(given: dict[str, Any]) -> str:
    """An agent that kills its own worker, until it is mended. Each start of it is on record before that."""
    folder = Path(given["folder"])
    with (folder / "starts").open("a") as starts:
        starts.write(f"{socket.gethostname()} {time.monotonic()}\n")
    if not (folder / "mended").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


async def leave_with(keeper: int) -> None:
    """A worker that nobody keeps is not wanted any more."""
    while os.getppid() == keeper:
        await asyncio.sleep(0.5)
    os._exit(1)


async def work(task: Task, keeper: int) -> None:
    """Work until it is killed."""
    leaving = asyncio.ensure_future(leave_with(keeper))
    client = await Client.connect(task.address)
    interceptors: list[Interceptor] = []
    if task.guarded:
        guard = flyball.open("worker", settings=Settings(**task.settings), state_dir=Path(task.folder) / "state")
        interceptors.append(temporal.GuardInterceptor(guard, **task.limits))
    worker = Worker(
        client,
        task_queue=task.queue,
        workflows=ALL,
        activities=[suicidal],
        interceptors=interceptors,
        max_cached_workflows=0,  # what is cached waits ten seconds for its worker, also for one that was killed
    )
    await asyncio.gather(worker.run(), leaving)


def keep(task: Task) -> None:
    """Have a worker, and another one whenever it is gone, as whoever runs workers does."""
    keeper = os.getpid()
    while True:
        pid = os.fork()
        if not pid:
            asyncio.run(work(task, keeper))
        os.waitpid(pid, 0)
        if not task.restarts:
            return


if __name__ == "__main__":
    given = msgspec.json.decode(sys.argv[1], type=Task)
    socket.gethostname = lambda: given.host
    temporal.ASKS_AGAIN = 0.1
    keep(given)

"""An agent that kills its own worker ends at flyball's limit: with a real server, and workers that are restarted."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ActivityError, ApplicationError

import flyball
from flyball.config import Settings
from flyball.core.codec import decode_body
from flyball.core.event import Cause, Exited
from tests.integrations.temporal.worker import Task
from tests.integrations.temporal.workflows import One
from tests.servers.temporal import TemporalServer, dying_with_us

pytestmark = pytest.mark.slow  # real servers, and workers that are killed

ROOT = Path(__file__).parents[3]
PATIENCE = 120.0
"""Seconds. It takes a few: this machine may be busy."""
ATTEMPTS = 3
TIMEOUT = 0.3
"""Seconds after which Temporal gives an attempt up: so it finds out that its worker is gone."""
UNIT = "suicidal@job.1"
FAST: dict[str, Any] = {
    "quarantine": {"cooldown_ladder_seconds": [0.01] * 5},
    "crash_policy": {"transient_delay_seconds": 0.01, "flapping_delay_seconds": 0.02},
}
"""Waits between attempts are not what is looked at here."""


@contextlib.contextmanager
def workers(*tasks: Task) -> Iterator[None]:
    """Those workers, for as long as the block lasts."""
    with contextlib.ExitStack() as stack:
        for task in tasks:
            log = stack.enter_context((Path(task.folder) / f"log-{task.host}").open("ab"))
            program = [sys.executable, "-m", "tests.integrations.temporal.worker"]
            keeper = subprocess.Popen(
                [*dying_with_us(), *program, msgspec.json.encode(task).decode()],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            stack.callback(keeper.wait)
            stack.callback(end, keeper.pid)
        yield


def end(group: int) -> None:
    """No process of that group is left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def a_task(server: TemporalServer, folder: Path, **more: Any) -> Task:
    folder.mkdir(exist_ok=True)
    given = {"host": "here", "limits": {"attempts": ATTEMPTS}, "settings": FAST, "queue": folder.name, **more}
    return Task(address=server.address, folder=str(folder), **given)


async def begin(client: Client, task: Task, id: str = "job") -> WorkflowHandle[Any, Any]:  # noqa: A002 - Temporal's
    given = {"folder": task.folder}
    return await client.start_workflow(One.run, args=["suicidal", given, TIMEOUT], id=id, task_queue=task.queue)


def starts(folder: Path) -> list[str]:
    """On which host each attempt really started."""
    there = folder / "starts"
    return [line.split()[0] for line in there.read_text().splitlines()] if there.exists() else []


async def refusal(handle: WorkflowHandle[Any, Any]) -> ApplicationError:
    """Why the workflow failed."""
    with pytest.raises(WorkflowFailureError) as failed:
        await asyncio.wait_for(handle.result(), PATIENCE)
    error = failed.value.cause
    assert isinstance(error, ActivityError)
    assert isinstance(error.cause, ApplicationError)
    return error.cause


async def until(condition: Callable[[], bool]) -> None:
    """Wait for it."""
    give_up = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up
        await asyncio.sleep(0.02)


def flyball_says(folder: Path, *args: str) -> str:
    """What the command line says, on the store of those workers."""
    done = subprocess.run(
        [sys.executable, "-m", "flyball", *args],
        env={**os.environ, "FLYBALL_STATE_DIR": str(folder / "state"), "FLYBALL_CONFIG": ""},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    return done.stdout + done.stderr


def exits(task: Task) -> list[Cause]:
    """How the runs ended, by the journal."""
    settings = Settings(**task.settings)
    with flyball.open("looks", settings=settings, state_dir=Path(task.folder) / "state") as guard:
        bodies = [decode_body(entry.body) for entry in guard.governor.store.entries(limit=1000)]
    return [body.event.cause for body in bodies if isinstance(body.event, Exited) and body.event.unit == UNIT]


async def outlive(client: Client, task: Task) -> None:
    """That agent is started more often than the limit says."""
    handle = await begin(client, task, "bare")
    await until(lambda: len(starts(Path(task.folder))) > ATTEMPTS)
    await handle.terminate()


def test_an_agent_that_kills_its_worker_ends_at_the_limit(server: TemporalServer, tmp_path: Path) -> None:
    """Three starts, each found as lost, and no fourth: it is held, and the workflow is told why and what to do. Without
    the interceptor the same agent goes on. When a person releases it, it goes on from where its workflow was."""
    guarded = a_task(server, tmp_path / "guarded")
    bare = a_task(server, tmp_path / "bare", guarded=False)
    folder = Path(guarded.folder)

    async def scene() -> None:
        client = await Client.connect(server.address)
        handle, going_on = await begin(client, guarded), asyncio.ensure_future(outlive(client, bare))
        error = await refusal(handle)
        assert starts(folder) == ["here"] * ATTEMPTS
        assert (error.type, error.non_retryable) == ("max_resume_attempts_exceeded", True)
        assert f"{UNIT}: Attempt limit of the activity reached (4/3)." in str(error)
        assert "flyball resume" in str(error)
        assert error.details[0]["verb"] == "hold"
        await going_on

        assert exits(guarded) == [Cause.LOST] * ATTEMPTS
        assert "Attempt limit of the activity reached" in flyball_says(folder, "why", UNIT)
        # Somebody runs the workflow again without having asked anybody: nothing starts.
        again = await begin(client, guarded)
        assert (await refusal(again)).type == "max_resume_attempts_exceeded"
        assert len(starts(folder)) == ATTEMPTS

        (folder / "mended").touch()
        assert UNIT in flyball_says(folder, "resume", UNIT)
        assert await asyncio.wait_for((await reset(client, again)).result(), PATIENCE) == "done"
        assert len(starts(folder)) == ATTEMPTS + 1

    with workers(guarded, bare):
        asyncio.run(scene())
    assert exits(guarded) == [Cause.LOST] * ATTEMPTS + [Cause.DONE]


async def reset(client: Client, handle: WorkflowHandle[Any, Any]) -> WorkflowHandle[Any, Any]:
    """Have the workflow go on from before its activity failed, as `temporal workflow reset` does."""
    answer = await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=handle.first_execution_run_id or ""),
            reason="released",
            workflow_task_finish_event_id=4,  # the workflow task that scheduled the activity
            request_id="reset",
        )
    )
    return client.get_workflow_handle(handle.id, run_id=answer.run_id)


def test_hosts_share_the_limit(server: TemporalServer, tmp_path: Path, dsn: str) -> None:
    """Three hosts on one PostgreSQL, which cannot see each other's processes: what one lost, another counts when its
    lease has run out. Two start it, and with that they are dead; the third may not."""
    folder, hosts = tmp_path / "hosts", {"east", "north", "west"}
    settings = {**FAST, "exclusive": {"lease_seconds": 0.5}, "store": dsn}
    given = {"settings": settings, "limits": {"attempts": 2}, "restarts": False}
    tasks = [a_task(server, folder, host=host, **given) for host in hosts]

    async def scene() -> None:
        client = await Client.connect(server.address)
        handle = await begin(client, tasks[0])
        assert (await refusal(handle)).type == "max_resume_attempts_exceeded"

    with workers(*tasks):
        asyncio.run(scene())
    assert len(set(starts(folder))) == len(starts(folder)) == 2
    assert exits(tasks[0]) == [Cause.LOST] * 2

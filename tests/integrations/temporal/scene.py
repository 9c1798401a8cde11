"""What the tests in one process share: a worker on the real server, for as long as a block lasts, and what is known of
the units."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import Interceptor, SharedStateManager, UnsandboxedWorkflowRunner, Worker

from flyball.core.codec import decode_body
from flyball.core.event import AnyEvent, Cause, Exited, Start
from flyball.guard import Guard
from flyball.integrations.temporal import GuardInterceptor
from tests.integrations.temporal.workflows import ALL, Endless, Many, One
from tests.servers.temporal import TemporalServer

PATIENCE = 60.0
FAST: dict[str, Any] = {
    "quarantine": {"cooldown_ladder_seconds": [0.01] * 5},
    "crash_policy": {"transient_delay_seconds": 0.01, "flapping_delay_seconds": 0.02},
}
"""Waits between attempts are not what is looked at."""

_numbers = itertools.count(1)


@dataclass
class Scene:
    """A client, and the queue of a worker."""

    client: Client
    queue: str

    async def one(self, kind: str, timeout: float = PATIENCE, id: str = "", **given: Any) -> WorkflowHandle[Any, Any]:  # noqa: A002 - Temporal's
        """Start a workflow of one activity."""
        return await self._start(One.run, [kind, given, timeout], id)

    async def many(self, kind: str, *given: dict[str, Any]) -> WorkflowHandle[Any, Any]:
        """Start a workflow of several activities, side by side."""
        return await self._start(Many.run, [kind, list(given), PATIENCE])

    async def endless(self, kind: str) -> WorkflowHandle[Any, Any]:
        """Start one that does not end."""
        return await self._start(Endless.run, [kind, {}])

    async def _start(self, run: Any, args: list[Any], id: str = "") -> WorkflowHandle[Any, Any]:  # noqa: A002 - as above
        name = id or f"work-{next(_numbers)}"
        handle: WorkflowHandle[Any, Any] = await self.client.start_workflow(
            run, args=args, id=name, task_queue=self.queue
        )
        return handle


@asynccontextmanager
async def working(
    server: TemporalServer,
    guard: Guard,
    *activities: Callable[..., Any],
    outside: Interceptor | None = None,
    executor: Executor | None = None,
    shared: SharedStateManager | None = None,
    **limits: Any,
) -> AsyncIterator[Scene]:
    """A guarded worker. `outside` is an interceptor around the guard's."""
    client = await Client.connect(server.address)
    interceptors = [*([outside] if outside is not None else []), GuardInterceptor(guard, **limits)]
    queue = f"queue-{next(_numbers)}"
    async with Worker(
        client,
        task_queue=queue,
        workflows=ALL,
        activities=activities,
        interceptors=interceptors,
        activity_executor=executor,
        shared_state_manager=shared,
        workflow_runner=UnsandboxedWorkflowRunner(),  # the workers that are killed have the sandbox, which takes long
        default_heartbeat_throttle_interval=timedelta(milliseconds=100),
    ):
        yield Scene(client, queue)


async def result(handle: WorkflowHandle[Any, Any]) -> Any:
    """What the workflow came to."""
    return await asyncio.wait_for(handle.result(), PATIENCE)


async def refusal(handle: WorkflowHandle[Any, Any]) -> ApplicationError:
    """Why the activity of that workflow was refused."""
    try:
        value = await result(handle)
    except WorkflowFailureError as failed:
        error = failed.cause
        assert isinstance(error, ActivityError)
        assert isinstance(error.cause, ApplicationError)
        return error.cause
    raise AssertionError(f"it came to its end: {value!r}")


async def until(condition: Callable[[], bool]) -> None:
    """Wait for it."""
    give_up = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up
        await asyncio.sleep(0.01)


def told(guard: Guard, unit: str) -> list[AnyEvent]:
    """What was granted to the unit, and what happened to it."""
    bodies = [decode_body(entry.body) for entry in guard.governor.store.entries(limit=1000, unit=unit)]
    return [body.event for body in bodies if not body.event.asks or body.decision.proceeds]


def granted(guard: Guard, unit: str) -> int:
    """How many starts were granted."""
    return sum(isinstance(event, Start) for event in told(guard, unit))


def exits(guard: Guard, unit: str) -> list[Cause]:
    """How its runs ended."""
    return [event.cause for event in told(guard, unit) if isinstance(event, Exited)]

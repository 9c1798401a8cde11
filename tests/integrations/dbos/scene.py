"""What the tests of workflows share: how they are run, and what the journal and DBOS say of them."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Final

from dbos import DBOS, SetWorkflowID, WorkflowHandle

from flyball.core.codec import decode_body, decode_state
from flyball.core.event import AnyEvent, Held, Released
from flyball.core.policy import Key
from flyball.guard import Guard
from flyball.integrations.dbos import Guarded
from flyball.policies.budget import State as Spent
from flyball.testing.clock import FakeClock

QUEUE: Final = "quick"
EXECUTOR: Final = "here"
PATIENCE: Final = 60.0
"""Seconds for what takes a fraction of one: the machine may be busy."""
OPEN: Final = ("ENQUEUED", "PENDING")
"""What DBOS says of a workflow that has no outcome."""

_numbers = count(1)


@dataclass
class Scene:
    """A guard, DBOS under it, and a clock."""

    guard: Guard
    guarded: Guarded
    clock: FakeClock
    made: list[str] = field(default_factory=list)
    """What was really done: what was refused or replayed is not here."""
    _begun: list[WorkflowHandle[Any]] = field(default_factory=list)

    def start(self, workflow: Callable[..., Any], *args: Any) -> WorkflowHandle[Any]:
        """Start it on the queue that is looked at often."""
        with SetWorkflowID(f"w{next(_numbers)}"):
            handle = DBOS.enqueue_workflow(QUEUE, workflow, *args)
        self._begun.append(handle)
        return handle

    def result(self, handle: WorkflowHandle[Any] | str) -> Any:
        """What it came to."""
        found: WorkflowHandle[Any] = DBOS.retrieve_workflow(_id(handle))
        self.until(lambda: found.get_status().status not in OPEN)
        return found.get_result(polling_interval_sec=0.01)

    def error(self, handle: WorkflowHandle[Any] | str) -> BaseException:
        """What it ended with."""
        try:
            result = self.result(handle)
        except BaseException as error:  # noqa: BLE001 - whatever it was
            return error
        raise AssertionError(f"it came to {result!r}")

    def events(self, handle: WorkflowHandle[Any] | str, unit: str = "work") -> list[AnyEvent]:
        """What was granted, and what happened, in the journal."""
        name = f"{unit}@{_id(handle)}"
        bodies = [decode_body(entry.body) for entry in self.guard.governor.store.entries(unit=name)]
        return [body.event for body in bodies if not body.event.asks or body.decision.proceeds]

    def story(self, handle: WorkflowHandle[Any] | str, unit: str = "work") -> list[str]:
        """Their names."""
        return [type(event).__name__ for event in self.events(handle, unit)]

    def spent(self, handle: WorkflowHandle[Any] | str, unit: str = "work") -> tuple[int, int]:
        """Millionths that were spent, and that are reserved."""
        key = Key("budget", "unit", f"{unit}@{_id(handle)}")
        data = self.guard.governor.store.read([key]).records.get(key)
        state = Spent() if data is None else decode_state(Spent, data)
        return state.spent, state.reserved

    def hold(self, handle: WorkflowHandle[Any] | str, unit: str = "work") -> None:
        """A person holds it."""
        self.guard.governor.submit(Held(unit=f"{unit}@{_id(handle)}", by="ann"))

    def release(self, handle: WorkflowHandle[Any], unit: str = "work") -> None:
        """A person releases it, and all that is known of it is forgotten but that it was begun."""
        self.guard.governor.submit(
            Released(unit=f"{unit}@{_id(handle)}", policies=("manual", "resumes", "steps"), by="ann")
        )

    def until(self, true: Callable[[], object]) -> None:
        """Wait for that."""
        give_up = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < give_up
            time.sleep(0.01)

    def wait_for_waiters(self) -> None:
        """Nobody waits for leave any more."""
        for handle in self._begun:
            self.until(partial(_is_taken, handle))


def _id(handle: WorkflowHandle[Any] | str) -> str:
    return handle if isinstance(handle, str) else handle.get_workflow_id()


def _is_taken(handle: WorkflowHandle[Any]) -> bool:
    return handle.get_status().status != "ENQUEUED"

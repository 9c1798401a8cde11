"""What leaves a workflow without an outcome.

DBOS keeps an `Exception` that leaves a workflow or a step as its outcome, for good. So a refusal is one: it has a
reason, and that is the outcome. But that the store is away, or that another process has the workflow, says nothing of
the work: this leaves it as it is, to be recovered.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from flyball.errors import StoreError


class WorkflowLeft(BaseException):
    """This execution of a workflow ends, and the workflow does not: it goes on when it is recovered or resumed. Not an
    `Exception`: no handler is meant for it, and DBOS keeps none of it."""

    def __init__(self, unit: str, why: str) -> None:
        super().__init__(f"{unit} is left as it is, to be recovered: {why}")
        self.unit = unit
        self.why = why


@contextmanager
def left_without_store(unit: str) -> Iterator[None]:
    """Whoever cannot be asked has refused nothing."""
    try:
        yield
    except StoreError as error:
        raise WorkflowLeft(unit, f"{error}. {error.remedy}") from error

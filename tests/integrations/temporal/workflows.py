"""The workflows of the tests. They are run in Temporal's sandbox, so nothing of flyball is imported here."""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

FOR_EVER = RetryPolicy(initial_interval=timedelta(milliseconds=50), backoff_coefficient=1.0)
"""As Temporal does it by default, only faster: no limit on attempts."""


@workflow.defn
class One:
    """One activity, retried for ever. Says what came of it."""

    @workflow.run
    async def run(self, kind: str, given: dict[str, Any], timeout: float) -> Any:
        """Run it."""
        return await workflow.execute_activity(
            kind,
            given,
            start_to_close_timeout=timedelta(seconds=timeout),
            retry_policy=FOR_EVER,
        )


@workflow.defn
class Many:
    """Activities side by side. Says of each what came of it: its result, or the type of why it failed."""

    @workflow.run
    async def run(self, kind: str, given: list[dict[str, Any]], timeout: float) -> list[Any]:
        """Run them."""
        return await asyncio.gather(*(self._one(kind, one, timeout) for one in given))

    async def _one(self, kind: str, given: dict[str, Any], timeout: float) -> Any:
        try:
            return await workflow.execute_activity(
                kind,
                given,
                start_to_close_timeout=timedelta(seconds=timeout),
                retry_policy=FOR_EVER,
            )
        except ActivityError as error:
            cause = error.cause
            return cause.type if isinstance(cause, ApplicationError) else type(cause).__name__


@workflow.defn
class Endless:
    """An agent whose workflow goes on for ever: each activity is a new one, and each is done."""

    @workflow.run
    async def run(self, kind: str, given: dict[str, Any]) -> None:
        """Run until something ends it."""
        while True:
            await workflow.execute_activity(
                kind, given, start_to_close_timeout=timedelta(seconds=60), retry_policy=FOR_EVER
            )


ALL = (One, Many, Endless)

"""A guarded Temporal worker, with an agent that kills it: `python examples/temporal/worker.py ADDRESS`."""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():  # none of it is used in workflow code
    from flyball.integrations.temporal import GuardInterceptor

QUEUE = "agents"


@activity.defn
async def think(topic: str) -> str:
    """Needs more memory than there is, and is killed for it together with its worker; until somebody gives it more."""
    print(f"  worker {os.getpid()} thinks about {topic}", flush=True)
    if not Path(os.environ["MORE_MEMORY"]).exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return f"all about {topic}"


@workflow.defn
class Research:
    """Temporal retries its activity for ever: that is its default."""

    @workflow.run
    async def run(self, topic: str) -> str:
        """Think."""
        return await workflow.execute_activity(
            think,
            topic,
            start_to_close_timeout=timedelta(seconds=1),
            retry_policy=RetryPolicy(initial_interval=timedelta(seconds=0.5), backoff_coefficient=1.0),
        )


async def main() -> None:
    """Work until it is killed."""
    client = await Client.connect(sys.argv[1])
    worker = Worker(
        client,
        task_queue=QUEUE,
        workflows=[Research],
        activities=[think],
        interceptors=[GuardInterceptor(attempts=3)],
        max_cached_workflows=0,  # a cached workflow waits ten seconds for the worker that was killed
    )
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main())

"""The app that the tests' workers run: tasks that do well, fail, and kill whoever runs them. Each notes that it began
before it does anything else, so that whoever looks from outside can count."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from celery import Celery
from celery.concurrency.asynpool import AsynPool

import flyball
from flyball.integrations.celery import GuardedTasks, TaskOptions

FOLDER: Final = Path(os.environ["SHOP_FOLDER"])
URL: Final = os.environ["SHOP_URL"]

app = Celery("shop", broker=URL, backend=URL)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
)
# Celery may notice a dead child only when it looks after its pool, which is every 5 s. The tests do not wait for that.
AsynPool.timers = property(lambda pool: {pool.maintain_pool: 0.1})

task: Callable[..., Callable[[Callable[..., Any]], Any]] = app.task
"""As it is, but with types."""


def open_guard() -> flyball.Guard:
    """In each process that runs tasks."""
    return flyball.open("shop", config=FOLDER / "flyball.yaml", state_dir=FOLDER / "state")


if os.environ.get("SHOP_GUARDED") == "yes":
    GuardedTasks(app, open_guard, skip=["shop.unguarded"], held="keep" if os.environ.get("SHOP_KEEPS") else "fail")


def began(what: str) -> None:
    """A line that outlives the process."""
    with (FOLDER / "began").open("a") as file:
        file.write(f"{what} {os.getpid()}\n")


@task(name="shop.kills_child")
def kills_child() -> None:
    """As too little memory does it."""
    began("kills_child")
    os.kill(os.getpid(), signal.SIGKILL)


@task(name="shop.kills_worker")
def kills_worker() -> None:
    """The main process of the worker too."""
    began("kills_worker")
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


@task(name="shop.either")
def either(kills: bool) -> str:
    """One of its messages kills, the others do well."""
    began(f"either {kills}")
    if kills:
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


@task(name="shop.unguarded")
def unguarded() -> str:
    """Left out by name."""
    began("unguarded")
    return "done"


@task(name="shop.fails", flyball=TaskOptions(unit="till"))
def fails() -> None:
    """An exception, as tasks have them."""
    began("fails")
    raise ValueError("no such coin")


@task(name="shop.retries", bind=True, max_retries=100, default_retry_delay=0)
def retries(self: Any) -> None:
    """Celery's own retries, far more of them than a message may fail."""
    began("retries")
    try:
        raise ValueError("no such coin")
    except ValueError as error:
        raise self.retry(exc=error) from error


@task(name="shop.slow", flyball=TaskOptions(deadline=0.5))
def slow() -> None:
    """Far longer than its deadline."""
    began("slow")
    time.sleep(60)


@task(name="shop.fine", bind=True, max_retries=0, flyball=TaskOptions(at_once=1))
def fine(self: Any, seconds: float = 0) -> int:
    """Does well, one at a time. How many of Celery's retries it took."""
    began("fine")
    time.sleep(seconds)
    return int(self.request.retries)

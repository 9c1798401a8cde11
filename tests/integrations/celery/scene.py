"""A shop for the tests: its folder, its broker, its workers, and what can be seen of them from outside."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from celery import Celery

import flyball
from flyball.core.codec import decode_body
from flyball.core.event import AnyEvent

HERE: Final = Path(__file__).parents[3]
PATIENCE: Final = 60.0
"""Seconds for what takes a few of them: this machine may be busy."""

QUICK: Final = """
restart_policy: {initial_backoff_seconds: 0.02, max_backoff_seconds: 0.02}
crash_policy: {transient_delay_seconds: 0.02, flapping_delay_seconds: 0.02}
circuit_breaker: {failure_threshold: 100}
"""
"""Waits as short as can be; and tasks that share a worker are not held up by each other's failures."""


class Shop:
    """What one app's workers share, and whoever sends them messages."""

    def __init__(self, folder: Path, url: str, *, guarded: bool) -> None:
        self.folder = folder
        self.app = Celery("sender", broker=url, backend=url)
        (folder / "flyball.yaml").write_text(QUICK)
        self._env = {
            **os.environ,
            "SHOP_FOLDER": str(folder),
            "SHOP_URL": url,
            "SHOP_GUARDED": "yes" if guarded else "no",
        }
        self._workers: list[subprocess.Popen[bytes]] = []

    def worker(self, *, at_once: int = 1) -> subprocess.Popen[bytes]:
        """Start a worker: a real one, which forks its children."""
        command = [sys.executable, "-m", "celery", "-A", "tests.integrations.celery.shop", "worker"]
        options = [f"-c{at_once}", "-Pprefork", "-lINFO", "--without-gossip", "--without-mingle", "--without-heartbeat"]
        with (self.folder / "log").open("ab") as log:
            worker = subprocess.Popen(
                [*command, *options], cwd=HERE, env=self._env, stdout=log, stderr=log, start_new_session=True
            )
        self._workers.append(worker)
        return worker

    def send(self, task: str, *args: object, **options: object) -> Any:
        """Send a message; its result."""
        return self.app.send_task(f"shop.{task}", args, **options)

    def began(self, what: str) -> list[int]:
        """The processes in which a task's own code began, one for each time."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self.folder / "began").read_text().splitlines()
            return [int(line.rpartition(" ")[2]) for line in lines if line.rpartition(" ")[0] == what]
        return []

    def wait(self, what: Callable[[], object]) -> None:
        """Until that is so."""
        give_up = time.monotonic() + PATIENCE
        while not what():
            assert time.monotonic() < give_up, self.log()
            time.sleep(0.02)

    def failed(self, result: Any) -> Exception:
        """What a task failed with."""
        self.wait(result.ready)
        assert result.state == "FAILURE", (result.state, result.result)
        error = result.result
        assert isinstance(error, Exception)
        return error

    def done(self, result: Any) -> Any:
        """What a task that did well gave back."""
        self.wait(result.ready)
        assert result.state == "SUCCESS", (result.state, result.result, self.log())
        return result.result

    def events(self, unit: str, message: str = "") -> list[AnyEvent]:
        """What the journal has of a unit, or of one message of it: requests that were granted, and facts."""
        with self.guard() as guard:
            bodies = [decode_body(entry.body) for entry in guard.governor.store.entries(limit=1000, unit=unit)]
        return [
            body.event
            for body in bodies
            if (not body.event.asks or body.decision.proceeds)
            and (not message or body.event.labels.get("message") == message)
        ]

    def guard(self) -> flyball.Guard:
        """On the store of the workers, as a person's command line has one."""
        return flyball.open("person", config=self.folder / "flyball.yaml", state_dir=self.folder / "state")

    def flyball(self, *command: str) -> str:
        """What the command line says."""
        env = {**os.environ, "FLYBALL_STATE_DIR": str(self.folder / "state")}
        line = [sys.executable, "-m", "flyball", *command]
        done = subprocess.run(line, env=env, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), (done.stdout, done.stderr)
        return done.stdout

    def deliver_again(self) -> None:
        """What the broker does with messages whose worker is gone, when its visibility timeout is over: now."""
        with self.app.connection_for_read() as connection:
            channel = connection.default_channel
            queue = self.app.amqp.queues["celery"](channel)
            queue.declare()
            channel.visibility_timeout = -1
            channel.qos.restore_visible(num=100)

    def log(self) -> str:
        """The end of what the workers said."""
        return (self.folder / "log").read_text()[-4000:] if (self.folder / "log").exists() else ""

    def close(self) -> None:
        """Nothing of it is left running."""
        for worker in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait(timeout=PATIENCE)
        self.app.close()


@contextlib.contextmanager
def a_shop(folder: Path, url: str, **how: Any) -> Iterator[Shop]:
    """A shop for as long as the block lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    shop = Shop(folder, url, **how)
    try:
        yield shop
    finally:
        shop.close()

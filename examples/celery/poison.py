"""One message kills its worker; others of the same task do well. A real worker, and no server: the broker is a folder.

    python examples/celery/poison.py
    CELERY_BROKER_URL=redis://localhost python examples/celery/poison.py

Plain Celery delivers such a message again for ever (`acks_late` with `reject_on_worker_lost`). Here it is begun three
times, is then held, and fails with the reason; the others are done. In a folder it takes a minute, because
there Celery waits 10 s before it gives a dead process up; with Redis some seconds.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from celery import Celery

import flyball
from flyball.config import Settings
from flyball.integrations.celery import GuardedTasks

FOLDER = Path(os.environ.get("POISON_FOLDER") or tempfile.mkdtemp(prefix="poison-"))

BROKER = os.environ.get("CELERY_BROKER_URL", "filesystem://")

app: Any = Celery("poison", broker=BROKER, backend=f"file://{FOLDER}/results")
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    broker_transport_options={
        "data_folder_in": f"{FOLDER}/queue",
        "data_folder_out": f"{FOLDER}/queue",
        "control_folder": f"{FOLDER}/control",
    }
    if BROKER == "filesystem://"
    else {},
)
for name in ("queue", "control", "results"):
    (FOLDER / name).mkdir(exist_ok=True)


def open_guard() -> flyball.Guard:
    """Shorter waits after a failure than anybody wants who does not watch."""
    waits = {
        "restart_policy": {"initial_backoff_seconds": 0.2, "max_backoff_seconds": 0.5},
        "crash_policy": {"transient_delay_seconds": 0.2, "flapping_delay_seconds": 0.5},
    }
    return flyball.open("poison", settings=Settings.model_validate(waits), state_dir=FOLDER / "state")


GuardedTasks(app, open_guard)


@app.task(name="resize")  # type: ignore[untyped-decorator]  # Celery has no types
def resize(picture: str) -> str:
    """Too large a picture takes the process with it, as too little memory does."""
    with (FOLDER / "begun").open("a") as file:
        file.write(f"{picture}\n")
    if picture == "huge.png":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{picture} resized"


def main() -> int:
    command = [sys.executable, "-m", "celery", "--workdir", str(Path(__file__).parent), "-A", "poison"]
    quiet = ["worker", "-c1", "-lCRITICAL", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    with (FOLDER / "worker.log").open("wb") as log:
        env = {**os.environ, "POISON_FOLDER": str(FOLDER)}
        worker = subprocess.Popen([*command, *quiet], env=env, stdout=log, stderr=log)  # noqa: S603 - all of it is ours
    try:
        sent = {picture: resize.delay(picture) for picture in ("one.png", "huge.png", "two.png", "three.png")}
        give_up = time.monotonic() + 120
        while not all(result.ready() for result in sent.values()) and time.monotonic() < give_up:
            time.sleep(0.1)
    finally:
        worker.terminate()
        worker.wait(timeout=60)
    begun = (FOLDER / "begun").read_text().split()
    for picture, result in sent.items():
        print(f"{picture}: begun {begun.count(picture)} times, {result.state}: {result.result}")
    return 0 if begun.count("huge.png") == 3 and sent["huge.png"].failed() and sent["three.png"].successful() else 1


if __name__ == "__main__":
    sys.exit(main())

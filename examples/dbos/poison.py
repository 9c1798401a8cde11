"""A workflow whose step kills its own worker, under a loop that starts the worker again for ever.

    python examples/dbos/poison.py
    DBOS_SYSTEM_DATABASE_URL=postgresql://… python examples/dbos/poison.py

DBOS recovers such a workflow each time, a hundred times over. Here it is begun once and resumed three times, is then
held, and ends with the reason. What it had done before is not done again: DBOS has it.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from dbos import DBOS, DBOSConfig, SetWorkflowID

import flyball
from flyball.config import Settings
from flyball.integrations.dbos import Guarded
from flyball.runtimes.refusal import Refused

FOLDER = Path(os.environ.get("POISON_FOLDER") or tempfile.mkdtemp(prefix="poison-"))
WORKERS_MAX = 20
"""So that this ends, whatever happens."""

# Shorter waits after a failure than anybody wants who does not watch.
WAITS = {
    "quarantine": {"cooldown_ladder_seconds": [0.1]},
    "crash_policy": {"transient_delay_seconds": 0.1, "flapping_delay_seconds": 0.1},
}
guarded = Guarded(flyball.open("poison", settings=Settings.model_validate(WAITS), state_dir=FOLDER / "state"))


@guarded.step()
def download(picture: str) -> str:
    note(f"downloaded {picture}")
    return picture


@guarded.step()
def resize(picture: str) -> str:
    """Too large a picture takes the process with it, as too little memory does."""
    note(f"resizing {picture}")
    os.kill(os.getpid(), signal.SIGKILL)
    return f"{picture} resized"


@guarded.workflow(resumes=3)
def thumbnail(picture: str) -> str:
    return resize(download(picture))


def note(text: str) -> None:
    with (FOLDER / "done").open("a") as file:
        file.write(f"{text}\n")


def worker() -> int:
    url = os.environ.get("DBOS_SYSTEM_DATABASE_URL", f"sqlite:///{FOLDER}/dbos.sqlite")
    config: DBOSConfig = {"name": "poison", "system_database_url": url, "log_level": "CRITICAL"}
    DBOS(config=config)
    DBOS.launch()  # what an earlier worker left is recovered from here on
    with SetWorkflowID("picture-1"):
        handle = DBOS.start_workflow(thumbnail, "huge.png")
    try:
        print(handle.get_result())
    except Refused as refused:
        print(f"{refused}\n{refused.remedy}\nTo let it go on: flyball resume thumbnail@picture-1")
        return 0
    finally:
        DBOS.destroy()
    return 1


def main() -> int:
    env = {**os.environ, "POISON_FOLDER": str(FOLDER)}
    for number in range(1, WORKERS_MAX + 1):
        done = subprocess.run([sys.executable, __file__, "worker"], env=env, check=False)  # noqa: S603 - it is this file
        if not done.returncode:
            break
        print(f"worker {number} died: {done.returncode}", flush=True)
    lines = (FOLDER / "done").read_text().splitlines()
    print(f"downloaded {lines.count('downloaded huge.png')} times, resized {lines.count('resizing huge.png')} times")
    return 0 if lines.count("resizing huge.png") == 4 and lines.count("downloaded huge.png") == 1 else 1


if __name__ == "__main__":
    sys.exit(worker() if sys.argv[1:] == ["worker"] else main())

"""A session as a command, for tests: `session_worker.py STAGES AFTER [person|waits|crashes|goes]`.

Each run does one stage, keeps a checkpoint of it, and pauses for so long; the last stage ends the work. Every run
leaves a line: whether and from which checkpoint it was resumed, and what was in its file; and, in another file, the
last checkpoint that it was told is kept.
"""

import json
import os
import sys
import time
from pathlib import Path

from flyball.runtimes.tell import ask


def main(stages: int, after: float, then: str = "pauses") -> int:
    """One run; its exit code."""
    name, file = os.environ["FLYBALL_SESSION"], Path(os.environ["FLYBALL_CHECKPOINT"])
    found = file.read_text()
    resumed, checkpoint = os.environ.get("FLYBALL_RESUMED", ""), os.environ.get("FLYBALL_CHECKPOINT_ID", "")
    with Path(f"{name}.runs").open("a") as runs:
        runs.write(f"{resumed}/{checkpoint}/{found}\n")
    stage = int(found or 0) + 1
    file.write_text(str(stage))
    ask([("X_FLYBALL_CHECKPOINT", json.dumps({"stage": f"s{stage}"}))])
    Path(f"{name}.kept").write_text(str(stage))
    if stage >= stages:
        return 0
    if then == "waits":
        time.sleep(600)
    while then == "goes":  # when it is told to, by another file, it keeps one more checkpoint, and is done
        time.sleep(0.02)
        if Path("go").exists():
            file.write_text(str(stage + 1))
            ask([("X_FLYBALL_CHECKPOINT", json.dumps({"stage": "gone on"}))])
            return 0
    if then == "crashes":
        return 3
    pauses = {"reason": "person"} if then == "person" else {"reason": "rate_limit", "after": after}
    ask([("X_FLYBALL_PAUSE", json.dumps(pauses))])
    return 3  # it said that it pauses: that is what counts


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:]))

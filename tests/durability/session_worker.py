"""Sessions that are killed: a conductor forks one process after the other for a session, and kills most of them at a
random instant: before leave is asked, while it is written down, in a stage, while a checkpoint is written.

What a process says (one line on a pipe, written at once) has happened: the parent hears it though it was killed.
"""

import json
import os
import random
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import flyball
from flyball.config import Settings
from flyball.runtimes.session.context import SessionContext

STAGES: Final = 8
RESUMES: Final = 3
SIZE_MAX: Final = 200_000
"""Characters of a checkpoint's payload: to write it takes long enough to be killed in it."""
KILL_WITHIN: Final = 0.06
"""Seconds after the fork: by then most processes have asked for leave."""
KILL_SOON: Final = 0.008
"""Seconds after one of its lines: by then it has written something more."""
LINES_MAX: Final = STAGES
"""Lines to hear at most before a process is killed."""
PATIENCE: Final = 60.0
"""Seconds for one life, which takes a fraction of one."""

# After a death no time is to be lost; what is tested here is counted, not timed.
SETTINGS: Final = {
    "quarantine": {"cooldown_ladder_seconds": [0.001], "max_failures_before_quarantine": 10_000},
    "circuit_breaker": {"failure_threshold": 10_000},
    "crash_policy": {"transient_delay_seconds": 0.001, "flap_threshold": 9, "flapping_delay_seconds": 0.001},
    "restart_policy": {"max_restarts_per_hour": 10_000, "max_restarts_in_a_row": 10_000},
    "daemon": {"sessionRecovery": {"maxResumeAttempts": RESUMES}},
}


def payload(number: int) -> str:
    """What the checkpoint after so many stages holds besides their number."""
    return chr(ord("a") + number % 26) * (SIZE_MAX * number // STAGES)


class Work:
    """A session in stages that says what it does, and pauses now and then."""

    def __init__(self, said: int, dice: random.Random) -> None:
        self._said, self._dice = said, dice

    def say(self, text: str) -> None:
        os.write(self._said, f"{text}\n".encode())

    def __call__(self, session: SessionContext) -> None:
        made = session.checkpoint.get("made", 0)
        assert session.checkpoint.get("payload", "") == payload(made)
        self.say(f"begun {session.resumed} {made}")
        for number in range(made + 1, STAGES + 1):
            with session.stage(f"stage {number}"):
                self.say(f"stage {number}")
                session.checkpoint["made"] = number
                session.checkpoint["payload"] = payload(number)
            self.say(f"kept {number}")
            if self._dice.random() < 0.05:
                session.pause("rate_limit", resume_after=0)


def live(folder: Path, name: str, said: int, seed: float) -> None:
    """One process's life."""
    work = Work(said, random.Random(seed))
    with flyball.open("program", settings=Settings.model_validate(SETTINGS), state_dir=folder) as guard:
        session = guard.session(name, work)
        try:
            if session.status != "completed":  # the one before this was killed before it could say so
                session.run()
        except flyball.SessionPaused:
            work.say("paused")
        except flyball.SessionFailed as failed:
            work.say(f"failed {failed.metadata['resumeAttempts']} {failed.metadata['maxResumeAttempts']}")
        else:
            work.say("done")


class Conductor:
    """Forks and kills."""

    def __init__(self, folder: Path, seed: str) -> None:
        self._folder = folder
        self._dice = random.Random(seed)

    def session(self, name: str) -> list[dict[str, Any]]:
        """One session, to its end: what each of its processes said, and whether it was killed."""
        lives: list[dict[str, Any]] = []
        while not lives or not lives[-1]["lines"] or lives[-1]["lines"][-1].split()[0] not in ("done", "failed"):
            lives.append(self._life(name))
        return lives

    def _life(self, name: str) -> dict[str, Any]:
        hear, said = os.pipe()
        seed, lines, haste = self._dice.random(), self._dice.randint(0, LINES_MAX), self._dice.random()
        spared = self._dice.random() < 0.1
        pid = os.fork()
        if pid == 0:
            try:
                os.close(hear)
                live(self._folder, name, said, seed)
                os._exit(0)
            finally:
                os._exit(1)
        os.close(said)
        heard = b""
        ends = time.monotonic() + (PATIENCE if spared or lines else haste * KILL_WITHIN)
        while (left := ends - time.monotonic()) > 0 and select.select([hear], [], [], left)[0]:
            data = os.read(hear, 65_536)
            if not data:
                break
            before, heard = heard.count(b"\n"), heard + data
            if not spared and before < lines <= heard.count(b"\n"):
                ends = time.monotonic() + haste * KILL_SOON
        else:
            assert not spared, f"a process of {name} hangs"
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        while data := os.read(hear, 65_536):
            heard += data
        os.close(hear)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return {"lines": heard.decode().splitlines(), "code": code}


def main() -> None:
    folder, seed, kills, seconds = sys.argv[1:]
    flyball.open("program", scratch=True).close()  # imported once, here, and not by each of them
    conductor = Conductor(Path(folder), seed)
    ends = time.monotonic() + float(seconds)
    killed = number = 0
    while killed < int(kills) and time.monotonic() < ends:
        lives = conductor.session(f"s{number}")
        killed += sum(life["code"] == -signal.SIGKILL for life in lives)
        sys.stdout.write(json.dumps(lives) + "\n")
        number += 1
    sys.stdout.flush()


if __name__ == "__main__":
    main()

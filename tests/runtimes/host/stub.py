"""A stand-in for a daemon on a lease, as small as can be: it starts three processes, arms its deadman again and again,
and does what is written into the file `order`. What it did is in `begun` (one line per beginning) and `deadline`."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from flyball.runtimes.guardian import ANEW, LEASE_LOST, PLAN, Guard, boot_clock
from flyball.runtimes.host.deadman import Deadman

WITNESS = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while True:
    os.write(file, b"%d\\n" % (time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000))
    time.sleep(0.005)
"""


def witness(folder: Path, name: str, run: str, guard: Guard) -> "subprocess.Popen[bytes]":
    """A process that says all the time that it lives."""
    argv = [sys.executable, "-I", "-S", "-c", WITNESS, str(folder / name)]
    env = {**os.environ, "FLYBALL_RUN": run}
    if name == "left":  # it goes to a session of its own, and its parent is gone
        argv = ["sh", "-c", 'setsid "$@" & echo', "sh", *argv]
    process = subprocess.Popen(argv, env=env, start_new_session=True, stdout=subprocess.DEVNULL)
    guard.note(process.pid)
    return process


def main() -> int:
    folder, lease = Path(sys.argv[1]), int(float(sys.argv[2]) * 1_000_000)
    signal.signal(signal.SIGTERM, lambda *_: (folder / "order").write_text("leave"))
    holder = f"stub/{os.getpid()}/7/daemon"
    plan = os.pread(int(os.environ[PLAN]), 100, 0) if os.lseek(int(os.environ[PLAN]), 0, os.SEEK_CUR) == 0 else b"-"
    os.lseek(int(os.environ[PLAN]), 100, os.SEEK_SET)
    guard = Guard(os.environ)
    deadman = Deadman(guard.deadline) if guard.deadline is not None else None
    runs = {"plain": f"{holder}.1", "left": f"{holder}.2", "kept": f"{holder}/kept.1"}
    children = {name: witness(folder, name, run, guard) for name, run in runs.items()}
    pid = children["kept"].pid
    started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    record = f'{{"pid": {pid}, "started": {started}, "run": "{runs["kept"]}"}}'
    (folder / "records").mkdir(exist_ok=True)
    (folder / "records" / "kept.json").write_text(record)
    with (folder / "begun").open("a") as file:
        file.write(f"{os.getpid()} {os.environ.get(ANEW, '0')} {plan.decode()}\n")
    if deadman is not None:
        deadman.know(holder, lease // 5)
    while True:
        if deadman is not None:
            deadline = boot_clock() + lease
            deadman.arm(deadline)
            (folder / "deadline").write_text(str(deadline))
        for name in children:  # those that are there speak, so that their last words mean something
            while not (folder / name).exists():
                time.sleep(0.005)
        match (folder / "order").read_text() if (folder / "order").exists() else "":
            case "hang":
                while True:
                    pass
            case "hang at its end" if deadman is not None:
                deadman.last()
                time.sleep(1000)
            case "lost at its end" if deadman is not None:
                deadman.last()
                return LEASE_LOST
            case "lost":
                (folder / "order").unlink()
                return LEASE_LOST
            case "leave":
                for child in children.values():
                    child.kill()
                if deadman is not None:
                    deadman.disarm()
                return 0
        time.sleep(lease / 1_000_000 / 20)


if __name__ == "__main__":
    sys.exit(main())

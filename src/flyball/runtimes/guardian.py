"""The guardian: a small process above a supervisor, which outlives it and sees to it that nothing runs unguarded.

It starts the supervisor, passes signals on, and reaps. When the supervisor is gone, whatever it left behind is orphaned
to the guardian, because it is the sub-reaper; it kills every descendant until the kernel says that there is none. Units
that are to be kept are spared. When the guardian itself dies, the supervisor finds its pipe closed and ends in order.

This file is run as a script by a bare interpreter, to cost little memory: it imports little, and only what Python
brings.

Where there is no sub-reaper (macOS), the supervisor writes the process groups of its runs into a file that both hold,
and the guardian kills those. What left its group is then not found.
"""

# ruff: noqa: PTH110, PTH112, PTH123, PTH208
from __future__ import annotations

import contextlib
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # a tenth of the guardian's memory
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Final, NoReturn

VARIABLE: Final = "FLYBALL_GUARDIAN"
"""Tells the supervisor the file descriptors that it was given: `pipe=3,slots=4,lock=5`."""
PLAN: Final = "FLYBALL_PLAN"
"""Tells the supervisor the file descriptor of what it is to run. The guardian passes it on, and lets go of it."""
READY: Final = "FLYBALL_READY"
"""A file descriptor: who started the supervisor reads there that it is ready."""
LOCK: Final = "flyball.lock"
LOG: Final = "daemon.log"
"""Files in the state folder."""
WITHOUT: Final = "FLYBALL_WITHOUT_SUBREAPER"
"""Makes a test of the fallback possible where there is a sub-reaper."""
PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
SI_KERNEL: Final = 0x80
"""A signal that the kernel sent: from a terminal, and so to the whole process group already."""
SLOT: Final = 16
"""Bytes of one process group in the shared file."""
ROUNDS_MAX: Final = 500
"""Looks, 10 ms apart, at groups that were killed: after 5 s they hang in the kernel, and waiting does not help."""
PR_SET_CHILD_SUBREAPER: Final = 36
PID_BYTES_MAX: Final = 32
CANNOT_START: Final = 2
LAST_STREAM: Final = 2
KILLED: Final = 128
"""Added to the number of the signal, as shells do."""


# The supervisor's side.


def is_guarded(env: Mapping[str, str]) -> bool:
    """Whether this process was started by a guardian."""
    return bool(env.get(VARIABLE))


def command(argv: Sequence[str], *, kept: str = "", lock: str = "") -> list[str]:
    """The command line of a guardian over that one. `kept` is the folder with the records of units to be spared;
    `lock` is a file that only one guardian and its supervisor can hold, as long as anything that they started lives."""
    return [sys.executable, "-I", "-S", __file__, kept, lock, *argv]


def guarded(argv: Sequence[str], *, kept: str = "", lock: str = "") -> NoReturn:
    """Become the guardian of that command: this process is replaced, and ends with the command's exit code."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # it may have been closed
            stream.flush()
    line = command(argv, kept=kept, lock=lock)
    os.execv(line[0], line)  # noqa: S606 - no shell is wanted


class Guard:
    """What a guarded supervisor knows of its guardian."""

    def __init__(self, env: Mapping[str, str]) -> None:
        given = {name: int(number) for name, _, number in (pair.partition("=") for pair in env[VARIABLE].split(","))}
        self.pipe = given["pipe"]
        """Readable, and at its end, when the guardian is gone."""
        self._slots = given.get("slots")
        self._taken: dict[int, int] = {}
        for descriptor in given.values():
            os.set_inheritable(descriptor, False)

    def note(self, group: int) -> None:
        """A run has this process group: it is killed when the supervisor dies. Where there is a sub-reaper the guardian
        finds it by itself."""
        if self._slots is not None:
            free = next(slot for slot in range(len(self._taken) + 1) if slot not in self._taken.values())
            self._taken[group] = free
            os.pwrite(self._slots, str(group).encode().ljust(SLOT), free * SLOT)

    def forget(self, group: int) -> None:
        """That run is gone."""
        slot = self._taken.pop(group, None)
        if self._slots is not None and slot is not None:
            os.pwrite(self._slots, b"".ljust(SLOT), slot * SLOT)


# The guardian's side.


class _Process:
    """One line of the process table."""

    __slots__ = ("parent", "pid", "session", "started")

    def __init__(self, pid: int, parent: int, session: int, started: int) -> None:
        self.pid, self.parent, self.session, self.started = pid, parent, session, started


def guard(kept: str, lock: str, argv: Sequence[str]) -> int:
    """Start the command, stand by until it is over, and end whatever it left; its exit code."""
    _open_missing()
    given = {}
    if lock:
        given["lock"] = _take(lock)
        if given["lock"] < 0:
            return CANNOT_START
    waited = {*PASSED_ON, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    reaps = _become_subreaper()
    terminal = _Terminal() if os.isatty(0) else None
    given["pipe"], end = os.pipe()
    if not reaps:
        given["slots"] = _shared_file()
    for descriptor in given.values():
        os.set_inheritable(descriptor, True)
    env = {**os.environ, VARIABLE: ",".join(f"{name}={descriptor}" for name, descriptor in given.items())}
    try:
        child = os.posix_spawnp(argv[0], list(argv), env, setsigmask=())
    except OSError as error:
        sys.stderr.write(f"error: {argv[0]}: {error.strerror}\nCheck that it is there and can be executed.\n")
        return CANNOT_START
    os.close(given["pipe"])
    if PLAN in os.environ:
        os.close(int(os.environ[PLAN]))
    status = _stand_by(child, waited)
    os.close(end)
    ended = _end_descendants(_Kept(kept)) if reaps else _end_groups(given["slots"])
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        name = signal.Signals(-code).name
        if terminal is not None:
            terminal.put_back()
        sys.stderr.write(f"flyball: the supervisor was killed ({name}); {ended} processes that it left were ended\n")
        return KILLED - code
    return code


def _open_missing() -> None:
    """A stream that was closed is nothing from now on: its number must not be given to what is opened next."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= LAST_STREAM:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


class _Terminal:
    """The settings of the person's terminal, which a supervisor that was killed could not put back."""

    def __init__(self) -> None:
        import termios  # noqa: PLC0415 - only where it serves

        self._termios = termios
        self._settings = termios.tcgetattr(0)

    def put_back(self) -> None:
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # in the background, too
        with contextlib.suppress(self._termios.error):
            self._termios.tcsetattr(0, self._termios.TCSANOW, self._settings)


def _take(path: str) -> int:
    """The lock, which now holds our pid; -1, with a word about it, if another one has it. It is let go by the kernel
    when this process and the supervisor are gone, however they go."""
    import fcntl  # noqa: PLC0415 - only where it serves

    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.read(descriptor, PID_BYTES_MAX).decode(errors="replace").strip()
        sys.stderr.write(f"error: {path}: a daemon (pid {pid or 'not known yet'}) runs on this state already\n")
        sys.stderr.write("End it first (`flyball down`), or use another FLYBALL_STATE_DIR.\n")
        return -1
    except OSError as error:
        sys.stderr.write(f"error: {path}: {error.strerror}\n")
        sys.stderr.write("Check the owner and mode of the folder, or use another FLYBALL_STATE_DIR.\n")
        return -1
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _stand_by(child: int, waited: set[signal.Signals]) -> int:
    """Reap and pass signals on until the command is over; its status."""
    while True:
        number = _next_signal(child, waited)
        if number != signal.SIGCHLD:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)
        for pid, status in _reaped():
            if pid == child:
                return status


def _next_signal(child: int, waited: set[signal.Signals]) -> int:
    """The next signal to act on. One from the terminal has reached the whole group, and is not passed on again; but
    that the terminal is gone, only the leader of its session is told."""
    if not hasattr(signal, "sigwaitinfo"):
        return signal.sigwait(waited)
    leads = os.getsid(0) == os.getpid()
    while True:
        info = signal.sigwaitinfo(waited)
        told_alone = info.si_signo == signal.SIGCHLD or (leads and info.si_signo == signal.SIGHUP)
        if told_alone or info.si_code != SI_KERNEL or os.getpgid(child) != os.getpgrp():
            return info.si_signo


def _reaped() -> Iterator[tuple[int, int]]:
    """Every child that is over, without waiting."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            yield pid, status


def _become_subreaper() -> bool:
    """Have orphaned descendants come to this process. Whether that, and finding them, is possible here."""
    if not sys.platform.startswith("linux") or os.environ.get(WITHOUT) or not os.path.exists("/proc/self/stat"):
        return False
    import ctypes  # noqa: PLC0415 - only where it serves

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return bool(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


# With a sub-reaper: every descendant, until there is none.


def _end_descendants(kept: _Kept) -> int:
    """Kill all descendants but the kept ones, until none is left; how many there were."""
    ended: set[int] = set()
    while True:
        ended.update(pid for pid, _ in _reaped())
        left = [process.pid for process in _descendants(kept)]
        if not left:
            return len(ended)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # At least one of them is a child of ours, so this ends. Its own children come to us then.
        with contextlib.suppress(ChildProcessError):
            ended.add(os.waitpid(-1, 0)[0])


def _descendants(kept: _Kept) -> list[_Process]:
    """All that came from this process. What is spared hides what came from it."""
    children: dict[int, list[_Process]] = {}
    for process in _processes():
        children.setdefault(process.parent, []).append(process)
    found: list[_Process] = []
    look = [os.getpid()]
    while look:
        inside = [process for process in children.get(look.pop(), ()) if not kept.spares(process)]
        found += inside
        look += [process.pid for process in inside]
    return found


def _processes() -> Iterator[_Process]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                process = _read(int(name))
                yield process


def _read(pid: int) -> _Process:
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The second field is the name in parentheses, which may hold anything.
        fields = file.read().rpartition(b")")[2].split()
    return _Process(pid, int(fields[1]), int(fields[3]), int(fields[19]))


class _Kept:
    """The units that outlive their supervisor, by the records that it made of them."""

    def __init__(self, folder: str) -> None:
        self._pids: dict[int, int] = {}
        self._marks: set[bytes] = set()
        if not folder or not os.path.isdir(folder):
            return
        import json  # noqa: PLC0415 - only where it serves

        for name in os.listdir(folder):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError), open(f"{folder}/{name}", "rb") as file:
                record = json.load(file)
                self._pids[int(record["pid"])] = int(record["started"])
                self._marks.add(f"FLYBALL_RUN={record['run']}".encode())

    def spares(self, process: _Process) -> bool:
        """It is the process of a kept unit, or of its session, or was started by it. A pid that was given to another
        process since is not it."""
        if not self._pids:
            return False
        if process.pid in self._pids:
            return self._pids[process.pid] == process.started
        if process.session in self._pids:
            return True
        with contextlib.suppress(OSError), open(f"/proc/{process.pid}/environ", "rb") as file:
            return not self._marks.isdisjoint(file.read().split(b"\0"))
        return False


# Without one: the groups that the supervisor wrote down.


def _shared_file() -> int:
    """A file without a name, for the process groups."""
    import tempfile  # noqa: PLC0415 - only where it serves

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _end_groups(slots: int) -> int:
    """Kill the groups in the shared file, and wait until they are gone; how many there were."""
    import time  # noqa: PLC0415 - only where it serves

    size = os.fstat(slots).st_size
    groups = {int(word) for word in os.pread(slots, size, 0).split()}
    left = set(groups)
    for _ in range(ROUNDS_MAX):
        for group in tuple(left):
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                left.discard(group)
            except PermissionError:  # nobody but zombies, on macOS
                left.discard(group)
        if not left:
            break
        for _pid, _status in _reaped():
            pass
        time.sleep(0.01)
    return len(groups)


if __name__ == "__main__":
    sys.exit(guard(sys.argv[1], sys.argv[2], sys.argv[3:]))

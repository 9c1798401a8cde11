"""The guardian: a small process above a supervisor, which outlives it and sees to it that nothing runs unguarded.

It starts the supervisor, passes signals on, and reaps. When the supervisor is gone, whatever it left behind is orphaned
to the guardian, because it is the sub-reaper; it kills every descendant until the kernel says that there is none. Units
that are to be kept are spared. When the guardian itself dies, the supervisor finds its pipe closed and ends in order.

This file is run as a script by a bare interpreter, to cost little memory: it imports little, and only what Python
brings.

Where the supervisor is on a lease, there is a third process, the deadman. It reads the deadline that the supervisor
writes into a file that both hold. When that comes near, because the supervisor hangs or is frozen, and perhaps the
guardian with it, the deadman kills the supervisor and all that it started: others take that over when the lease is at
its end. Then, and when the supervisor says itself that it lost its lease, the guardian begins it anew. If the deadman
dies, the guardian makes another. If guardian and supervisor die, the deadman ends what they left.

Where there is no sub-reaper (macOS), the supervisor writes the process groups of its runs into a file that both hold,
and the guardian kills those. What left its group is then not found.
"""

# ruff: noqa: PTH110, PTH112, PTH123, PTH208
from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # a tenth of the guardian's memory
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Final, NoReturn

VARIABLE: Final = "FLYBALL_GUARDIAN"
"""Tells the supervisor the file descriptors that it was given: `pipe=3,slots=4,lock=5,deadline=6`."""
PLAN: Final = "FLYBALL_PLAN"
"""Tells the supervisor the file descriptor of what it is to run. The guardian passes it on, and lets go of it, unless
the supervisor may have to be begun anew."""
ANEW: Final = "FLYBALL_ANEW"
"""Tells the supervisor that it is begun anew, because the one before it lost its lease: it waits for the store, and has
nobody to complain to."""
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
LEASE_LOST: Final = 75
"""The exit code of a supervisor that could not renew its lease: it ended its units, and is to be begun anew. In
sysexits.h this is the failure that passes."""
ANEW_EVERY: Final = 1.0
"""Seconds from one beginning to the next, at least: what cannot live must not take the machine with it."""
ENDS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
"""Who was told one of these is not begun anew."""
TICK: Final = 0.05
"""Seconds between the deadman's looks at the clock. It does not sleep until the deadline: if the machine itself slept
meanwhile, that would be too long."""
FIRST: Final = -20
"""The deadman's niceness, where it may have one: it has to be in time on a machine that is too busy for anything else.
"""
DEATHS_MAX: Final = 100
"""Deadmen that are made for one supervisor. If so many died, something kills them, or they are no good."""
ALONE_TICKS: Final = 10
"""Ticks between the deadman's looks at the process table when it is the last one left."""
SHARED_BYTES: Final = 512
HOLDER_BYTES_MAX: Final = 400
"""Of the file that the supervisor and the deadman share."""
FILES_MAX: Final = 65_536
"""Numbers of files that the deadman closes. The guardian opens a handful, and was given a few."""


# The supervisor's side.


def is_guarded(env: Mapping[str, str]) -> bool:
    """Whether this process was started by a guardian."""
    return bool(env.get(VARIABLE))


def command(argv: Sequence[str], *, kept: str = "", lock: str = "", lease: bool = False) -> list[str]:
    """The command line of a guardian over that one. `kept` is the folder with the records of units to be spared;
    `lock` is a file that only one guardian and its supervisor can hold, as long as anything that they started lives.
    With `lease` there is a deadman."""
    return [sys.executable, "-I", "-S", __file__, kept, lock, "lease" if lease else "", *argv]


def guarded(argv: Sequence[str], *, kept: str = "", lock: str = "", lease: bool = False) -> NoReturn:
    """Become the guardian of that command: this process is replaced, and ends with the command's exit code."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # it may have been closed
            stream.flush()
    line = command(argv, kept=kept, lock=lock, lease=lease)
    os.execv(line[0], line)  # noqa: S606 - no shell is wanted


class Guard:
    """What a guarded supervisor knows of its guardian."""

    def __init__(self, env: Mapping[str, str]) -> None:
        given = {name: int(number) for name, _, number in (pair.partition("=") for pair in env[VARIABLE].split(","))}
        self.pipe = given["pipe"]
        """Readable, and at its end, when the guardian is gone."""
        self.deadline = given.get("deadline")
        """The file that is shared with the deadman; None: there is none."""
        self.line = given.get("line")
        """The end of a pipe that is closed when guardian, deadman and supervisor are all gone; None: there is none."""
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


# What the supervisor and the deadman share.


def boot_clock() -> int:
    """Microseconds since the machine was started, also those that it slept. Nobody can set this clock."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1000


class Shared:
    """The file that they share: numbers at places of their own, each written at once, then the holder."""

    DEADLINE, MARGIN, FIRED, LAST, PID, STARTED, HOLDER = range(0, 56, 8)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, place: int) -> int:
        """That number; 0 where nothing was written."""
        return int.from_bytes(os.pread(self._descriptor, 8, place), "little")

    def write(self, place: int, number: int) -> None:
        """Make it that number."""
        os.pwrite(self._descriptor, number.to_bytes(8, "little"), place)

    @property
    def holder(self) -> bytes:
        """What marks of runs begin with."""
        return os.pread(self._descriptor, HOLDER_BYTES_MAX, self.HOLDER).rstrip(b"\0")

    @holder.setter
    def holder(self, holder: bytes) -> None:
        os.pwrite(self._descriptor, holder[:HOLDER_BYTES_MAX].ljust(HOLDER_BYTES_MAX, b"\0"), self.HOLDER)

    def clear(self) -> None:
        """As nothing was written."""
        os.pwrite(self._descriptor, bytes(SHARED_BYTES), 0)


# The guardian's side.


class _Process:
    """One line of the process table."""

    __slots__ = ("dead", "parent", "pid", "session", "started")

    def __init__(self, pid: int, parent: int, session: int, started: int, *, dead: bool) -> None:
        self.pid, self.parent, self.session, self.started, self.dead = pid, parent, session, started, dead


def guard(kept: str, lock: str, lease: str, argv: Sequence[str]) -> int:
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
    deadman = None
    if lease:
        given["deadline"] = _shared_file()
        # Guardian, deadman and supervisor hold the one end: when it is closed, none of them is left.
        given["line"], given["tie"] = os.pipe()
        deadman = _Deadman(kept, given["deadline"], given.get("slots"))
    for descriptor in given.values():
        os.set_inheritable(descriptor, True)
    env = {**os.environ, VARIABLE: ",".join(f"{name}={descriptor}" for name, descriptor in given.items())}
    while True:
        begun = time.monotonic()
        child = _begin(argv, env, given["pipe"], deadman)
        if not child:
            return CANNOT_START
        status, told = _stand_by(child, waited, deadman)
        code = os.waitstatus_to_exitcode(status)
        if deadman is None or told or not deadman.says_anew(code):
            break
        deadman.end()
        ended = _end_descendants(_NONE_KEPT) if reaps else _end_groups(given["slots"])
        why = "lost its lease" if code == LEASE_LOST else "did not move, and its lease was about to end"
        sys.stderr.write(f"flyball: the supervisor {why}; {ended} processes were ended, and it is begun anew\n")
        sys.stderr.flush()
        _make_empty(given)
        env[ANEW] = "1"
        if _told_within(begun + ANEW_EVERY, waited):
            return 0
    os.close(end)
    if deadman is not None:
        kept = "" if deadman.fired else kept
    but = deadman.pid if deadman is not None else 0
    ended = _end_descendants(_Kept(kept), but) if reaps else _end_groups(given["slots"])
    if deadman is not None:
        deadman.end_unless_needed()
        code = 0 if code == LEASE_LOST else code  # it was told to end, and has ended
    if code < 0:
        name = signal.Signals(-code).name
        if terminal is not None:
            terminal.put_back()
        sys.stderr.write(f"flyball: the supervisor was killed ({name}); {ended} processes that it left were ended\n")
        return KILLED - code
    return code


def _begin(argv: Sequence[str], env: Mapping[str, str], pipe: int, deadman: _Deadman | None) -> int:
    """Start the command; its pid, or 0, with a word about it."""
    try:
        if deadman is not None:
            deadman.begin()
        child = os.posix_spawnp(argv[0], list(argv), env, setsigmask=())
    except OSError as error:
        sys.stderr.write(f"error: {argv[0]}: {error.strerror}\nCheck that it is there and can be executed.\n")
        if deadman is not None:
            deadman.end()
        return 0
    if deadman is not None:
        deadman.watch(child)
        return child
    os.close(pipe)
    if PLAN in os.environ:
        os.close(int(os.environ[PLAN]))
    return child


def _make_empty(given: Mapping[str, int]) -> None:
    """What is shared with the next supervisor says nothing of the one before; what that is to run is there again."""
    if "slots" in given:
        os.ftruncate(given["slots"], 0)
    if PLAN in os.environ:
        os.lseek(int(os.environ[PLAN]), 0, os.SEEK_SET)


def _told_within(until: float, waited: set[signal.Signals]) -> bool:
    """Whether this process is told to end before that time. There is nobody to pass it on to."""
    while (left := until - time.monotonic()) > 0:
        if hasattr(signal, "sigtimedwait"):
            info = signal.sigtimedwait(waited, left)
            if info is not None and info.si_signo in ENDS:
                return True
        else:
            time.sleep(min(left, TICK))
            if signal.sigpending() & set(ENDS):
                return True
    return False


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


def _stand_by(child: int, waited: set[signal.Signals], deadman: _Deadman | None) -> tuple[int, bool]:
    """Reap and pass signals on until the command is over; its status, and whether it was told to end."""
    told = False
    while True:
        number = _next_signal(child, waited)
        if number != signal.SIGCHLD:
            told = told or number in ENDS
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)
        for pid, status in _reaped():
            if pid == child:
                return status, told
            if deadman is not None and pid == deadman.pid:
                deadman.begin_again(child)


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


def _end_descendants(kept: _Kept, but: int = 0) -> int:
    """Kill all descendants but the kept ones (and the deadman), until none is left; how many there were."""
    ended: set[int] = set()
    while True:
        ended.update(pid for pid, _ in _reaped())
        left = [process.pid for process in _descendants([os.getpid()], kept) if process.pid != but]
        if not left:
            return len(ended)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # At least one of them is a child of ours, so this ends. Its own children come to us then.
        with contextlib.suppress(ChildProcessError):
            ended.add(os.waitpid(-1, 0)[0])


def _descendants(of: Sequence[int], kept: _Kept, everybody: Sequence[_Process] | None = None) -> list[_Process]:
    """All that came from these processes. What is spared hides what came from it."""
    children: dict[int, list[_Process]] = {}
    for process in _processes() if everybody is None else everybody:
        children.setdefault(process.parent, []).append(process)
    found: list[_Process] = []
    look = [*of]
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
    return _Process(pid, int(fields[1]), int(fields[3]), int(fields[19]), dead=fields[0] in b"ZX")


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
    """A file without a name, for what two processes share; in memory where that can be, so that no disk can be full."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("flyball")
    import tempfile  # noqa: PLC0415 - only where it serves

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _end_groups(slots: int) -> int:
    """Kill the groups in the shared file, and wait until they are gone; how many there were."""
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


# The deadman.


class _Deadman:
    """What the guardian knows of it, and what it does: one of the two in each process."""

    def __init__(self, kept: str, deadline: int, slots: int | None) -> None:
        self.pid = 0
        self._kept = kept
        self._shared = Shared(deadline)
        self._deadline, self._slots = deadline, slots
        self._deaths = 0

    # In the guardian.

    def begin(self) -> None:
        """Make it. It is this very process once more, so it costs next to nothing."""
        self._shared.clear()
        self._deaths = 0
        self._fork()

    def begin_again(self, child: int) -> None:
        """It died. Without one the supervisor is not to go on: nobody would end its units in time."""
        self.pid = 0
        self._deaths += 1
        if self._deaths > DEATHS_MAX:
            os.kill(child, signal.SIGTERM)
            return
        try:
            self._fork()
        except OSError:
            os.kill(child, signal.SIGTERM)

    def watch(self, child: int) -> None:
        """That is the supervisor."""
        with contextlib.suppress(OSError):  # no /proc
            self._shared.write(Shared.STARTED, _read(child).started)
        self._shared.write(Shared.PID, child)

    @property
    def fired(self) -> bool:
        """It has killed, or is about to."""
        return bool(self._shared.read(Shared.FIRED))

    def says_anew(self, code: int) -> bool:
        """Whether a supervisor with that exit code is to be begun anew: it lost its lease, or was killed for that. Not
        if it was at its end anyway."""
        return (code == LEASE_LOST or (code < 0 and self.fired)) and not self._shared.read(Shared.LAST)

    def end(self) -> None:
        """There is nothing to watch over for now."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            if self.pid and not os.waitpid(self.pid, os.WNOHANG)[0]:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
        self.pid = 0

    def end_unless_needed(self) -> None:
        """All is over, but for what outlives its supervisor: that may live for as long as the lease."""
        if not self._shared.read(Shared.DEADLINE) or not any(self._left(_NONE_KEPT, [os.getpid()])):
            self.end()

    def _fork(self) -> None:
        guardian = os.getpid()
        self.pid = os.fork()
        if self.pid:
            return
        try:
            self._keep_watch(guardian)
        finally:
            os._exit(0)

    # In the deadman.

    def _keep_watch(self, guardian: int) -> None:
        """Until there is nothing to watch over."""
        os.setsid()  # what stops the process group of the guardian does not stop it
        for number in PASSED_ON:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        with contextlib.suppress(OSError):  # who may not is not root
            os.setpriority(os.PRIO_PROCESS, 0, FIRST)
        self._let_go()
        alone, ticks = False, 0
        while True:
            left = self._time_left()
            if left <= 0:
                self._fire(guardian)
            if not alone and os.getppid() != guardian:
                alone, ticks = True, 0
            if alone and ticks % ALONE_TICKS == 0 and self._is_over():
                return
            ticks += 1
            time.sleep(min(max(left, 0.001), TICK))

    def _time_left(self) -> float:
        """Seconds until all of it has to be killed."""
        deadline = self._shared.read(Shared.DEADLINE)
        return (deadline - self._shared.read(Shared.MARGIN) - boot_clock()) / 1e6 if deadline else TICK

    def _let_go(self) -> None:
        """Whoever waits for a pipe or a file of the guardian does not wait for this process, too."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(LAST_STREAM + 1):
            os.dup2(nothing, stream)
        needed = [number for number in (self._deadline, self._slots) if number is not None]
        last = LAST_STREAM
        for descriptor in (*sorted(needed), FILES_MAX):
            os.closerange(last + 1, descriptor)
            last = descriptor

    def _fire(self, guardian: int) -> None:
        """Kill the supervisor, then all that it started, until nothing of it is alive."""
        self._shared.write(Shared.FIRED, 1)
        self._end_all(_NONE_KEPT, guardian)
        self._shared.write(Shared.DEADLINE, 0)

    def _is_over(self) -> bool:
        """The guardian is gone. If the supervisor is, too, then what they left is ended, but for the kept; whether
        nothing is left to watch over."""
        if not self._shared.read(Shared.DEADLINE):
            return True
        if self._supervisor():
            return False
        self._end_all(_Kept(self._kept), 0)
        return not any(self._left(_NONE_KEPT, []))

    def _end_all(self, kept: _Kept, guardian: int) -> None:
        if self._slots is not None:
            self._kill(self._supervisor())
            _end_groups(self._slots)
            return
        of = [guardian] if guardian and os.getppid() == guardian else []
        while self._kill(self._left(kept, of)):
            time.sleep(TICK / 10)

    def _kill(self, pids: Iterable[int]) -> int:
        """Each as soon as it is found; how many there were."""
        found = 0
        for found, pid in enumerate(pids, 1):  # noqa: B007 - how many is what is wanted
            with contextlib.suppress(OSError):  # gone, or somebody else's: then the others are not spared for it
                os.kill(pid, signal.SIGKILL)
        return found

    def _left(self, kept: _Kept, of: Sequence[int]) -> Iterator[int]:
        """What is alive of the supervisor and of all that it started: first itself, then what descends from it, then
        what is only known by its mark, which takes longest to find."""
        if self._slots is not None:
            return
        supervisor = self._supervisor()
        everybody = list(_processes())  # before it is killed: then its children are somebody else's
        yield from supervisor
        known = {*supervisor, *of, os.getpid(), self.pid}
        for process in _descendants([*of, *supervisor], kept, everybody):
            if not process.dead and process.pid not in known:
                known.add(process.pid)
                yield process.pid
        holder, since = self._shared.holder, self._shared.read(Shared.STARTED)
        marks = (b"FLYBALL_RUN=" + holder + b".", b"FLYBALL_RUN=" + holder + b"/")
        for process in everybody if holder else ():
            if process.dead or process.pid in known or process.started < since:
                continue
            if _has_mark(process.pid, marks) and not kept.spares(process):
                yield process.pid

    def _supervisor(self) -> list[int]:
        """Its pid, if it is alive. One that was given to another process since is not it."""
        pid = self._shared.read(Shared.PID)
        with contextlib.suppress(OSError):
            if pid and self._slots is not None:
                os.kill(pid, 0)
                return [pid]
            process = _read(pid)
            if process.started == self._shared.read(Shared.STARTED) and not process.dead:
                return [pid]
        return []


_NONE_KEPT: Final = _Kept("")


def _has_mark(pid: int, marks: tuple[bytes, ...]) -> bool:
    """Whether it says that it is of a run of that supervisor."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return any(word.startswith(marks) for word in file.read().split(b"\0"))
    return False


if __name__ == "__main__":
    sys.exit(guard(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))

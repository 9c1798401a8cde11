"""Starting a process: the command, its environment, its user, its limits. Nothing is looked after here.

Never by code between fork and exec (`preexec_fn`): that takes the slow way and can hang. What cannot be done from
outside before the first instruction, the limits, is done by a shell that then becomes the command.
"""

import contextlib
import errno
import fcntl
import functools
import grp
import os
import pwd
import resource
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from flyball.config.units import Unit
from flyball.core.event import Cause
from flyball.core.failure import FINGERPRINT_VERSION, fingerprint
from flyball.runtimes import guardian
from flyball.runtimes.driver import Ending

UNIT_VARIABLE: Final = "FLYBALL_UNIT"
RUN_VARIABLE: Final = "FLYBALL_RUN"
"""The mark by which a run's processes are known when they left its process group."""

NOT_PASSED_ON: Final = (
    RUN_VARIABLE,
    guardian.VARIABLE,
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "FLYBALL_SESSION",
    "FLYBALL_CHECKPOINT",
    "FLYBALL_CHECKPOINT_ID",
    "FLYBALL_RESUMED",
)
"""What whoever started the supervisor told the supervisor, and nobody else."""

STARVED: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
"""Not the command's fault: the machine has too little of something."""

LAST_STREAM: Final = 2
PYTHONS_SIGNALS: Final = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores them. A unit must not."""

_SHELL: Final = "/bin/sh"


class CannotStart(Exception):
    """There is no process. `what` is the short name of the error, the text says where and what to do."""

    def __init__(self, what: str, text: str, *, target: str = "", number: int = 0) -> None:
        super().__init__(text)
        self.what, self.target, self.number = what, target, number

    def ending(self, unit: str) -> Ending:
        """It is the end of a run that never lived."""
        cause = Cause.STARVED if self.number in STARVED else Cause.ERROR
        mark = fingerprint(unit, self.what, target=self.target, errno=self.number)
        return Ending(cause, mark, FINGERPRINT_VERSION, self.what, detail=str(self))


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a unit runs as; None: as the supervisor."""

    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] | None = None
    env: Mapping[str, str] = field(default_factory=dict)


NOBODY_ELSE: Final = Identity()


def spawn(
    unit: Unit,
    run: str,
    args: Sequence[str],
    env: Mapping[str, str],
    *,
    streams: tuple[int, int, int],
    terminal: str = "",
) -> int:
    """Start the unit's process in a session and group of its own; its pid, which is the caller's to reap. `terminal`
    is one that becomes its own; else `streams` are its stdin, stdout and stderr, below 0: nothing. CannotStart says
    why not."""
    identity = _identity(unit)
    env = {**environment(unit, identity), **env, RUN_VARIABLE: run}
    command = [*unit.command, *args]
    if not command or not command[0]:
        raise CannotStart("no command", f"unit {unit.name} has no command; give it one")
    wrapper = _wrapper(unit, terminal)
    if wrapper:
        _check_command(unit, command[0], env)
    stdin, stdout, stderr = (stream if stream >= 0 else nothing() for stream in streams)
    line = _own_line()
    try:
        if _sealed and not (wrapper or unit.cwd) and identity.uid is identity.gid is None and "/" in command[0]:
            pid = _spawn_quickly(command, env, (stdin, stdout, stderr), line)
            _tie(pid, line)
            if unit.nice:
                _make_nice(unit, pid)
            return pid
        process = subprocess.Popen(  # noqa: S603 - running what the unit says is the purpose
            [*wrapper, *command],
            cwd=unit.cwd or None,
            env=env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            user=identity.uid,
            group=identity.gid,
            extra_groups=identity.groups,
            pass_fds=() if line is None else (line,),
        )
        _tie(process.pid, line)
    except OSError as error:
        raise explained(unit, command[0], error) from error
    except (ValueError, subprocess.SubprocessError) as error:
        text = f"unit {unit.name} cannot be started: its command, folder or environment is not valid"
        raise CannotStart("bad command", text, target=command[0]) from error
    finally:
        if line is not None:
            os.close(line)
    process.returncode = 0  # reaped by its life, not by this object
    if unit.nice:
        _make_nice(unit, process.pid)
    return process.pid


def seal() -> None:
    """Have every file that this process has open stay with it: whoever started it may have passed some on. Where the
    process opens none itself that its children would get, they can be started in the quick way from then on."""
    global _sealed  # noqa: PLW0603 - it is the process that is sealed
    try:
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers are wanted, not paths
            with contextlib.suppress(OSError):  # the folder's own is closed by now
                if int(name) > LAST_STREAM:
                    os.set_inheritable(int(name), False)
        _sealed = True
    except OSError:  # no /proc: then each start closes what has to be closed
        return


_sealed = False


_line: int | None = None
"""The end of a pipe that is closed when nobody is left who looks after what is started here."""


def tie(line: int | None) -> None:
    """Have the kernel kill whatever is started from now on when that pipe is closed at its other end: when supervisor,
    guardian and deadman were all killed at once, nobody else can. What leaves its process group is not reached."""
    global _line  # noqa: PLW0603 - it is the process that holds it
    _line = line if hasattr(fcntl, "F_SETSIG") else None


def _own_line() -> int | None:
    """The same pipe, opened once more: who is to be killed is kept with each opening."""
    if _line is None:
        return None
    try:
        return os.open(f"/proc/self/fd/{_line}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # no /proc, or too many files: it is the last of four that see to it
        return None


def _tie(pid: int, line: int | None) -> None:
    if line is not None:
        with contextlib.suppress(OSError):  # it is gone already
            fcntl.fcntl(line, fcntl.F_SETOWN, -pid)
            fcntl.fcntl(line, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(line, fcntl.F_SETFL, fcntl.fcntl(line, fcntl.F_GETFL) | os.O_ASYNC)


def _spawn_quickly(command: list[str], env: Mapping[str, str], streams: tuple[int, int, int], line: int | None) -> int:
    """A third less time than `subprocess` takes, for a program that is named by its path and run as it is. Python's own
    signal settings are put back here, too; and a process that was sealed has no files to be closed."""
    files = [(os.POSIX_SPAWN_DUP2, stream, number) for number, stream in enumerate(streams)]
    if line is not None:
        files.append((os.POSIX_SPAWN_DUP2, line, line))  # which is how it is told to stay open
    return os.posix_spawn(command[0], command, env, file_actions=files, setsid=True, setsigdef=PYTHONS_SIGNALS)


@functools.cache
def nothing() -> int:
    """/dev/null, opened once: a start takes a tenth less for it."""
    return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)


@functools.cache
def inherited() -> Mapping[str, str]:
    """The supervisor's environment as it was at the first start: reading it each time takes longer than all the rest
    that is done here."""
    return {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}


def withhold(names: Iterable[str]) -> None:
    """Variables that whatever is started from now on does not inherit. A unit that needs one is given it by its
    own settings."""
    for name in names:
        os.environ.pop(name, None)
    inherited.cache_clear()


def environment(unit: Unit, identity: Identity = NOBODY_ELSE) -> dict[str, str]:
    """The supervisor's, then the user's, then the unit's own. Without the mark of a run: also for what is started on
    behalf of the unit, such as a probe."""
    env = {**inherited(), **identity.env}
    env.update(unit.env)
    env[UNIT_VARIABLE] = unit.name
    return env


def _identity(unit: Unit) -> Identity:
    if not unit.user and not unit.group:
        return NOBODY_ELSE
    uid = gid = None
    groups: tuple[int, ...] | None = None
    env: dict[str, str] = {}
    if unit.user:
        try:
            entry = pwd.getpwuid(int(unit.user)) if unit.user.isdecimal() else pwd.getpwnam(unit.user)
        except (KeyError, OverflowError):
            text = f"unit {unit.name}: there is no user {unit.user!r} on this machine; create it, or change `user`"
            raise CannotStart("unknown user", text, target=unit.user) from None
        uid, gid = entry.pw_uid, entry.pw_gid
        env = {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}
        groups = tuple(os.getgrouplist(entry.pw_name, gid))
    if unit.group:
        try:
            gid = (grp.getgrgid(int(unit.group)) if unit.group.isdecimal() else grp.getgrnam(unit.group)).gr_gid
        except (KeyError, OverflowError):
            text = f"unit {unit.name}: there is no group {unit.group!r} on this machine; create it, or change `group`"
            raise CannotStart("unknown group", text, target=unit.group) from None
    if uid in (None, os.geteuid()) and gid in (None, os.getegid()):
        return Identity(env=env)
    return Identity(uid, gid, groups, env)


def _wrapper(unit: Unit, terminal: str) -> list[str]:
    """A shell that does what has to be done inside the new process, and becomes the command. Limits that were set from
    outside would come too late for what the command starts at once."""
    steps = []
    if unit.memory_max:
        steps.append(f"ulimit -v {_allowed(resource.RLIMIT_AS, unit.memory_max) // 1024}")
    if unit.files_max:
        steps.append(f"ulimit -n {_allowed(resource.RLIMIT_NOFILE, unit.files_max)}")
    if terminal:
        # The first terminal that the leader of a session opens becomes its own.
        return [_SHELL, "-c", " && ".join([*steps, 'exec "$@" <>"$0" >&0 2>&0']), terminal]
    return [_SHELL, "-c", " && ".join([*steps, 'exec "$@"']), "flyball"] if steps else []


def _allowed(kind: int, wanted: int) -> int:
    """The limit that can be set: a stricter one that we have ourselves stays."""
    hard = resource.getrlimit(kind)[1]
    return wanted if hard == resource.RLIM_INFINITY or os.geteuid() == 0 else min(wanted, hard)


def _check_command(unit: Unit, name: str, env: Mapping[str, str]) -> None:
    """What the kernel would say without the shell in between."""
    place = Path(unit.cwd or ".")
    if "/" in name:
        found: str | None = str(place / name)
        missing = not (place / name).exists()
    else:
        found = _which(name, env.get("PATH", os.defpath))
        missing = found is None
    if unit.cwd and not place.is_dir():
        raise explained(unit, name, FileNotFoundError(errno.ENOENT, "", unit.cwd))
    if missing:
        raise explained(unit, name, FileNotFoundError(errno.ENOENT, "", name))
    if found is not None and (not os.access(found, os.X_OK) or Path(found).is_dir()):
        raise explained(unit, name, PermissionError(errno.EACCES, "", name))


def explained(unit: Unit, name: str, error: OSError) -> CannotStart:
    """What the kernel meant."""
    number = error.errno or 0
    if number == errno.EACCES and name and "/" not in name and not _is_in_path(unit, name):
        number = errno.ENOENT  # a folder in PATH that may not be entered is not what is wrong
    begin = f"unit {unit.name} cannot be started: "
    if unit.cwd and error.filename == unit.cwd and not _is_usable(unit.cwd):
        what, text, target = "bad folder", f"its folder {unit.cwd} {_why(number)}; change `cwd`", unit.cwd
    elif number == errno.EPERM and (unit.user or unit.group):
        who = unit.user or unit.group
        text = f"this supervisor may not run anything as {who}; run it as root, or leave out `user` and `group`"
        what, target = "no right to change user", who
    elif number == errno.ENOENT:
        where = "" if "/" in name else " in PATH"
        if "/" in name and (Path(unit.cwd or ".") / name).exists():
            what, text = "interpreter not found", f"the interpreter that {name} names in its first line is not there"
        else:
            what, text = "command not found", f"{name} is not there{where}; install it, or change `command`"
        target = name
    elif number in (errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.EISDIR, errno.ENOTDIR):
        what, text, target = "not executable", f"{name} {_why(number)}; check what it is, and its mode", name
    elif number in STARVED:
        what, text, target = "no room for a process", f"{_why(number)}; fewer processes or higher limits help", ""
    else:
        what, text, target = "cannot start", f"{name}: {_why(number)}", name
    return CannotStart(what, begin + text, target=target, number=number)


def _is_in_path(unit: Unit, name: str) -> bool:
    return _which(name, {**inherited(), **unit.env}.get("PATH"), os.F_OK) is not None


def _which(name: str, path: str | None, mode: int = os.F_OK | os.X_OK) -> str | None:
    import shutil  # noqa: PLC0415 - a supervisor rarely needs it, and would have it in its memory for good

    return shutil.which(name, mode, path)


def _is_usable(folder: str) -> bool:
    return Path(folder).is_dir() and os.access(folder, os.X_OK)


def _why(number: int) -> str:
    named = {
        errno.ENOENT: "is not there",
        errno.ENOTDIR: "is no folder",
        errno.EACCES: "may not be executed or entered",
        errno.ENOEXEC: "is no program, nor a script with `#!` in its first line",
    }
    return named.get(number) or os.strerror(number)


def _make_nice(unit: Unit, pid: int) -> None:
    """For the whole group: what it started in between as well."""
    try:
        os.setpriority(os.PRIO_PGRP, pid, unit.nice)
    except ProcessLookupError:
        return
    except OSError as error:
        text = f"unit {unit.name} may not have nice {unit.nice}; below 0 needs root"
        os.killpg(pid, 9)
        os.waitpid(pid, 0)
        raise CannotStart("no right to change nice", text, number=error.errno or 0) from error

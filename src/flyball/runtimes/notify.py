"""The notify socket of one unit: what its processes say, as software that speaks sd_notify says it.

One socket a unit, so that nobody has to guess which unit a message is about, and a path that stays the same over its
runs. It listens during a run only: what came before the run is thrown away, so no run is heard for another. Whoever
sends is known by what the kernel says of it; a stranger is not heard. Whatever comes, nothing here raises.
"""

import array
import asyncio
import contextlib
import functools
import os
import socket
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from flyball.core.failure import digest
from flyball.core.name import is_name
from flyball.errors import FlyballError

MESSAGE_BYTES_MAX: Final = 32_768
"""One message. systemd takes 4,096 bytes; a step with its result, cut where a fingerprint stops looking, needs more."""
LINES_MAX: Final = 64
"""Lines of one message: there are some twenty keys."""
FILES_MAX: Final = 8
"""Files that come with one message. None is kept; those beyond this number are closed by the kernel."""
PAIRS_MAX: Final = 16
"""Messages that are remembered: most are the same few words, again and again. At most half a megabyte."""
DRAINED_MAX: Final = 4_096
"""Messages taken at the end of a run. The kernel holds some hundred of them at most; more would come from outside."""
ANCESTORS_MAX: Final = 64
"""Generations between a sender and the process that was started."""
PATH_BYTES_MAX: Final = 103
"""The longest path that a socket can have on every system."""

INHERITED: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "FLYBALL_RUN", "FLYBALL_DUMP_SIGNAL")
"""Variables that speak of a supervisor. What flyball itself was given by its own must not reach a unit."""

OWN_KEYS: Final = "X_FLYBALL_"
RUN_KEY: Final = "X_FLYBALL_RUN"

PROC: Path = Path("/proc")
"""Where the kernel shows who descends from whom. Where it does not, only the message itself can tell."""

_CREDENTIALS_SIZE: Final = 12  # pid, uid, gid
_EXTRAS_MAX: Final = socket.CMSG_SPACE(_CREDENTIALS_SIZE) + socket.CMSG_SPACE(FILES_MAX * array.array("i").itemsize)


Address = str | bytes | None


class Kin(Enum):
    """Whether a sender belongs to the run."""

    OWN = "own"
    STRANGER = "stranger"
    UNKNOWN = "unknown"
    """It has ended already, or the system does not tell who sent."""


@dataclass(frozen=True, slots=True)
class Message:
    """What one of the run's processes said."""

    pairs: tuple[tuple[str, str], ...]
    pid: int = 0
    """Who said it, by the kernel's word; 0 where it has none."""
    answer: Callable[[bytes], None] | None = None
    """Sends an answer back. None: the sender has no address."""

    def get(self, key: str) -> str | None:
        """What it says last about that key."""
        return next((value for name, value in reversed(self.pairs) if name == key), None)


Listener = Callable[[Message], None]


@dataclass(slots=True)
class Notify:
    """The socket. `open` it, `expect` a run before it is started, `listen` when its pid is known, `rest` at its end."""

    path: Path
    uid: int
    """Whose the unit's processes are."""
    main_pid: int = 0
    """The run's main process: the one that was started, or a descendant that it named by MAINPID."""
    _socket: socket.socket | None = None
    _run: str = ""
    _root: int = 0
    _listeners: tuple[Listener, ...] = ()
    _loop: asyncio.AbstractEventLoop | None = None
    """Where it is read; None while it is not."""

    @classmethod
    def open(cls, folder: Path, unit: str, *, uid: int | None = None) -> "Notify":
        """The socket of that unit, in the folder if its path is short enough and the unit's user can get there.

        A socket that nobody listens on any more is replaced, a live one never.
        """
        own = os.geteuid()
        uid = own if uid is None else uid
        name = f"{unit if is_name(unit) else digest([unit])}.sock"
        path = folder / name
        try:
            if uid == own and len(os.fsencode(path)) <= PATH_BYTES_MAX:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            else:
                path = shared_folder(own) / f"{digest([str(path)])}.sock"
            notify = cls(path, uid)
            notify._bind()
        except OSError as error:
            raise FlyballError(
                f"cannot make the notify socket {path}: {error.strerror or error}",
                remedy="Check the owner and mode of its folder, or use another FLYBALL_STATE_DIR.",
            ) from None
        return notify

    def _bind(self) -> None:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            if _tells_sender():
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            listening.setblocking(False)
            _remove_stale(self.path)
            listening.bind(os.fspath(self.path))
            self.path.chmod(0o600)
            if self.uid != os.geteuid():
                os.chown(self.path, self.uid, -1)
        except BaseException:
            listening.close()
            raise
        self._socket = listening

    def close(self) -> None:
        """Done with this unit."""
        self._stop_reading()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            with contextlib.suppress(OSError):
                self.path.unlink()

    def env(self, run: str) -> Mapping[str, str]:
        """What the run's processes have to know."""
        return {"NOTIFY_SOCKET": str(self.path), "FLYBALL_RUN": run}

    def expect(self, run: str) -> None:
        """A run is about to be started: nothing that was said until now is about it."""
        self._run, self._listeners = run, ()
        self._drain()

    def listen(self, pid: int, *listeners: Listener) -> None:
        """The run was started as that process. What was said since waits in the socket and is heard now."""
        self._root = self.main_pid = pid
        self._listeners = listeners
        self._start_reading()

    def pause(self, full: bool) -> None:
        """Do not read for now: what is said waits in the socket, and then whoever speaks has to wait."""
        if full:
            self._stop_reading()
        elif self._listeners:
            self._start_reading()

    def rest(self) -> None:
        """The run is over: hear what it said last, then nobody."""
        self._stop_reading()
        self._drain()
        self._run, self._root, self.main_pid, self._listeners = "", 0, 0, ()

    def _start_reading(self) -> None:
        if self._socket is not None and self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._socket, self._read)

    def _stop_reading(self) -> None:
        if self._socket is not None and self._loop is not None:
            self._loop.remove_reader(self._socket)
            self._loop = None

    def _read(self) -> None:
        """One message, no more: others are not kept waiting by one that talks a lot; and mostly there is no second one,
        which would take as long to find out."""
        self._take()

    def _drain(self) -> None:
        for _ in range(DRAINED_MAX):
            if not self._take():
                return

    def _take(self) -> bool:
        """Take one message. False: there is none."""
        if self._socket is None:
            return False
        try:
            data, extras, flags, address = self._socket.recvmsg(MESSAGE_BYTES_MAX, _EXTRAS_MAX)
        except OSError:
            return False
        pid, uid, files = _extras(extras)
        try:
            self._hear(data, bool(flags & socket.MSG_TRUNC), pid, uid, address)
        finally:
            # After what came before it was heard: this is what BARRIER=1 waits for.
            for number in files:
                os.close(number)
        return True

    def _hear(self, data: bytes, cut: bool, pid: int, uid: int, address: Address) -> None:
        if not self._listeners:
            return
        pairs = () if cut else _pairs(data)
        if not pairs:
            return
        message = Message(pairs, pid, self._answer_to(address) if address else None)
        if not self._is_own(message, uid):
            return
        self._note_main(message)
        for listener in self._listeners:
            listener(message)

    def _is_own(self, message: Message, uid: int) -> bool:
        if uid not in (-1, self.uid, 0):
            return False
        token = message.get(RUN_KEY)
        if token is not None:
            return token == self._run
        kin = self._kin(message.pid) if message.pid or uid != -1 else Kin.UNKNOWN
        if kin is Kin.UNKNOWN:
            # It reached a socket that only this unit's user can reach. That is enough for signs of life, not for
            # steps and money: those name the run.
            return not any(key.startswith(OWN_KEYS) for key, _ in message.pairs)
        return kin is Kin.OWN

    def _kin(self, pid: int) -> Kin:
        """Whether that process descends from the run's, is of its session, or was started with the run's name."""
        if pid == self._root:
            return Kin.OWN
        if not pid:
            return Kin.STRANGER
        at = pid
        for _ in range(ANCESTORS_MAX):
            found = _parent_and_session(at)
            if found is None:
                return Kin.UNKNOWN if at == pid else Kin.STRANGER
            parent, session = found
            if {at, session} & {self._root, self.main_pid}:
                return Kin.OWN
            if parent <= 1:
                break
            at = parent
        with contextlib.suppress(OSError):
            if b"FLYBALL_RUN=" + os.fsencode(self._run) in (PROC / str(pid) / "environ").read_bytes().split(b"\0"):
                return Kin.OWN
        return Kin.STRANGER

    def _note_main(self, message: Message) -> None:
        named = message.get("MAINPID")
        if named and named.isdecimal() and len(named) < 10 and self._kin(int(named)) is Kin.OWN:
            self.main_pid = int(named)

    def _answer_to(self, address: str | bytes) -> Callable[[bytes], None]:
        def answer(data: bytes) -> None:
            with contextlib.suppress(OSError):  # whoever asked has gone, or does not read
                if self._socket is not None:
                    self._socket.sendto(data, address)

        return answer


def _tells_sender() -> bool:
    return hasattr(socket, "SO_PASSCRED")


def _extras(extras: list[tuple[int, int, bytes]]) -> tuple[int, int, list[int]]:
    """Who sent it (pid and uid; 0 and -1 if that is not known), and the files that came with it."""
    pid, uid, files = 0, -1, array.array("i")
    for level, kind, data in extras:
        if level != socket.SOL_SOCKET:
            continue
        if kind == socket.SCM_RIGHTS:
            files.frombytes(data[: len(data) - len(data) % files.itemsize])
        elif _tells_sender() and kind == socket.SCM_CREDENTIALS and len(data) >= _CREDENTIALS_SIZE:
            pid, uid, _ = array.array("i", data[:_CREDENTIALS_SIZE])
    return pid, uid, list(files)


@functools.lru_cache(PAIRS_MAX)
def _pairs(data: bytes) -> tuple[tuple[str, str], ...]:
    lines = data.decode("utf-8", "replace").split("\n", LINES_MAX)[:LINES_MAX]
    pairs = (line.partition("=") for line in lines)
    return tuple((key, value) for key, equals, value in pairs if key and equals)


def _parent_and_session(pid: int) -> tuple[int, int] | None:
    try:
        text = (PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The name, in parentheses, may itself contain spaces and parentheses: what follows begins after the last one.
    fields = text[text.rindex(b")") + 2 :].split()
    return int(fields[1]), int(fields[3])


def shared_folder(own: int) -> Path:
    """A folder with a short path where others can reach what is theirs, but not see what there is. One that somebody
    else made, where everybody may, is not used."""
    import tempfile  # noqa: PLC0415 - most units do not need it, and a supervisor would have it in its memory for good

    folder = Path(tempfile.gettempdir()) / f"flyball-{own}"
    folder.mkdir(mode=0o711, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != own:
        raise FlyballError(
            f"{folder} is not a folder of this user, so the notify socket is not made there",
            remedy="Remove it, or set TMPDIR to a folder of your own.",
        )
    if stat.S_IMODE(found.st_mode) != 0o711:
        folder.chmod(0o711)
    return folder


def _remove_stale(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as trying:
        try:
            trying.connect(os.fspath(path))
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            path.unlink()
            return
    raise FlyballError(
        f"another supervisor listens on {path}",
        remedy="Stop it first, or use another FLYBALL_STATE_DIR.",
    )

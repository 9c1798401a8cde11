"""Processes without the price of starting Python: one has imported what takes long, and is forked for each run.

What is tested is what a process does, and what a kill does to it; that Python can be started and flyball be imported is
tested elsewhere. A run is otherwise as `python -m module` has it (or `python path`, where there is a slash in it): its
name, arguments, environment, folder, output, exit code, a pid that can be killed at any instant.
"""

import atexit
import contextlib
import functools
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import IO, Final, NoReturn

from flyball.cli import COMMANDS

ROOT: Final = Path(__file__).parents[1]
REQUEST_MAX: Final = 1 << 20
"""Bytes of one request: an environment, and a few words."""
FILES: Final = 4
"""What comes with a request: its input, its output, its errors, and where its end is told."""


class Forked:
    """One run."""

    def __init__(self, told: socket.socket, stdin: int, stdout: int, stderr: int | None) -> None:
        self._told = told
        self.pid = int(told.recv(64))
        self.stdin: IO[str] = os.fdopen(stdin, "w")
        self.stdout: IO[str] = os.fdopen(stdout)
        self.stderr: IO[str] | None = None if stderr is None else os.fdopen(stderr)
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code; below zero: the signal that ended it."""
        if self.returncode is None:
            self._told.settimeout(timeout)
            self.returncode = int(self._told.recv(64))
            self._told.close()
        return self.returncode

    def communicate(self, typed: str = "", timeout: float | None = None) -> tuple[str, str]:
        """What it says, to its end, and what it complains of. What does not end in time is killed."""
        assert self.stderr is not None
        with ThreadPoolExecutor(2) as threads, self.stdout, self.stderr:
            said, complained = threads.submit(self.stdout.read), threads.submit(self.stderr.read)
            with contextlib.suppress(BrokenPipeError), self.stdin:
                self.stdin.write(typed)
            try:
                self.wait(timeout)
            except TimeoutError:
                self.kill()
                raise
            return said.result(), complained.result()

    def kill(self) -> None:
        """kill -9. Nobody else has its number before its end was told."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class Zygote:
    """Forks runs. Close it after use."""

    def __init__(self, *modules: str) -> None:
        """It imports these, and what they import."""
        self._asks, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._asks, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, REQUEST_MAX)
        with theirs:
            command = [sys.executable, "-m", "tests.zygote", str(theirs.fileno()), *modules]
            self._process = subprocess.Popen(
                command, cwd=ROOT, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )

    def start(
        self,
        module: str,
        *words: str,
        cwd: Path = ROOT,
        env: Mapping[str, str] | None = None,
        errors: bool = False,
    ) -> Forked:
        """Start a run. Its `errors` are had apart, or are those of the tests."""
        given, stdin = os.pipe()
        stdout, taken = os.pipe()
        stderr, complained = os.pipe() if errors else (None, os.dup(2))
        mine, told = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = {"module": module, "words": words, "cwd": str(cwd), "env": dict(os.environ if env is None else env)}
        theirs = (given, taken, complained, told.detach())
        socket.send_fds(self._asks, [json.dumps(request).encode()], theirs)
        for number in theirs:
            os.close(number)
        return Forked(mine, stdin, stdout, stderr)

    def run(
        self, module: str, *words: str, cwd: Path, env: Mapping[str, str], typed: str = "", timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """A run to its end."""
        process = self.start(module, *words, cwd=cwd, env=env, errors=True)
        said, complained = process.communicate(typed, timeout)
        return subprocess.CompletedProcess(["python", "-m", module, *words], process.wait(), said, complained)

    def close(self) -> None:
        """End it. What it forked goes on."""
        self._asks.close()
        self._process.wait()


@functools.cache
def zygote_of(*modules: str) -> Zygote:
    """One for all tests of this process that need the same modules."""
    zygote = Zygote(*modules)
    atexit.register(zygote.close)
    return zygote


def command() -> Zygote:
    """One that is ready to be the command `flyball`."""
    homes = sorted({home.partition(":")[0] for home, _ in COMMANDS.values()})
    return zygote_of("yaml", "rich.console", *homes)


def _serve(asks: socket.socket) -> str | None:
    """Fork a process for each request, until nobody can ask any more. In such a process: what it is to run."""
    ringing, bell = os.pipe()
    for end in (ringing, bell):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(bell)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    told: dict[int, int] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(asks, selectors.EVENT_READ)
        selector.register(ringing, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not asks:
                    os.read(ringing, 4096)
                    _bury(told)
                    continue
                data, files, _, _ = socket.recv_fds(asks, REQUEST_MAX, FILES)
                if not data:
                    return None
                pid = os.fork()
                if not pid:
                    return _become(json.loads(data), files, [ringing, bell, asks.fileno(), *told.values()])
                told[pid] = files[3]
                os.write(files[3], str(pid).encode())
                for number in files[:3]:
                    os.close(number)


def _bury(told: dict[int, int]) -> None:
    """Tell of whoever ended."""
    while told:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with contextlib.suppress(OSError):  # nobody wants to know
            os.write(told[pid], str(os.waitstatus_to_exitcode(status)).encode())
        os.close(told.pop(pid))


def _become(request: dict[str, object], files: Sequence[int], inherited: Sequence[int]) -> str:
    """Nothing of the process that it was forked from is left, but for what was imported."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for place, number in enumerate(files[:3]):
        os.dup2(number, place)
    for number in {*files, *inherited}:
        os.close(number)
    env, words = request["env"], request["words"]
    assert isinstance(env, dict)
    assert isinstance(words, list)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(str(request["cwd"]))
    sys.path[0] = str(request["cwd"])
    sys.argv[1:] = words
    return str(request["module"])


def main() -> NoReturn:
    asks = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        import_module(module)
    run = _serve(asks)
    if run is None:
        sys.exit(0)
    asks.detach()
    if os.sep in run:
        sys.argv[0] = run
        runpy.run_path(run, run_name="__main__")
    else:
        runpy.run_module(run, run_name="__main__", alter_sys=True)
    sys.exit(0)


if __name__ == "__main__":
    main()

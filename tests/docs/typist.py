"""Somebody who types what a page shows, line by line, in one world.

What a line sets holds for those after it. A plain `flyball` command is the real one, forked from a process that has
imported it already; anything else is given to bash. What never ends is started on a terminal, seen to do something, and
ended by Ctrl-C.
"""

import contextlib
import fcntl
import os
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Final, NamedTuple

from tests.docs.pages import Command
from tests.docs.world import World
from tests.zygote import Zygote, command, zygote_of

PATIENCE: Final = 60.0
"""Seconds for one command. It takes a fraction of one, or a few: this machine may be busy."""
ENDLESS: Final = re.compile(
    r"flyball (top\b|.*--watch\b|(logs|events|audit)\b.* (-f|--follow)\b"
    r"|up\b(?!.* (-d|--detach)\b)|demo\b(?!.* --once\b))"
)
"""Commands that go on until Ctrl-C."""
CTRL_C: Final = frozenset({0, 130})
"""How those end then."""

SLOW_TO_IMPORT: Final = ("flyball.app", "flyball.integrations.deliberation", "flyball.integrations.langgraph")
"""What the examples need; as the test of the deliberation has it, so that a worker has one such process for both."""

_SHELL: Final = re.compile(r"[$|&;<>()`*?~\n]")
_ESCAPES: Final = re.compile(rb"\x1b[\[(][0-9;?]*[a-zA-Z]|\x1b[=>]")
_KEPT: Final = "after"
_SCRIPT: Final = """\
set -a
trap 'code=$?; env -0 > "$KEPT"; exit $code' EXIT
(exit {code})
{text}
"""
_OURS: Final = frozenset({"KEPT", "SHLVL", "_", "PWD", "OLDPWD", "BASHOPTS", "SHELLOPTS"})


def ready(program: str) -> Zygote:
    """A process that is ready to be that program. Examples are of graphs where they take long to start."""
    return command() if program == "flyball" else zygote_of(*SLOW_TO_IMPORT)


class Done(NamedTuple):
    """What became of a command."""

    code: int
    out: str
    err: str


class Typist:
    """Types in one world. `env` is what the next line is given."""

    def __init__(self, world: World, env: dict[str, str] | None = None) -> None:
        self.world = world
        self.env = {**world.env, **(env or {})}
        self.folder = world.folder
        self.code = 0

    def type(self, typed: Command) -> Done:
        """Type it, and see what becomes of it."""
        text = self.world.here(typed.bare)
        if text.startswith("flyball up") and self.world.ask("ping"):
            self.world.down()  # pages show several ways to begin
        if text == "flyball init":
            (self.folder / "flyball.yaml").unlink(missing_ok=True)  # whoever types that has none yet
        if text.endswith("<TAB>"):
            done = self._complete(text.removesuffix("<TAB>"))
        elif ENDLESS.match(text):
            done = self._watch(shlex.split(text))
        elif typed.program in ("flyball", "python") and not _SHELL.search(text):
            done = self._fork(shlex.split(text))
        else:
            done = self._shell(text)
        self.code = done.code
        return done

    def _fork(self, words: list[str]) -> Done:
        """A plain command, with variables that are set for it alone."""
        env = dict(self.env)
        while re.fullmatch(r"[A-Z_]+=.*", words[0]):
            name, _, env[name] = words.pop(0).partition("=")
        program, *given = words
        module = program if program == "flyball" else given.pop(0)
        run = ready(program).run(module, *given, cwd=self.folder, env=env, timeout=PATIENCE)
        return Done(run.returncode, run.stdout, run.stderr)

    def _shell(self, text: str) -> Done:
        kept = self.world.folder / _KEPT
        script = _SCRIPT.format(code=self.code, text=text)
        run = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env={**self.env, "KEPT": str(kept)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        pairs = dict(pair.split("=", 1) for pair in kept.read_text().split("\0") if "=" in pair)
        self.folder = Path(pairs.get("PWD", self.folder))
        self.env = {name: value for name, value in pairs.items() if name not in _OURS}
        return Done(run.returncode, run.stdout, run.stderr)

    def _complete(self, typed: str) -> Done:
        """The tab key: what the shell's function would ask for."""
        asked = {"_FLYBALL_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()))}
        run = command().run("flyball", cwd=self.folder, env={**self.env, **asked}, timeout=PATIENCE)
        return Done(run.returncode if run.stdout else 1, run.stdout, run.stderr or "nothing is offered")

    def _watch(self, words: list[str]) -> Done:
        """On a terminal: until there is something to read, then Ctrl-C."""
        master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        line = [sys.executable, "-m", "flyball", *words[1:]]
        process = subprocess.Popen(
            line, cwd=self.folder, env=self.env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        seen = b""
        ends = time.monotonic() + PATIENCE
        try:
            while not re.search(rb"\w{3}", _ESCAPES.sub(b"", seen)) and time.monotonic() < ends:
                if select.select([master], [], [], 1)[0]:
                    seen += _read(master)
                elif process.poll() is not None:
                    break
            if not seen.strip():
                return Done(1, "", f"nothing to see within {PATIENCE:g} s")
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            while process.poll() is None and time.monotonic() < ends:
                if select.select([master], [], [], 0.05)[0]:
                    seen += _read(master)
            code = process.poll()
            said = _ESCAPES.sub(b"", seen).decode(errors="replace")
            return Done(0 if code in CTRL_C else code or 1, said, said if code is not None else "Ctrl-C did not end it")
        finally:
            process.kill()
            process.wait()
            os.close(master)


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65_536)
    except OSError:  # whoever wrote to it is gone
        time.sleep(0.01)
        return b""

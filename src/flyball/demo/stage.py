"""The stage: a scratch folder with a daemon, a shop, and the programs beside it. When it is struck, nothing is left."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from flyball.demo.cast import Member, everybody, is_installed, settings
from flyball.demo.shop import Shop
from flyball.demo.workers import API
from flyball.errors import FlyballError
from flyball.runtimes.rule.browser import VARIABLE, find_browser
from flyball.scratch import Scratch

PREFIX: Final = "fb-demo-"
"""How the name of its folder begins."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What is set up."""

    scratch: Scratch
    shop: Shop
    members: list[Member]
    left_out: list[Member]
    """Whose extra is not installed."""
    in_browser: bool
    """The rule with the bad selector has a real browser."""

    programs: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    """What runs beside the daemon."""

    def begin(self, listen: str) -> None:
        """Start the daemon with all units, and what runs beside it. `listen` is where its page is, or off."""
        self.scratch.write(settings(self.members, listen))
        done = self.scratch.run("up", "--detach")
        if done.returncode != 0:
            said = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
            text = "\n".join(line.removeprefix("error: ") for line in said) or "the daemon cannot start"
            raise FlyballError(text, remedy="Put that right, then try again; the page has another address by `--http`.")
        for member in self.members:
            if member.program:
                self._start(member.program)

    def _start(self, module: str) -> None:
        """Its output is in the folder."""
        with (self.scratch.folder / f"{module}.log").open("wb") as log:
            program = subprocess.Popen(  # noqa: S603 - it is ourselves
                [sys.executable, "-m", module],
                cwd=self.scratch.folder,
                env=self.scratch.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo
            )
        self.programs.append(program)

    def end(self) -> None:
        """In order. Where nothing lists processes, this alone leaves none behind."""
        for program in self.programs:
            program.kill()
            program.wait()
        with contextlib.suppress(FlyballError, OSError, subprocess.SubprocessError):
            self.scratch.run("down", "--timeout", "20s")


@contextlib.contextmanager
def set_up() -> Iterator[Stage]:
    """A stage for as long as the block lasts. Signals must not cut short its end."""
    browser = find_browser(os.environ)
    in_browser = browser is not None and is_installed("browser")
    # What is set outside has no say, but for where the browser is; and no proxy is asked for what is on this machine.
    env = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"} | ({VARIABLE: browser} if browser else {})
    with Shop() as shop, Scratch(PREFIX, **env, **{API: shop.url}) as scratch:
        # What a browser leaves when it is killed goes with the folder, too.
        (scratch.folder / "tmp").mkdir()
        scratch.env["TMPDIR"] = str(scratch.folder / "tmp")
        cast = everybody(shop.url, in_browser=in_browser)
        left_out = [member for member in cast if member.extra and not is_installed(member.extra)]
        stage = Stage(scratch, shop, [one for one in cast if one not in left_out], left_out, in_browser)
        try:
            yield stage
        finally:
            stage.end()

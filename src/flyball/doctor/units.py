"""The units of the settings: whether what they name can be started here: commands, folders, users."""

import os
import pwd
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from flyball.config.units import Unit
from flyball.control.text import counted
from flyball.doctor.finding import Finding, bad, ok
from flyball.doctor.scene import Scene

LISTED_MAX: Final = 20
"""Units that are told of; of more, how many."""


def check(scene: Scene) -> Iterator[Finding]:
    """Each unit's command is looked for as it would be started."""
    units = scene.fallback.units
    wrong = [finding for unit in units for finding in judge(unit, finder(unit, scene), os.geteuid())]
    yield from wrong[:LISTED_MAX]
    if len(wrong) > LISTED_MAX:
        yield bad(
            f"{len(wrong) - LISTED_MAX} more units cannot be started", "Put the first ones right, then look again."
        )
    if units and not wrong:
        yield ok(f"what {counted(len(units), 'unit')} would start is there")


def finder(unit: Unit, scene: Scene) -> Callable[[str], str | None]:
    """Where a command is, from the unit's own folder and with its own PATH."""
    folder = Path(unit.cwd or scene.cwd)
    path = unit.env.get("PATH", scene.env.get("PATH", os.defpath))

    def find(command: str) -> str | None:
        return shutil.which(str(folder / command) if os.sep in command else command, path=path)

    return find


def judge(unit: Unit, find: Callable[[str], str | None], me: int) -> Iterator[Finding]:
    """What keeps it from being started."""
    where = f"units.{unit.name}"
    if unit.cwd and not Path(unit.cwd).is_dir():
        yield bad(f"{where}.cwd: there is no folder {unit.cwd}", "Make it, or correct the path.")
    elif find(unit.command[0]) is None:
        text = f"{where}.command: there is no program {unit.command[0]!r} that can be started"
        yield bad(text, "Install it, correct the name, or give its whole path.")
    if unit.user:
        try:
            known = pwd.getpwnam(unit.user).pw_uid
        except KeyError:
            yield bad(f"{where}.user: there is no user {unit.user!r}", "Make one, or leave it out.")
        else:
            if me not in (0, known):
                remedy = "Run flyball as root, or leave `user` out."
                yield bad(f"{where}.user: only root may start something as {unit.user}", remedy)

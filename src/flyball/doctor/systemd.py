"""systemd: whether flyball is started with the machine, and whether the unit file does what it should."""

import os
import pwd
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from flyball.doctor.finding import Finding, ok, warning
from flyball.doctor.scene import Scene

SYSTEM: Final = (Path("/etc/systemd/system"), Path("/usr/lib/systemd/system"), Path("/lib/systemd/system"))
LINGER: Final = Path("/var/lib/systemd/linger")
PRESENT: Final = Path("/run/systemd/system")
"""It is there where systemd runs the machine."""
HOW: Final = "See the how-to on systemd."
_LINE: Final = re.compile(r"^\s*([A-Za-z]+)\s*=\s*(.*?)\s*$", re.MULTILINE)


def check(scene: Scene) -> Iterator[Finding]:
    """Unit files that start `flyball up`, of the system and of the user. Nobody has to have one."""
    if not PRESENT.is_dir():
        yield ok("systemd does not run this machine; something else has to start flyball with it")
        return
    home = Path(scene.env.get("HOME") or Path.home())
    own = Path(scene.env.get("XDG_CONFIG_HOME") or home / ".config") / "systemd" / "user"
    files = [(file, False) for folder in SYSTEM for file in found(folder)] + [(file, True) for file in found(own)]
    if not files:
        yield ok("no unit file of systemd starts flyball: it is not started with the machine")
    for file, users in files:
        yield from judge(str(file), file.read_text(errors="replace"), users=users, lingers=lingers())


def judge(path: str, text: str, *, users: bool, lingers: bool) -> Iterator[Finding]:
    """What a unit file says. `users`: it is of a user's own systemd, which `lingers` after the logout or does not."""
    said = dict(_LINE.findall(text))
    wrong = []
    if re.search(r"\s(-d|--detach)(\s|$)", said.get("ExecStart", "")):
        wrong.append(("starts `flyball up -d`, so systemd takes it for ended", "Leave -d out."))
    if said.get("Type", "simple") in ("notify", "notify-reload", "forking", "oneshot"):
        text = f"has Type={said['Type']}, and flyball neither notifies systemd nor goes into the background"
        wrong.append((text, "Set Type=exec."))
    if said.get("WatchdogSec", "0") not in ("0", ""):
        wrong.append(("has a WatchdogSec, and flyball does not answer it: it would be killed", "Leave it out."))
    if said.get("KillMode", "control-group") == "control-group":
        text = "has no KillMode=mixed: systemd ends all units at once, without their own stop signals and graces"
        wrong.append((text, "Set KillMode=mixed."))
    if said.get("Restart", "no") == "no":
        wrong.append(("has no Restart: a daemon that dies stays dead", "Set Restart=on-failure."))
    for what, remedy in wrong:
        yield warning(f"{path} {what}", f"{remedy} {HOW}")
    if users and not lingers:
        text = f"{path} is of a user's systemd, which ends when the user logs out"
        yield warning(text, "`loginctl enable-linger` lets it live on.")
    if not wrong and (lingers or not users):
        yield ok(f"{path} starts flyball with the machine")


def found(folder: Path) -> list[Path]:
    """Unit files that start flyball."""
    try:
        files = sorted(folder.glob("*.service"))
        return [file for file in files if re.search(r"^ExecStart=.*\bflyball\b.*\bup\b", _text(file), re.MULTILINE)]
    except OSError:
        return []


def lingers() -> bool:
    """Whether this user's systemd lives on without a login."""
    try:
        return (LINGER / pwd.getpwuid(os.getuid()).pw_name).exists()
    except KeyError:
        return False


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""

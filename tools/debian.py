"""Packages of Debian, for tools that only tests need: installed, or only unpacked, where that is possible without
asking.

To install is possible on Debian, as root or with a sudo that wants no password. Nothing fails here.
"""

import os
import platform
import shutil
import subprocess
from pathlib import Path

INSTALL_MAX = 600.0
"""Seconds to fetch and unpack one. It takes half a minute; what takes longer than this does not come."""


def can_install() -> bool:
    """Whether it is possible here."""
    return _right() is not None


def install(package: str) -> bool:
    """Install it; whether that was done."""
    right = _right()
    commands = (["update"], ["install", "--yes", "--no-install-recommends", package])
    return right is not None and all(_done([*right, "apt-get", "--quiet=2", *words]) for words in commands)


def unpack(package: str, into: Path) -> bool:
    """Fetch a package and unpack it there, without installing it: no service is started, and no rights are needed but
    to read the list of packages. Whether that was done."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return False
    into.mkdir(parents=True, exist_ok=True)
    fetch = ["apt-get", "--quiet=2", "download", package]
    right = _right()
    fetched = _done(fetch, into) or (
        right is not None and _done([*right, "apt-get", "--quiet=2", "update"]) and _done(fetch, into)
    )
    return fetched and all(_done(["dpkg-deb", "-x", str(file), str(into)]) for file in into.glob("*.deb"))


def _right() -> list[str] | None:
    """What to put before a command that installs something; None: that is not possible here. Not on systems that only
    look like Debian: what they install under a name may be another thing."""
    try:
        name = platform.freedesktop_os_release()["ID"]
    except OSError:
        return None
    if name != "debian" or shutil.which("apt-get") is None:
        return None
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is not None and _done(["sudo", "--non-interactive", "true"]):
        return ["sudo", "--non-interactive"]
    return None


def _done(command: list[str], folder: Path | None = None) -> bool:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(  # noqa: S603 - nothing of it comes from outside
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=INSTALL_MAX,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0

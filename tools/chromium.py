"""A browser for the tests of browser actions: finds Chromium, or installs it where that is possible without asking.

    python tools/chromium.py

Possible is: on Debian, as root or with a sudo that wants no password. Elsewhere it says what to do. Nothing fails here:
without a browser its tests are skipped, and say why.
"""

import os
import platform
import shutil
import subprocess

from flyball.runtimes.rule.browser import VARIABLE, find_browser

INSTALL_MAX = 600.0
"""Seconds to fetch and unpack it. It takes half a minute; what takes longer than this does not come."""
BY_HAND = f"Install Chromium by hand, or set {VARIABLE} to its path. Until then the tests of the browser are skipped."


def main() -> None:
    """Find it, or install it, or say what to do."""
    if find_browser(os.environ) is not None:
        return
    right = _right()
    if right is None or os.environ.get(VARIABLE):
        print(f"There is no Chromium here, and it cannot be installed without asking. {BY_HAND}")
        return
    print("There is no Chromium here: it is installed, for the tests of the browser.")
    for words in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
        if not _done([*right, "apt-get", "--quiet=2", *words]):
            print(f"It could not be installed. {BY_HAND}")
            return


def _right() -> list[str] | None:
    """What to put before a command that installs something; None: that is not possible here. Not on systems that only
    look like Debian: what they install under this name is another thing."""
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


def _done(command: list[str]) -> bool:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(  # noqa: S603 - nothing of it comes from outside
            command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=INSTALL_MAX, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


if __name__ == "__main__":
    main()

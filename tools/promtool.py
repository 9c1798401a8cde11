"""promtool, for the tests of metrics and of alert rules: finds it, or fetches it where that is possible without asking.

    python -m tools.promtool

It comes with Prometheus. Debian's package is unpacked and only promtool taken from it: installed, it would start a
server. Nothing fails here: without promtool its tests are skipped, and say why.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tools.debian import unpack

VARIABLE = "FLYBALL_PROMTOOL"
OURS = Path(sys.prefix) / "bin" / "promtool"
"""Beside the Python that runs the tests."""
BY_HAND = f"Install Prometheus by hand, or set {VARIABLE} to promtool's path. Until then its tests are skipped."


def find() -> str | None:
    """Where it is; None: it is not there."""
    if os.environ.get(VARIABLE):
        return shutil.which(os.environ[VARIABLE])
    return shutil.which("promtool") or shutil.which(OURS)


def main() -> None:
    """Find it, or fetch it, or say what to do."""
    if find() is not None:
        return
    print("There is no promtool here: it is fetched, for the tests of metrics.")
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder) / "usr" / "bin" / "promtool"
        if os.environ.get(VARIABLE) or not unpack("prometheus", Path(folder)) or not there.is_file():
            print(f"It could not be had. {BY_HAND}")
            return
        shutil.move(there, OURS)


if __name__ == "__main__":
    main()

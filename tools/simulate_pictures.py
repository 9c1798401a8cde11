"""The pictures on the page about tuning: what `flyball simulate` draws with the default settings.

    python -m tools.simulate_pictures

Each picture is named on the page right under the command that makes it, and so the page is what this reads: picture and
command cannot part.
"""

import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parents[1] / "docs"
PAGE: Final = DOCS / "tuning.md"
SHOWN: Final = re.compile(r"^\$ flyball (simulate .+)\n```\n\n!\[[^]]*\]\((pictures/.+\.png)\)$", re.MULTILINE)


def pictures() -> Iterator[tuple[list[str], Path]]:
    """What is to be simulated, and where its picture goes."""
    for command, picture in SHOWN.findall(PAGE.read_text(encoding="utf-8")):
        yield shlex.split(command), DOCS / picture


def main() -> None:
    """Make them all, in a folder without settings."""
    with tempfile.TemporaryDirectory() as nowhere:
        for command, picture in pictures():
            argv = [sys.executable, "-m", "flyball", *command, "--png", str(picture)]
            subprocess.run(argv, cwd=nowhere, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
            print(picture.relative_to(DOCS.parent))


if __name__ == "__main__":
    main()

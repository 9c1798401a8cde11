"""Who sweeps the stage when the demo is killed: a process beside it, which waits for its end at a pipe.

    python -m flyball.demo.sweeper FOLDER

The demo holds the other end of its standard input, and nobody else. However it ends, kill -9 included, that end is
closed; then whatever was started in the folder is ended, and the folder goes. After an end in order there is nothing
left to do.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from flyball.scratch import sweep


@contextlib.contextmanager
def swept(folder: Path) -> Iterator[None]:
    """From here on that scratch folder goes with this process. What is left of it when the block ends is swept, too."""
    with subprocess.Popen(  # noqa: S603 - it is ourselves
        [sys.executable, "-m", "flyball.demo.sweeper", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # what ends the terminal does not end it
    ):
        yield


if __name__ == "__main__":
    sys.stdin.buffer.read()
    sweep(Path(sys.argv[1]))

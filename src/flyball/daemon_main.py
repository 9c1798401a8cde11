"""Where the process of the daemon begins: it is given its plan, and imports only what it runs by.

It reads no settings and no command line, so that neither is in its memory for as long as it lives. What cannot be is
told in a line or two, as the command would; never by a traceback.
"""

import gc
import logging
import logging.handlers
import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Final

from flyball import app, daemon
from flyball.config import plan
from flyball.control.log_lines import JsonLines
from flyball.errors import FlyballError
from flyball.runtimes import guardian

log = logging.getLogger("flyball.daemon_main")  # this module itself is called __main__

LOG_BYTES_MAX: Final = 5 * 1024 * 1024
LOG_FILES: Final = 3
"""The log and those before it: 20 MB at most."""

GARBAGE_MAX: Final = 10_000
"""Objects that may have become garbage before somebody looks: a megabyte or two. A start makes some hundreds of them,
and with Python's own 700 a thousand starts would be interrupted by as many looks."""
BAD: Final = 2
INTERRUPTED: Final = 130


class _LogFile(logging.handlers.RotatingFileHandler):
    """A log that nobody else can read. On a full disk lines are lost, and that is no reason to say more."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return TextIOWrapper(os.fdopen(descriptor, "ab"), encoding="utf-8")


def main() -> int:
    """Be the daemon; the exit code."""
    env = {name: value for name, value in os.environ.items() if name != guardian.PLAN}
    # Neither is for the units.
    detached = os.environ.pop(guardian.READY, None) is not None
    given = int(os.environ.pop(guardian.PLAN))
    handler: logging.Handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("flyball: %(message)s"))
    if detached:
        handler = _LogFile(app.state_dir(env) / guardian.LOG, maxBytes=LOG_BYTES_MAX, backupCount=LOG_FILES)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("flyball").setLevel(logging.INFO)
    # No line says any of it, and to find it out for each takes a fifth of its time.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    try:
        with open(given, "rb") as file:
            wanted = plan.decode(file.read())
        if wanted.log_format == "json":
            handler.setFormatter(JsonLines())
        # What is there by now stays for good: nobody need look through it for what can be thrown away.
        gc.freeze()
        gc.set_threshold(GARBAGE_MAX)
        return daemon.run(wanted, env, Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    except FlyballError as error:
        if not detached and isinstance(handler.formatter, JsonLines):
            log.error("%s. %s", error, error.remedy)
            return BAD
        lines = [*(f"error: {line}" for line in str(error).splitlines()), error.remedy]
        sys.stderr.write("".join(f"{line}\n" for line in lines if line))
        return BAD
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        sys.stderr.write(f"error: {error}\n")
        return BAD


if __name__ == "__main__":
    sys.exit(main())

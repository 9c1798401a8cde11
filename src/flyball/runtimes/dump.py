"""For a Python child: show the stack of every thread before flyball ends a run that hangs.

Call `enable()` once at the start. The stacks are written to the standard error output by a signal handler in C, so that
they come even when the interpreter is stuck. They are kept with the failure, like all that was printed last.
"""

import faulthandler
import os

from flyball.runtimes.tell import tell

STDERR: int = 2


def enable() -> bool:
    """Agree to dumps. False: nothing was done, because no supervisor asks for them."""
    number = os.environ.get("FLYBALL_DUMP_SIGNAL", "")
    if not number.isdecimal() or not os.environ.get("NOTIFY_SOCKET"):
        return False
    faulthandler.register(int(number), file=STDERR, all_threads=True)
    # Told only now: the signal ends a process that does not expect it.
    tell([("X_FLYBALL_DUMP", "1")])
    return True

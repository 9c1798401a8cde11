"""Stands between the tests and a server that has children of its own. `python keeper.py PROGRAM [WORD...]`

Some tests are sub-reapers, and end whatever falls to them and is in no session of theirs, as a supervisor does: so a
server is not their own child, and what it leaves behind when it is killed is not theirs to find. The keeper is in the
session of the tests; it reaps what the server leaves, and ends with it. When the tests are gone, it kills the server.
"""

import contextlib
import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
"""How a server is told to end."""


def main(words: list[str]) -> int:
    """The exit code of the server, as shells have it."""
    server = os.fork()
    if not server:
        os.setsid()
        os.execvp(words[0], words)  # noqa: S606 - what the tests want
    with contextlib.suppress(AttributeError):  # not on macOS
        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        prctl(PR_SET_PDEATHSIG, signal.SIGHUP, 0, 0, 0)
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: os.kill(server, number))
    signal.signal(signal.SIGHUP, lambda *_: os.killpg(server, signal.SIGKILL))
    code = 0
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return code
        if pid == server:
            code = os.waitstatus_to_exitcode(status)
            for number in (*PASSED_ON, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(abs(main(sys.argv[1:])))

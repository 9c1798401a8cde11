"""Python itself, and which flyball it runs."""

import platform
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from flyball import __version__
from flyball.doctor.finding import Finding, bad, ok
from flyball.doctor.scene import Scene

OLDEST: Final = (3, 11)
"""The oldest Python that flyball is tested with."""


def check(_: Scene) -> Iterator[Finding]:
    """The Python that this command runs in is the one that the daemon will run in."""
    yield judge(sys.version_info[:3], platform.python_implementation(), sys.executable)


def judge(version: Sequence[int], implementation: str, path: str) -> Finding:
    """Whether it is new enough."""
    text = f"{implementation} {'.'.join(map(str, version))} at {path} runs flyball {__version__}"
    if tuple(version[:2]) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        return bad(f"{text}; {needed} is the oldest it is made for", f"Install it with Python {needed} or newer.")
    return ok(text)

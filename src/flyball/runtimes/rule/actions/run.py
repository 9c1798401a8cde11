"""A command of a rule: a process like any other unit's, run by the same hands, in the rule's name. Its output goes into
the rule's log, its end is proven, and its failure is named by the same rules.

There is no shell: what a template puts into a word stays in that word. The command reads what fired the rule, as one
line of JSON, from its standard input. `FLYBALL_FIRING` is the firing's name, the same in every run of it, so that a
command can see that it was begun before; `FLYBALL_ATTEMPT` counts those runs, `FLYBALL_TRIGGER` says which trigger it
was, and `FLYBALL_UNIT` is the rule.
"""

import os
import tempfile
from collections.abc import Callable, Mapping
from typing import IO, Any, Final

import msgspec

from flyball.config.rules import Run
from flyball.config.units import Unit
from flyball.core.event import Cause
from flyball.runtimes.rule.child import Child
from flyball.runtimes.rule.deed import GRACE, Scene

RESULT_MAX: Final = 64 * 1024
"""Bytes of what a command printed that are its result, of each stream: the last ones. The log has all of it."""


async def do(scene: Scene, deed: Run, seconds: float) -> Mapping[str, Any]:
    """Run it until it ends. ActionFailed if it did not exit with 0."""
    unit = Unit(name=scene.rule.name, command=deed.command, cwd=deed.cwd, env=deed.env, grace=GRACE)
    stdout, stderr = _Printed(), _Printed()
    with _file() as given:
        given.write(msgspec.json.encode(scene.firing.data) + b"\n")
        given.seek(0)
        child = await Child.begin(scene, unit, scene.run, stdin=given.fileno(), sinks=(stdout, stderr))
    ending = await child.ended(seconds)
    if ending.cause is not Cause.DONE:
        raise child.failure()
    return {"code": 0, "stdout": stdout.text, "stderr": stderr.text}


class _Printed:
    """The last of what a command printed."""

    def __init__(self) -> None:
        self.on_room: Callable[[], None] = lambda: None
        self.full = False
        self._data = bytearray()

    def write(self, data: bytes) -> None:
        self._data += data
        del self._data[:-RESULT_MAX]

    @property
    def text(self) -> str:
        """As a shell would take it: without the line breaks at its end."""
        return self._data.decode("utf-8", "replace").rstrip("\r\n")


def _file() -> IO[bytes]:
    """A file without a name, for what may be longer than a pipe holds; in memory where that can be, because it may be
    secret."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("flyball"), "w+b")
    return tempfile.TemporaryFile()

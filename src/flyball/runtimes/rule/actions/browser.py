"""Steps of a rule in a browser. They are made in the worker of the run; here is the folder that all files of that
browser are in, because who removes it has to outlive it.

It is locked as long as this process uses it. What a daemon left that was killed is nobody's, and is removed by the next
one before it makes its own.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from flyball.config.rules import Browse
from flyball.runtimes.rule.deed import ActionFailed, Scene
from flyball.runtimes.rule.workers import ask

PREFIX: Final = "flyball-browser-"
PLACE_BYTES_MAX: Final = 40
"""Bytes of the path of the folder for temporary files. Chromium makes a socket some folders below it, and the path of a
socket has 103 at most."""
MAKE_MAX: Final = 5
"""How often a folder is made that another daemon, which sweeps at that moment, takes for one that was left."""


async def do(scene: Scene, deed: Browse, seconds: float) -> Mapping[str, Any]:
    """Do its steps on the run's page."""
    if scene.folder is None:
        await asyncio.to_thread(sweep, place())
        _make_folder(scene, place())
    asked = {"folder": str(scene.folder), "steps": msgspec.to_builtins(deed.steps)}
    result: Mapping[str, Any] = await ask(scene, "browser", asked, seconds)
    return result


def place() -> Path:
    """Where such folders are."""
    found = tempfile.gettempdir()
    return Path(found if len(os.fsencode(found)) <= PLACE_BYTES_MAX else "/tmp")  # noqa: S108 - in a folder of its own


def sweep(where: Path) -> None:
    """Remove what daemons left that were killed."""
    for folder in where.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # it is gone, in use, or somebody else's
            lock = _locked(folder)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _make_folder(scene: Scene, where: Path) -> None:
    """Not to be interrupted: from the first moment on there is somebody who removes it."""
    try:
        folder, lock = _made(where)
    except OSError as error:
        text = f"no folder for a browser can be made in {where}: {error.strerror}"
        raise ActionFailed("NoFolder", text, errno=error.errno, starved=True) from None

    async def remove() -> None:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        os.close(lock)

    # After everything else, whenever that was begun: a browser that lives would make it anew.
    scene.ends.insert(0, remove)
    scene.folder = folder


def _made(where: Path) -> tuple[Path, int]:
    for _ in range(MAKE_MAX):
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=where))
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            lock = _locked(folder)
            if folder.exists():  # and from now on nobody sweeps it
                return folder, lock
            os.close(lock)
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def _locked(folder: Path) -> int:
    """A descriptor that locks it; BlockingIOError if another one does."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor

"""Tells of changes in folders, as the system reports them: threads of their own wait for that. What is told is a hint
where to look. Some of it may be missing: whoever listens looks at the whole now and then."""

import asyncio
import contextlib
import importlib
import logging
import os
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Final, NamedTuple

from flyball.runtimes.rule.triggers.listing import Stamp, stamp
from flyball.runtimes.rule.triggers.striker import missing

STEP_MS: Final = 50
"""Changes that follow each other within so many milliseconds are told together."""
GROUP_MS: Final = 200
"""How long the first of them is kept back at most."""
UP_MS: Final = 100
"""Milliseconds without a change after which it is known that the folders are watched."""
END_MAX: Final = 2.0
"""Seconds to wait for a thread to end. It looks up every few milliseconds, unless it still walks through folders."""


class Change(NamedTuple):
    """One path that changed."""

    path: str
    kind: str
    """`created`, `modified` or `deleted`, as the system said."""
    stamp: Stamp | None
    """How it looked right after that; None: there is no such file."""
    is_folder: bool


KINDS: Final = {1: "created", 2: "modified", 3: "deleted"}


class Watcher:
    """Watches folders. All it tells is told in the loop that it was made in."""

    def __init__(
        self, told: Callable[[Sequence[Change]], None], up: Callable[[], None], failed: Callable[[Exception], None]
    ) -> None:
        self._told, self._up, self._failed = told, up, failed
        self._watchfiles = watchfiles()
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._starting = 0

    def watch(self, flat: Sequence[str], deep: Sequence[str]) -> None:
        """Watch these folders, the deep ones with all that is in them, and no others. `up` is called as soon as every
        change is told."""
        self._stop.set()
        self._stop = threading.Event()
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        groups = [(folders, recursive) for folders, recursive in ((flat, False), (deep, True)) if folders]
        self._starting = len(groups)
        for folders, recursive in groups:
            arguments = (tuple(folders), recursive, self._stop)
            thread = threading.Thread(target=self._work, args=arguments, name="flyball-files", daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Watch nothing."""
        self._stop.set()
        for thread in self._threads:
            thread.join(END_MAX)
        self._threads.clear()

    # In a thread.

    def _work(self, folders: Sequence[str], recursive: bool, stop: threading.Event) -> None:
        is_up = False
        try:
            for changes in self._watchfiles.watch(
                *folders,
                watch_filter=None,
                debounce=GROUP_MS,
                step=STEP_MS,
                rust_timeout=UP_MS,
                yield_on_timeout=True,
                stop_event=stop,
                recursive=recursive,
                ignore_permission_denied=True,
                raise_interrupt=False,
            ):
                if not is_up:
                    is_up = True
                    self._post(stop, self._one_is_up)
                if changes:
                    self._post(stop, self._told, [_change(kind, path) for kind, path in changes])
        except Exception as error:  # noqa: BLE001 - whatever it is, the folders are not watched any more
            self._post(stop, self._failed, error)

    def _post(self, stop: threading.Event, call: Callable[..., None], *said: object) -> None:
        def deliver() -> None:
            if not stop.is_set():
                call(*said)

        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens
            self._loop.call_soon_threadsafe(deliver)

    # In the loop again.

    def _one_is_up(self) -> None:
        self._starting -= 1
        if not self._starting:
            self._up()


def _change(kind: int, path: str) -> Change:
    with contextlib.suppress(OSError):
        return Change(path, KINDS[kind], stamp(path), os.path.isdir(path))  # noqa: PTH112 - there may be thousands
    return Change(path, KINDS[kind], None, False)


def watchfiles() -> ModuleType:
    """The package that asks the system."""
    try:
        module = importlib.import_module("watchfiles")
    except ImportError:
        raise missing("watchfiles", "triggers by changes of files") from None
    # It writes a line for every change, at a level at which people are told what happens to their units.
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    return module

"""A fleet of a drill: a scratch folder with a daemon, and its journal as far as it was read.

Several exercises look at one fleet at once, each in a thread of its own, so everything here may be used by several.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from flyball.config import Settings
from flyball.drill.exercise import NotFired, NotReachable
from flyball.drill.numbers import WAIT, merged, restarts, settings_of
from flyball.errors import FlyballError
from flyball.scratch import Scratch
from flyball.sweeper import is_alive

T = TypeVar("T")

LOOK_EVERY: Final = 0.03
"""Seconds between two looks at the journal, however many exercises look."""
ENTRIES_MAX: Final = 1_000
"""Entries that are read at once."""
BEGINS: Final = ("start", "resume")
"""Requests with which a run begins."""
ENDS: Final = ("finish", "stop", "hold")
"""Answers that end a run."""
STUCK: Final = 10 * WAIT
"""Seconds of a wait that is none of a drill's own: it would outlast the drill."""


STILL: Final = 5 * WAIT
"""Seconds that something is looked at that is held: several times as long as it would have waited."""
WITNESS: Final = "witness"
"""A unit of every fleet that does nothing: whether it runs tells whether anything may."""


class Cancelled(Exception):
    """The drill is to end now."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the journal."""

    at: float
    unit: str
    event: str
    verb: str
    until: float | None
    codes: Mapping[str, str]
    """Of its reasons, each with its text."""
    why: str
    """The texts of those that decided."""
    text: str
    data: Mapping[str, Any]

    @property
    def granted(self) -> bool:
        """A request that was let through."""
        return self.verb == "proceed"

    @property
    def begins(self) -> bool:
        """A run that was let begin, or go on."""
        return self.granted and self.event in BEGINS


class Fleet:
    """One daemon, and what is known of it."""

    def __init__(self, name: str, numbers: Settings, *, cap: float, cancelled: threading.Event) -> None:
        self.numbers = numbers
        """The user's settings."""
        self.restarts = restarts(numbers)
        self._cap = cap
        self._cancelled = cancelled
        self._settings = settings_of(numbers, name)
        self._entries: list[Entry] = []
        self._last = 0
        self._read_at = 0.0
        self._reading = threading.Lock()
        self.scratch = Scratch(f"fbd-{name}-")
        self.add({"units": {WITNESS: {"command": ["sleep", "600"]}}})

    def add(self, settings: Mapping[str, Any]) -> None:
        """Have more in the settings file; the next `up` or reload takes it."""
        self._settings = merged(self._settings, settings)
        self.scratch.write(self._settings)

    def up(self) -> None:
        """Start the daemon."""
        self._check()
        self.scratch.up()

    def close(self) -> None:
        """Nothing is left."""
        if not Path("/proc/self").exists():  # then nobody else finds what the daemon runs
            self.scratch.run("down")
        self.scratch.clean()

    def ask(self, verb: str, **arguments: Any) -> Any:
        """Ask the daemon."""
        self._check()
        return self.scratch.ask(verb, **arguments)

    @contextmanager
    def program(self, *words: str) -> "Iterator[subprocess.Popen[bytes]]":
        """A program of the drill's, one that opens flyball itself, for as long as the block lasts; then kill -9."""
        self._check()
        program = subprocess.Popen(  # noqa: S603 - it is ourselves
            actor(*words),
            cwd=self.scratch.folder,
            env=self.scratch.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield program
        finally:
            program.kill()
            program.wait()

    def ended(self, program: "subprocess.Popen[bytes]", what: str) -> int:
        """Wait for the end of a program; its exit code."""
        return self.wait(lambda: None if program.poll() is None else (program.returncode,), what)[0]

    # Looking.

    def entries(self, unit: str | None = None, event: str | None = None) -> list[Entry]:
        """The journal, of one unit and one kind of event where they are named."""
        with self._reading:
            if time.monotonic() - self._read_at >= LOOK_EVERY:
                self._read()
                self._read_at = time.monotonic()
            found = [*self._entries]
        return [entry for entry in found if unit in (None, entry.unit) and event in (None, entry.event)]

    def starts(self, unit: str) -> list[Entry]:
        """The runs of a unit that were granted."""
        return [entry for entry in self.entries(unit) if entry.begins]

    def again(self, unit: str) -> None:
        """Start a unit whose run is over, as a person does, where nothing else starts it."""
        if self.restarts:
            return
        lives = [entry for entry in self.entries(unit) if entry.event in (*BEGINS, "exited")]
        if lives and lives[-1].verb == "finish":
            made = len(self.starts(unit))
            self.ask("start", units=[unit])
            self.wait(lambda: len(self.starts(unit)) > made or self.ask("unit", unit=unit)["held"], f"start of {unit}")

    def wait(self, look: Callable[[], T | None], what: str) -> T:
        """Look until there is something. NotFired if there is nothing in time."""
        ends = time.monotonic() + self._cap
        while True:
            self._check()
            found = look()
            if found:
                return found
            if time.monotonic() >= ends:
                raise NotFired(f"not seen within {self._cap:g} s: {what}")
            self._cancelled.wait(LOOK_EVERY)

    def reason(self, unit: str, code: str, missed: Callable[[Sequence[Entry]], str], *, again: bool = False) -> Entry:
        """The first line about the unit with that reason. NotFired with what `missed` says of the lines up to it, if it
        says anything; NotReachable if something else keeps the unit from ever getting there. With `again` it is started
        by a person where it is not by itself."""

        def look() -> Entry | None:
            entries = self.entries(unit)
            place = next((place for place, entry in enumerate(entries) if code in entry.codes), None)
            if said := missed(entries[: None if place is None else place + 1]):
                raise NotFired(said)
            if place is not None:
                return entries[place]
            if said := _kept_from_it(entries):
                raise NotReachable(said)
            if again:
                self.again(unit)
            return None

        return self.wait(look, f"{code} of {unit}")

    def stays_so(self) -> None:
        """Give whatever is held the time to be started all the same."""
        if self._cancelled.wait(STILL):
            raise Cancelled

    def since_start(self, entry: Entry) -> float:
        """Seconds from the first start of its unit to that line."""
        return entry.at - next(first.at for first in self.entries(entry.unit) if first.event in BEGINS)

    def gone(self, unit: str) -> None:
        """Wait until no run of the unit lives; where it says which process it is, that is looked for, too."""
        self.wait(lambda: not self.ask("unit", unit=unit)["running"], f"the end of {unit}")
        said = self.scratch.folder / f"{unit}.pid"
        pid = said.read_text().strip() if said.exists() else ""
        if pid and is_alive(int(pid)):
            raise NotFired(f"{unit} is said to be over, and its process lives")

    def _read(self) -> None:
        while True:
            said = self.scratch.ask("events", after=self._last, limit=ENTRIES_MAX)
            self._entries += [_entry(found) for found in said["events"]]
            self._last = said["last"]
            if len(said["events"]) < ENTRIES_MAX:
                return

    def _check(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled


def telling(unit: str, does: str) -> list[str]:
    """The command of a unit that says first which process it is."""
    return ["sh", "-c", f"echo $$ >{unit}.pid; {does}"]


def actor(*words: str) -> list[str]:
    """The command of a program of the drill's."""
    return [sys.executable, "-m", "flyball.drill.actor", *words]


def _entry(found: Mapping[str, Any]) -> Entry:
    codes = {reason["code"]: reason["text"] for reason in found["reasons"]}
    strictest = max((reason.get("verb", 0) for reason in found["reasons"]), default=0)
    why = "; ".join(reason["text"] for reason in found["reasons"] if reason.get("verb", 0) == strictest)
    return Entry(
        at=found["at"],
        unit=found["unit"],
        event=found["event"],
        verb=found["verb"],
        until=found["until"],
        codes=codes,
        why=why,
        text=found["text"],
        data=found["data"],
    )


def _kept_from_it(entries: Sequence[Entry]) -> str:
    """What else holds a unit, or has it wait for longer than a drill lasts."""
    refused = [entry for entry in entries if entry.event in ("step", "stepped") and entry.verb in ENDS]
    if refused:
        return refused[0].why
    asked = [entry for entry in entries if entry.event in (*BEGINS, "exited")]
    if not asked or asked[-1].verb not in ("wait", "hold"):
        return ""
    last = asked[-1]
    if last.verb == "wait" and last.until is not None and last.until < last.at + STUCK:
        return ""
    return last.why


def told(error: Exception) -> str:
    """What went wrong, in one line."""
    if isinstance(error, FlyballError):
        return f"{error} {error.remedy}".strip().replace("\n", " ")
    return f"{type(error).__name__}: {error}".replace("\n", " ")

"""The story of one piece of work, as the journal tells it: from its last beginning to now. Policies forget much of it
when a run or the work is over; whoever asks afterwards asks the journal."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from flyball.control.shapes import TimeView
from flyball.core.amounts import MONEY
from flyball.core.codec import decode_body
from flyball.core.decision import Decision
from flyball.core.event import Event, Exited, Resume, Start, Step, Stepped, Work
from flyball.core.time import Instant, Span, seconds
from flyball.errors import StoreCorrupt
from flyball.store import Entry, Store

STORY_MAX: Final = 5_000
"""Entries of one piece of work that are read: the newest. Fifty steps with their calls are some hundred."""
PATTERNS_MAX: Final = 50
"""Patterns whose times are told by themselves: those that took longest."""


class Told(NamedTuple):
    """An entry of the journal."""

    at: Instant
    event: Event
    decision: Decision


class Made(NamedTuple):
    """A step that was made, or several alike, and how long that took."""

    lasted: Span
    work: Work
    part: bool
    """It was made inside another step."""


@dataclass(frozen=True, slots=True)
class Story:
    """What happened to the work, in order."""

    told: Sequence[Told]
    made: Sequence[Made]
    whole: bool
    """Its beginning is still in the journal."""

    @property
    def steps(self) -> int:
        """Steps that were made."""
        return sum(made.work.times for made in self.made if not made.part)

    @property
    def errors(self) -> int:
        """Steps, and calls inside them, that failed."""
        return sum(made.work.times for made in self.made if made.work.error)

    def gauges(self) -> dict[str, float]:
        """The latest readings."""
        return {name: reading for made in self.made for name, reading in made.work.gauges.items()}

    def highest(self, name: str) -> float:
        """The highest reading; 0 if there is none."""
        return max((made.work.gauges.get(name, 0.0) for made in self.made), default=0.0)

    def times(self) -> tuple[TimeView, ...]:
        """Where the time went, by pattern; what took longest comes first."""
        sums: dict[tuple[str, bool], TimeView] = {}
        for lasted, work, part in self.made:
            before = sums.get((work.pattern, part))
            sums[work.pattern, part] = TimeView(
                pattern=work.pattern,
                part=part,
                times=work.times + (before.times if before else 0),
                errors=work.times * work.error + (before.errors if before else 0),
                seconds=seconds(lasted) + (before.seconds if before else 0),
                longest=max(seconds(lasted // work.times), before.longest if before else 0),
                spent=work.used.get(MONEY, 0) + (before.spent if before else 0),
            )
        return tuple(sorted(sums.values(), key=lambda time: (-time.seconds, time.pattern))[:PATTERNS_MAX])

    @property
    def unfinished(self) -> str:
        """The pattern of the last step that was granted by itself and never reported; empty if there is none."""
        for _, event, decision in reversed(self.told):
            if isinstance(event, Stepped) and not event.part:
                return ""
            if isinstance(event, Step) and not event.part and decision.proceeds:
                return event.pattern
        return ""

    def lived(self, now: Instant) -> Span:
        """How long its runs lasted, all together."""
        total, started = 0, None
        for at, event, decision in self.told:
            if isinstance(event, Start) and decision.proceeds:
                started = at
            elif isinstance(event, Exited) and started is not None:
                total, started = total + at - started, None
        return total + (now - started if started is not None else 0)


def read(store: Store, unit: str) -> Story:
    """The story of a unit that is a piece of work."""
    entries = store.last_entries(limit=STORY_MAX, unit=unit)
    told = [*_told(entries)]
    begins = [place for place, one in enumerate(told) if _begins(one)]
    if begins:
        told = told[begins[-1] :]
    return Story(told, [*_made(told)], whole=bool(begins))


def _told(entries: Sequence[Entry]) -> Iterator[Told]:
    for entry in entries:
        with suppress(StoreCorrupt):  # what cannot be read is left out: the rest is still worth telling
            body = decode_body(entry.body)
            yield Told(entry.at, body.event, body.decision)


def _made(told: Sequence[Told]) -> Iterator[Made]:
    """The steps that were made. Those that do not say how long they took lasted from their leave to that of the next
    one in their report; the last one to the report. One that was only told of afterwards, as a command does, lasted
    since the one before it, or since its run began."""
    since: Instant | None = None
    for at, event, decision in told:
        if isinstance(event, Start) and decision.proceeds:
            since = at
        if isinstance(event, Stepped):
            done = sorted((work for work in event.done if not work.refused), key=lambda work: -work.ago)
            for place, work in enumerate(done):
                after = done[place + 1].ago if place + 1 < len(done) else 0
                lasted = work.lasted or work.ago - after
                if not lasted and len(done) == 1 and since is not None and not event.part:
                    lasted = at - since
                yield Made(lasted, work, event.part)
            if done and not event.part:
                since = at


def _begins(one: Told) -> bool:
    event = one.event
    return isinstance(event, Start) and not isinstance(event, Resume) and not event.again and one.decision.proceeds

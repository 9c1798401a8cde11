"""The tally: counters, kept in memory and brought up to date from the journal when somebody asks.

It begins at the end of the journal as it was when the daemon began, so what the daemon finds at its start (runs that
were lost) is counted, and a daemon that starts anew counts from nothing again: that is what Prometheus expects of a
counter, and its functions `rate` and `increase` see to it. Who never asks pays nothing.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from flyball.config.definitions import NAME as DEFINITION
from flyball.config.definitions import WORK as IS_WORK
from flyball.control.metrics.labels import WORK, Values
from flyball.control.metrics.names import BUCKETS
from flyball.control.past import RULE, RUNTIME
from flyball.control.sessions import WORDS
from flyball.control.shapes import SessionWord
from flyball.core.codec import Body, decode_body
from flyball.core.event import Exited, Left, Resume, Settled, Start, Stepped
from flyball.core.layers import LAYERS, layer_of
from flyball.core.policy import Key
from flyball.core.time import seconds
from flyball.errors import StoreCorrupt
from flyball.governor import VERB_NAMES, Governor
from flyball.policies import Session
from flyball.policies.budget import OVER_BUDGET
from flyball.store import Entry

CHUNK_MAX: Final = 2_000
"""Entries in memory at a time."""
ENTRIES_MAX: Final = 100_000
"""Entries that are read for one scrape: half a second of work. What is left is read for the next one, and is told as
its lag."""
EXITS_MAX: Final = 100_000
"""Units of which it is remembered how they ended last. Of more than this, those that ended first are forgotten: the
reason of their next restart is `unknown`."""
POLICIES_MAX: Final = 100
"""Names of policies: flyball has two dozen, and a fleet may have some of its own."""
HOSTS_MAX: Final = 1_000
"""Names of hosts: more than one store serves."""
METERS_MAX: Final = 50
"""Names of meters. Settings have at most eight; programs may name others."""

NOBODY: Final = "(none)"
"""The policy of a decision that nobody had a reason for."""
UNKNOWN: Final = "unknown"
"""The reason of a restart after an exit that this tally has not seen."""

TOLD: Final = frozenset(("start", "resume", "exited", "left"))
"""Kinds of events that are read for what they say."""
REASONS: Final = b'"reasons":['
USED: Final = b'"used":{'
FAULTS: Final = b'"faults":['
"""What has to be in an entry for it to say more than that it was. Inside of texts quotes are escaped, so no text looks
like this; and most entries are steps that have none of it, which need not be read at all."""

OUTCOMES: Final = (
    SessionWord.COMPLETED,
    SessionWord.STOPPED,
    SessionWord.FAILED,
    SessionWord.TIMED_OUT,
    SessionWord.BUDGET_EXCEEDED,
    SessionWord.LOST,
)
"""How a session can end."""

Counts = Counter[tuple[str, ...]]
"""By the values of the labels."""


class Tally:
    """All counters that come from the journal. Not safe to use from several threads at once."""

    def __init__(self, governor: Governor, named: Iterable[str] = ()) -> None:
        self._governor = governor
        self.seq = governor.store.read(()).seq
        """The last entry that was counted."""
        self.missed = 0
        """Entries that were gone from the journal before they could be counted."""
        self.units = Values(named)
        self._policies = Values(most=POLICIES_MAX)
        self._meters = Values(most=METERS_MAX)
        self.hosts = Values(most=HOSTS_MAX)
        self._ended: dict[str, str] = {}
        """How each unit ended last."""
        self.starts: Counts = Counter()
        self.restarts: Counts = Counter()
        self.exits: Counts = Counter()
        self.decisions: Counts = Counter()
        self.takeovers: Counts = Counter()
        self.spent: Counts = Counter()
        """In the smallest unit of each meter."""
        # What is bounded and matters before it first happens is there from the beginning: a counter that appears with
        # its first count has not grown, for `increase`.
        self.layers: Counts = Counter({(str(layer), name): 0 for layer, name in LAYERS.items()})
        self.sessions: Counts = Counter({(str(outcome),): 0 for outcome in OUTCOMES})
        self.faults = 0
        self.buckets = [0] * (len(BUCKETS) + 1)
        """How many recoveries took at most so long, each in the first bucket that it fits in."""
        self.recovered = 0.0
        """Seconds, of all recoveries."""

    def catch_up(self) -> int:
        """Count what is new in the journal, at most ENTRIES_MAX entries; how many are left."""
        store, most = self._governor.store, self.seq + ENTRIES_MAX
        while self.seq < most and (entries := store.entries(after=self.seq, limit=CHUNK_MAX)):
            self.missed += entries[0].seq - self.seq - 1
            for entry in entries:
                self.count(entry)
            self.seq = entries[-1].seq
        return max(0, store.read(()).seq - self.seq)

    def count(self, entry: Entry) -> None:
        """Count one entry. What cannot be read is counted by its verb alone."""
        body = entry.body
        if entry.event not in TOLD and REASONS not in body and USED not in body and FAULTS not in body:
            self.decisions[NOBODY, entry.verb] += 1
            return
        try:
            said = decode_body(body)
        except StoreCorrupt:
            self.decisions[NOBODY, entry.verb] += 1
            return
        self._decided(entry, said)
        match said.event:
            case Start() if said.decision.proceeds:
                self._started(said.event)
            case Exited():
                self._exited(said.event)
            case Stepped():
                for work in said.event.done:
                    self._used(work.used)
            case Settled():
                self._used(said.event.used)
            case Left(lost=True):
                self.takeovers[self.hosts.of(said.event.host),] += 1

    def _decided(self, entry: Entry, said: Body) -> None:
        self.faults += len(said.faults)
        for reason in said.decision.reasons:
            self.decisions[self._policies.of(reason.policy), VERB_NAMES[reason.verb]] += 1
        if not said.decision.reasons:
            self.decisions[NOBODY, entry.verb] += 1

    def _started(self, start: Start) -> None:
        unit = self._label(start.unit)
        self.starts[unit,] += 1
        if reason := self._reason(start):
            self.restarts[unit, reason] += 1
        if start.down:
            took = seconds(start.down)
            self.buckets[bisect_left(BUCKETS, took)] += 1
            self.recovered += took

    def _reason(self, start: Start) -> str:
        """Why it was started again; nothing if it was not. As people are shown it: what fires a rule starts it anew,
        unless its last run failed."""
        ended = self._ended.get(start.unit)
        if isinstance(start, Resume):
            return "resume"
        if start.labels.get(RUNTIME) == RULE:
            return ended if ended not in (None, "done", "stopped") else ""
        if start.again:
            return ended or UNKNOWN
        return "person" if ended else ""

    def _exited(self, exited: Exited) -> None:
        unit, cause = self._label(exited.unit), str(exited.cause)
        self.exits[unit, cause] += 1
        self._ended.pop(exited.unit, None)
        self._ended[exited.unit] = cause
        while len(self._ended) > EXITS_MAX:
            del self._ended[next(iter(self._ended))]
        layer = layer_of(exited.error)
        if layer is not None:
            self.layers[str(layer), LAYERS[layer]] += 1
        if not exited.pause and self._is_work(exited.unit):
            over = exited.error == OVER_BUDGET and not exited.cause.done
            self.sessions[str(SessionWord.BUDGET_EXCEEDED if over else WORDS[exited.cause]),] += 1

    def _used(self, used: Mapping[str, int]) -> None:
        for meter, amount in used.items():
            self.spent[self._meters.of(meter),] += amount

    def _label(self, unit: str) -> str:
        return WORK if unit not in self.units and self._is_work(unit) else self.units.of(unit)

    def _is_work(self, unit: str) -> bool:
        """Whether it is a session or a thread of a graph: those of programs are known by what these keep of them."""
        governor = self._governor
        if any(isinstance(policy, Session) for policy in governor.panel.policies_of(unit)):
            return True
        key = Key(DEFINITION, "unit", unit)
        return IS_WORK in governor.store.read([key]).records.get(key, b"")

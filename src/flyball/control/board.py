"""The board: what everybody who watches sees, kept up to date by what changes and by nothing else.

One model for all who watch. The journal says which units to look at again, their own times (a wait that ends) say when,
and a few of the others are looked at each time as well: what no entry tells of (a holder that is gone, a window that
slid) is seen within a while too. Each row knows the revision in which it last changed, so whoever saw revision 7 is
told what changed after it, and nothing is kept per watcher.
"""

import heapq
import secrets
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from flyball.control import circuits
from flyball.control.hosts import LOST
from flyball.control.problems import QUESTION, Problem, listed, nearest, of_fleet, of_unit, seen_by_people
from flyball.control.shapes import FleetView, HostView, UnitView, View, Word
from flyball.control.spending import SPENT, money_used
from flyball.control.views import Look, states_of
from flyball.core.amounts import MONEY
from flyball.core.codec import decode_body
from flyball.core.event import Start
from flyball.core.time import DAY, SECOND, Instant, seconds
from flyball.errors import StoreCorrupt
from flyball.policies import Budget
from flyball.policies.budget import OVER_BUDGET
from flyball.store import Entry, Store

ENTRIES_MAX: Final = 5_000
"""Entries of the journal read at a time."""
SWEPT: Final = 100
"""Rows looked at again though nothing was heard of them, each time that is done: 12 ms of work."""
SWEEP_EVERY: Final = 1 * SECOND
"""How often that is done: of 10,000 units each is looked at every hundred seconds."""
NAMES_EVERY: Final = 5 * SECOND
"""How often it is looked whether there are units that the journal does not know: from new settings."""
OFTEN: Final = 5
"""Restarts within the window (an hour) that make a unit stand out: half of what is allowed before it waits."""
GONE_MAX: Final = 10_000
"""Units that are gone and remembered, for those who saw them. Whoever is further behind is told everything anew."""
PROBLEMS_MAX: Final = 200
"""Problems in a frame: more than anybody reads. How many there are is in the totals."""
ALL: Final = frozenset(("booted", "held", "released", "raised"))
"""Events that, without a unit, concern all of them."""
UNSEEN: Final = frozenset(("ordered", "fired"))
"""Events that change nothing that is seen in a row."""
HELD_WORDS: Final = (Word.COOLING, Word.QUARANTINED, Word.HALTED, Word.PAUSED, Word.FAILED)


class Row(View, frozen=True, kw_only=True, gc=False):
    """A unit in one line."""

    name: str
    kind: str
    state: str
    held: bool
    running: bool
    since: float | None
    until: float | None
    restarts: int
    """Within the window of the restart policy."""
    restarts_total: int
    often: bool
    """It restarts often."""
    failures: int
    """In a row."""
    reason: str
    code: str
    """Of the reason; where that is a problem, the problem's."""
    error: str
    """How the last run ended, if it failed."""
    spent: int
    limit: int
    """Of the budget of money that is used up most; 0: there is none."""
    user: str
    waiting: int
    questions: int
    problem: str
    """The id of the first of its problems."""
    host: str = ""
    """Which host of the fleet runs it."""


class Frame(View, frozen=True, kw_only=True):
    """What changed after a revision. None: that did not."""

    epoch: str
    """Another one: nothing of what was seen before counts."""
    rev: int
    full: bool
    """These are all rows."""
    at: float
    units: tuple[Row, ...]
    gone: tuple[str, ...]
    fleet: FleetView | None
    totals: dict[str, int] | None
    problems: tuple[Problem, ...] | None


class Board:
    """Safe to use from several threads. `refresh` does the work, and blocks; all else is quick."""

    def __init__(self, look: Callable[[], Look], trouble: Callable[[], str] = lambda: "") -> None:
        self._look, self._trouble = look, trouble
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()
        self._epoch = secrets.token_hex(4)
        self._rev = 0
        self._at = 0.0
        self._seq: int | None = None
        self._named_at: Instant = -NAMES_EVERY
        self._swept_at: Instant = 0
        self._rows: dict[str, tuple[int, Row]] = {}
        self._problems: dict[str, tuple[Problem, ...]] = {}
        self._totals: Counter[str] = Counter()
        self._on: Counter[str] = Counter()
        """Units that run on each host."""
        self._gone: deque[tuple[int, str]] = deque(maxlen=GONE_MAX)
        self._due: list[tuple[float, str]] = []
        self._spent: tuple[int, int] = (0, 0)
        """A day, and what was spent on it: as far back as the last entries that were read at first."""
        self._scheduled: dict[str, float] = {}
        """Of each unit, the last time for which it is to be looked at."""
        self._swept: deque[str] = deque()
        self._shared: tuple[object, ...] = ()
        """Of the last look, what concerns all units: when that changes, all are looked at again."""
        self._fleet: tuple[int, FleetView | None] = (0, None)
        self._summary: tuple[int, dict[str, int]] = (0, {})
        self._list: tuple[int, tuple[Problem, ...]] = (0, ())
        self._encoded: dict[int, bytes] = {}

    @property
    def rev(self) -> int:
        """The number of the last change."""
        return self._rev

    @property
    def epoch(self) -> str:
        return self._epoch

    def due_in(self, now: float) -> float | None:
        """Seconds until something changes by itself, if that is known."""
        with self._lock:
            return max(0.0, self._due[0][0] - now) if self._due else None

    def rows(self) -> list[Row]:
        """All units, by name."""
        with self._lock:
            return [row for _, (_, row) in sorted(self._rows.items())]

    def hosts(self) -> tuple[HostView, ...]:
        """The hosts of the fleet, by name; none: it is on one machine."""
        with self._lock:
            fleet = self._fleet[1]
            return fleet.hosts if fleet is not None else ()

    def problems(self) -> tuple[Problem, ...]:
        """What waits for a person, the worst first, PROBLEMS_MAX at most."""
        with self._lock:
            return self._list[1]

    def frame(self, since: int = -1, epoch: str = "") -> bytes:
        """What changed after a revision of that epoch, as JSON. The same for all who ask for the same."""
        with self._lock:
            known = since if epoch == self._epoch and self._can_tell_after(since) else -1
            encoded = self._encoded.get(known)
            if encoded is None:
                encoded = self._encoded[known] = msgspec.json.encode(self._after(known))
            return encoded

    def refresh(self) -> bool:
        """Catch up with the journal and the clock; whether anything changed."""
        with self._refreshing:
            before, look = self._rev, self._look()
            names = self._names_to_look_at(look)
            found = {name: look.unit(name) for name in names}
            fleet, seen = self._fleet_of(look), seen_by_people(look.governor.store)
            with self._lock:
                self._take(look, found, fleet, listed(self._all_problems(fleet, found), seen, look.now))
            return self._rev != before

    # Which units to look at.

    def _names_to_look_at(self, look: Look) -> set[str]:
        first = self._seq is None
        names, everybody = self._heard(look.governor.store)
        shared = self._shared_by_all(look)
        if shared != self._shared:
            self._shared, everybody = shared, True
        if first or everybody or look.now - self._named_at >= NAMES_EVERY or names - self._rows.keys():
            self._named_at = look.now
            there = set(look.units())
            self._leave({name for name in self._rows if name not in there})
            names = there if first or everybody else (names & there) | (there - self._rows.keys())
            self._swept.extend(sorted(there - self._rows.keys()))
        now = seconds(look.now)
        while self._due and self._due[0][0] <= now:
            _, name = heapq.heappop(self._due)
            self._scheduled.pop(name, None)
            names.add(name)
        if look.now - self._swept_at >= SWEEP_EVERY:
            self._swept_at = look.now
            for _ in range(min(SWEPT, len(self._swept))):
                name = self._swept.popleft()
                if name in self._rows or name in names:
                    names.add(name)
                    self._swept.append(name)
        return names

    def _heard(self, store: Store) -> tuple[set[str], bool]:
        """The units of which the journal has something new, and whether it has something about all of them."""
        names: set[str] = set()
        if self._seq is None:
            spent = store.last_entries(limit=ENTRIES_MAX, events=SPENT)
            self._seq = spent[-1].seq if spent else store.read(()).seq
            for entry in spent:
                self._spend(entry)
            return names, True
        everybody = False
        while entries := store.entries(after=self._seq, limit=ENTRIES_MAX):
            self._seq = entries[-1].seq
            for entry in entries:
                if entry.event in UNSEEN:
                    continue
                if entry.event in SPENT:
                    self._spend(entry)
                if entry.unit:
                    names.add(entry.unit)
                elif entry.event in ALL:
                    everybody = True
        return names, everybody

    def _spend(self, entry: Entry) -> None:
        """Count what was spent on one day; another day begins with nothing."""
        day = entry.at // DAY
        if day != self._spent[0]:
            self._spent = (day, 0)
        try:
            self._spent = (day, self._spent[1] + money_used(decode_body(entry.body).event))
        except StoreCorrupt:
            return

    def _shared_by_all(self, look: Look) -> tuple[object, ...]:
        """What holds or slows all units at once: the fleet's reasons, without the numbers in them, and circuits."""
        state = look.fleet_state()
        open_ = circuits.known(look.governor, look.now)
        return (
            state.state,
            tuple((reason.code, reason.until) for reason in state.reasons),
            tuple((one.view.name, one.view.state) for one in open_ if one.view.state != circuits.CLOSED),
        )

    def _leave(self, names: set[str]) -> None:
        with self._lock:
            for name in names:
                self._count(self._rows.pop(name)[1], -1)
                self._problems.pop(name, None)
                self._rev += 1
                self._gone.append((self._rev, name))
                self._encoded.clear()

    # What is seen.

    def _all_problems(self, fleet: FleetView, found: dict[str, UnitView]) -> list[Problem]:
        for name, view in found.items():
            self._problems[name] = of_unit(view)
        units = [problem for problems in self._problems.values() for problem in problems]
        return [*of_fleet(fleet, self._trouble()), *units]

    def _take(self, look: Look, found: dict[str, UnitView], fleet: FleetView, problems: list[Problem]) -> None:
        before = self._rev
        for view in found.values():
            row = _row(view, self._problems[view.name])
            old = self._rows.get(row.name)
            if row.until is not None and self._scheduled.get(row.name) != row.until:
                self._scheduled[row.name] = row.until
                heapq.heappush(self._due, (row.until, row.name))
            if old is None or old[1] != row:
                if old is not None:
                    self._count(old[1], -1)
                self._count(row, +1)
                self._rev = before + 1
                self._rows[row.name] = (self._rev, row)
        totals = self._summed(look, problems)
        shown = tuple(problems[:PROBLEMS_MAX])
        timeless = msgspec.structs.replace(fleet, at=0.0, hosts=tuple(map(self._counted, fleet.hosts)))
        rev = before + 1
        if timeless != self._fleet[1]:
            self._rev, self._fleet = rev, (rev, timeless)
        if totals != self._summary[1]:
            self._rev, self._summary = rev, (rev, totals)
        if shown != self._list[1]:
            self._rev, self._list = rev, (rev, shown)
        self._at = seconds(look.now)
        if self._rev != before:
            self._encoded.clear()

    def _summed(self, look: Look, problems: Sequence[Problem]) -> dict[str, int]:
        spent, limit = _of_a_day(look)
        today = self._spent[1] if self._spent[0] == look.now // DAY else 0
        open_ = sum(not problem.acknowledged and problem.snoozed_until is None for problem in problems)
        return {
            "units": len(self._rows),
            **{word: self._totals[word] for word in ("running", *HELD_WORDS, "over_budget", "restarts_hour")},
            "spent_day": spent if limit else today,
            "limit_day": limit,
            "needs": open_,
        }

    def _counted(self, host: HostView) -> HostView:
        """With how many units it runs. Of one that is lost it is known how many runs it had."""
        return host if host.state == LOST else msgspec.structs.replace(host, units=self._on[host.name])

    def _count(self, row: Row, sign: int) -> None:
        self._totals["running"] += sign * row.running
        self._on[row.host] += sign * bool(row.host)
        self._totals[row.state] += sign
        self._totals["over_budget"] += sign * _is_over_budget(row)
        self._totals["restarts_hour"] += sign * row.restarts

    def _fleet_of(self, look: Look) -> FleetView:
        """The fleet without its counts: those are in the totals."""
        return look.fleet(())

    # What is told.

    def _can_tell_after(self, since: int) -> bool:
        if not 0 <= since <= self._rev:
            return False
        return len(self._gone) < GONE_MAX or self._gone[0][0] <= since

    def _after(self, since: int) -> Frame:
        rows = [row for rev, row in self._rows.values() if rev > since]
        fleet_rev, fleet = self._fleet
        totals_rev, totals = self._summary
        list_rev, problems = self._list
        return Frame(
            epoch=self._epoch,
            rev=self._rev,
            full=since < 0,
            at=self._at,
            units=tuple(sorted(rows, key=lambda row: row.name)),
            gone=() if since < 0 else tuple(name for rev, name in self._gone if rev > since and name not in self._rows),
            fleet=fleet if fleet_rev > since else None,
            totals=totals if totals_rev > since else None,
            problems=problems if list_rev > since else None,
        )


def _row(view: UnitView, problems: Sequence[Problem]) -> Row:
    reason = view.reasons[0] if view.reasons else None
    budget = nearest(view.budgets)
    ended = view.last_exit
    failed = ended is not None and ended.cause not in ("done", "stopped")
    return Row(
        name=view.name,
        kind=view.kind,
        state=view.state,
        held=view.held,
        running=view.running,
        since=view.since,
        until=view.until,
        restarts=view.restarts.last_hour,
        restarts_total=view.restarts.total,
        often=view.restarts.last_hour >= OFTEN or view.state is Word.DEGRADED,
        failures=view.failures_in_a_row,
        reason=reason.text if reason is not None else "",
        code=_code(view, problems),
        error=(ended.error or ended.cause) if failed and ended is not None else "",
        spent=budget.spent if budget is not None else 0,
        limit=budget.limit if budget is not None else 0,
        user=view.labels.get("user", ""),
        waiting=view.waiting,
        questions=len(view.questions),
        problem=problems[0].id if problems else "",
        host=view.host,
    )


def _code(view: UnitView, problems: Sequence[Problem]) -> str:
    """What holds it back. A policy that ended it for want of money says so only in how the run ended."""
    if problems and problems[0].code != QUESTION:
        return problems[0].code
    return view.reasons[0].code if view.reasons else ""


def _is_over_budget(row: Row) -> bool:
    """Whether its money is gone. A budget of each run is gone with the run: then its end tells."""
    return row.code == OVER_BUDGET or bool(row.limit and row.spent >= row.limit)


def _of_a_day(look: Look) -> tuple[int, int]:
    """What the fleet spent today, and may; nothing if it has no budget of that kind."""
    opinions: Any = look.governor.opinions(Start())
    for policy, state, _ in states_of(Budget, opinions, "fleet"):
        if policy.meter == MONEY and policy.every == DAY:
            return policy.current(state, look.now).spent, policy.limit
    return 0, 0

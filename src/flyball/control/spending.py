"""The command that shows how money was spent over time, as the journal tells it: the counter of a budget, drawn as a
curve against its limit. It falls where the counter does: when another run begins, another period, or when a person
forgave what was spent."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

from flyball.control.budgets import BUDGET, Account
from flyball.control.context import Args, Context, bounded, known_unit
from flyball.control.views import Look, states_of
from flyball.core.amounts import MONEY
from flyball.core.codec import decode_body
from flyball.core.event import Event, Exited, Released, Settled, Start, Stepped
from flyball.core.policy import Key
from flyball.core.time import HOUR, Instant, seconds
from flyball.errors import StoreCorrupt
from flyball.policies import Budget
from flyball.store import Entry

POINTS_MAX: Final = 288
"""Points of a curve: one for each five minutes of a day, and more than a narrow screen shows."""
HOURS_MAX: Final = 31 * 24
"""A month. Who wants to know more about the past exports the journal."""
ENTRIES_MAX: Final = 20_000
"""Entries that are read: the newest. A fifth of a second of work; `since` says how far they reach."""
SPENT: Final = ("stepped", "settled")
"""Kinds of events that tell of money; those of one unit tell of its runs too."""
OF_A_UNIT: Final = (*SPENT, "start", "resume", "exited", "released")


def spend(context: Context, args: Args) -> Any:
    """What one unit spent, or all of them together, within the last hours."""
    hours = bounded(args, "hours", HOURS_MAX, 1)
    look = context.look()
    unit = known_unit(look, args["unit"]) if args["unit"] else ""
    account = _account(look, unit)
    entries = context.governor.store.last_entries(
        limit=ENTRIES_MAX, unit=unit or None, events=OF_A_UNIT if unit else SPENT
    )
    since = look.now - hours * HOUR
    cut_off = entries[0].at if len(entries) == ENTRIES_MAX else 0
    points = _curve([entry for entry in entries if entry.at >= since], account, now=look.now)
    return {
        "unit": unit,
        "points": _thinned(points),
        "limit": None if account is None else account.limit,
        "by": "" if account is None else account.key.by,
        "spent": points[-1][1] if points else 0 if account is None else account.state.spent,
        "meter": MONEY,
        "since": seconds(max(since, cut_off)),
        "at": seconds(look.now),
    }


def _account(look: Look, unit: str) -> Account | None:
    """The budget that the curve is drawn against: of a unit its own that is used up most, otherwise the fleet's."""
    opinions = look.opinions(unit) if unit else look.governor.opinions(Start())
    run = next((live.run for live in look.unit(unit, opinions).live), "") if unit else ""
    subjects = {"unit": unit, "run": f"{unit}/{run}"} if unit else {"fleet": ""}
    found = [
        Account(Key(BUDGET, by, subject), policy, policy.current(state, look.now))
        for by, subject in subjects.items()
        for policy, state, _ in states_of(Budget, opinions, by)
        if policy.name == BUDGET
    ]
    return max(found, key=lambda one: one.share, default=None)


def _curve(entries: Sequence[Entry], account: Account | None, *, now: Instant) -> list[tuple[Instant, int]]:
    """The counter after each entry that changed it."""
    every = account.policy.every if account is not None and account.policy is not None else 0
    total, fell, period = 0, False, 0
    points: list[tuple[Instant, int]] = []
    for entry in entries:
        try:
            event = decode_body(entry.body).event
        except StoreCorrupt:
            continue
        if every and entry.at // every != period:
            fell |= bool(period)
            total, period = 0, entry.at // every
        if account is not None and _begins_anew(event, account):
            total, fell = 0, True
            points.append((entry.at, 0))
        elif used := money_used(event):
            total += used
            points.append((entry.at, total))
    if every and points and now // every != period:
        points.append((now // every * every, 0))
        fell = True
    # What was spent before the first of these entries is in the counter too.
    before = 0 if fell or account is None else max(0, account.state.spent - total)
    return [(at, spent + before) for at, spent in points]


def _begins_anew(event: Event, account: Account) -> bool:
    match event:
        case Start() | Exited():
            return account.key.by == "run"
        case Released():
            return event.frees(account.key.policy, account.key.by) and not event.fingerprint
    return False


def money_used(event: Event) -> int:
    """What it tells of money that was spent, in millionths."""
    match event:
        case Stepped(done=done):
            return sum(work.used.get(MONEY, 0) for work in done)
        case Settled(used=used):
            return used.get(MONEY, 0)
    return 0


def _thinned(points: Sequence[tuple[Instant, int]]) -> list[tuple[float, int]]:
    """At most so many of them: of those that lie close together the highest and the last."""
    if not points:
        return []
    first, last = points[0][0], points[-1][0]
    width = -(-(last - first + 1) // (POINTS_MAX // 2))
    kept: list[tuple[Instant, int]] = []
    for _, close in groupby(points, key=lambda point: (point[0] - first) // width):
        together = list(close)
        highest = max(together, key=lambda point: point[1])
        kept += [highest] if highest == together[-1] else [highest, together[-1]]
    return [(seconds(at), spent) for at, spent in kept]

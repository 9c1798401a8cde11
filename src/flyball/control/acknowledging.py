"""The commands that show what waits for a person, and with which a person says to have seen it: for as long as it gets
no worse, or until a time. Only that is stored; the problem itself stays what it is."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from flyball.control.context import LISTED_MAX, Args, CommandError, Context, bounded, meant
from flyball.control.orders import note_of
from flyball.control.problems import Problem, Seen, listed, of_fleet, of_unit, record, seen_by_people
from flyball.control.views import Look
from flyball.core.codec import encode
from flyball.core.event import Acknowledged
from flyball.core.policy import Key
from flyball.core.time import DAY, FOREVER, Instant, format_span, later, seconds, span

PROBLEMS_MAX: Final = 1_000
"""Problems in one answer: more than anybody reads."""
SNOOZE_MAX: Final = 30 * DAY
"""What nobody wants to hear of for longer is to be put right, or taken out of the settings."""
SEEN_MAX: Final = 1_000
"""Problems that somebody has seen and that are remembered. Of more, those seen longest ago are told of again."""


def problems(context: Context, args: Args) -> Any:
    """What waits for a person, the worst and oldest first; what somebody has seen comes last."""
    limit = bounded(args, "limit", PROBLEMS_MAX)
    look = context.look()
    found = _all(context, look)
    return {"problems": found[:limit], "left_out": max(0, len(found) - limit), "at": seconds(look.now)}


def acknowledge(context: Context, args: Args) -> Any:
    """Somebody has seen it: it is told of again when it gets worse."""
    return _seen(context, args, lambda _: FOREVER)


def snooze(context: Context, args: Args) -> Any:
    """Somebody does not want to hear of it for a while, unless it gets worse."""
    length, until = args["seconds"], args["until"]
    if (length is None) == (until is None):
        text = "snooze needs seconds, or an instant until which; one of them"
        raise CommandError("bad_argument", text, remedy="An hour is `seconds` 3600.")

    def end(now: Instant) -> Instant:
        ends = later(now, span(length)) if length is not None else span(until)
        if not now < ends <= now + SNOOZE_MAX:
            text = f"a problem can be snoozed for up to {format_span(SNOOZE_MAX)}, and not into the past"
            raise CommandError("bad_argument", text, remedy="To hear no more of it while it stays: `acknowledge`.")
        return ends

    return _seen(context, args, end)


def _seen(context: Context, args: Args, end: Callable[[Instant], Instant]) -> Any:
    look = context.look()
    until = end(look.now)
    note = note_of(context, args["note"] or "")
    problem = _the_one(context, look, args["problem"])
    event = Acknowledged(
        unit=problem.unit,
        problem=problem.id,
        until=until,
        count=problem.count,
        by=context.who,
        note=note,
    )
    seen = Seen(by=context.who, at=look.now, until=until, count=problem.count)
    context.governor.submit(event, {**_forgotten(look), record(problem.id): encode(seen)})
    after = context.look()
    shown = listed([problem], seen_by_people(after.governor.store), after.now)[0]
    how = "seen" if until >= FOREVER else f"snoozed for {format_span(until - look.now)}"
    return {"problem": shown, "effect": f"{problem.id} {how}", "at": seconds(after.now)}


def _forgotten(look: Look) -> dict[Key, bytes | None]:
    """Records that are too many."""
    known = seen_by_people(look.governor.store)
    oldest = sorted(known, key=lambda problem: known[problem].at)
    return dict.fromkeys([record(problem) for problem in oldest[: max(0, len(known) + 1 - SEEN_MAX)]])


def _all(context: Context, look: Look) -> list[Problem]:
    """Every problem there is."""
    known = context.problems()
    if known is not None:
        return list(known)
    found = [problem for unit in look.units() for problem in of_unit(look.unit(unit))]
    return _listed(look, [*of_fleet(look.fleet(()), context.trouble), *found])


def _listed(look: Look, found: Iterable[Problem]) -> list[Problem]:
    return listed(found, seen_by_people(look.governor.store), look.now)


def _the_one(context: Context, look: Look, given: str) -> Problem:
    """The problem of that id; or the only one whose id or fingerprint begins so, or that the unit of that name has."""
    if not given:
        text = "which problem? Its id is missing"
        raise CommandError("bad_argument", text, remedy="`flyball problems` lists all of them with their ids.")
    # Whoever gives a whole id, as buttons do, does not wait until everybody was looked at.
    units = [unit for unit in look.units() if given == unit or given.startswith(f"{unit}:")]
    near = [problem for unit in units for problem in of_unit(look.unit(unit))]
    for problem in near:
        if problem.id == given:
            return problem
    found = _all(context, look)
    matches = [problem for problem in found if problem.id == given]
    matches = matches or [problem for problem in found if problem.unit == given]
    matches = matches or [problem for problem in found if problem.id.startswith(given)]
    matches = matches or [problem for problem in found if problem.fingerprint.startswith(given)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        text = f"{given!r} can be {len(matches)} problems: {_names(matches)}"
        raise CommandError("ambiguous", text, remedy="Give the whole id of the one that is meant.")
    hint = meant(given, [problem.id for problem in found], nothing="there is no problem")
    remedy = "It may be gone already: `flyball problems` lists those that there are."
    raise CommandError("not_found", f"no problem {given!r}; {hint}", remedy=remedy)


def _names(found: Sequence[Problem]) -> str:
    more = f" and {len(found) - LISTED_MAX} more" if len(found) > LISTED_MAX else ""
    return ", ".join(problem.id for problem in found[:LISTED_MAX]) + more

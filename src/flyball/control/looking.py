"""Commands that look: they change nothing, and need no daemon."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from flyball.control import story
from flyball.control.context import Args, CommandError, Context, known_unit, known_units, meant
from flyball.control.past import RULE
from flyball.control.post_mortem import post_mortem
from flyball.control.problems import HOST, listed, of_fleet, of_unit, seen_by_people
from flyball.control.rules import view as rule_view
from flyball.control.sessions import checkpoint_of, costly, fired, kind_of, known_session
from flyball.control.sessions import view as session_view
from flyball.control.shapes import HostDetail, HostView, SessionWord
from flyball.control.text import entry_data
from flyball.control.views import Look, reasons_of
from flyball.core.event import AnyEvent, Start
from flyball.core.host import holds
from flyball.core.time import SECOND, seconds
from flyball.governor import VERB_NAMES
from flyball.store import Entry, checkpoints

EVENTS_MAX: Final = 10_000
"""Entries in one answer: some megabytes."""
PROBLEMS_MAX: Final = 1_000
"""Problems in a status: more than anybody reads."""
KINDS: Final = tuple(str(kind.__struct_config__.tag) for kind in AnyEvent.__args__)
"""Kinds of events, as the journal names them."""


def status(context: Context, args: Args) -> Any:
    look = context.look()
    views = [look.unit(unit) for unit in look.units()]
    wanted = known_units(look, args["units"] or ())
    shown = [view for view in views if not wanted or view.name in wanted]
    fleet = look.fleet(views)
    # From these very views: what needs a person and what the units are do not contradict each other.
    waiting = [*of_fleet(fleet, context.trouble), *(problem for view in shown for problem in of_unit(view))]
    problems = listed(waiting, seen_by_people(context.governor.store), look.now)[:PROBLEMS_MAX]
    return {"fleet": fleet, "units": shown, "problems": problems, "trouble": context.trouble}


def hosts(context: Context, args: Args) -> Any:  # noqa: ARG001 - the shape of every verb
    """The hosts, by name, with how long each is taken to live; and what is wrong with them. None: there are none."""
    look = context.look()
    held = [live.holder for _, _, live in context.governor.live_runs()] if look.hosts else []
    running = {name: sum(holds(record.holder, one) for one in held) for name, record in look.hosts.items()}
    fleet = look.fleet(())
    return {
        "hosts": [_host(context, look, view) for view in look.host_views(running)],
        "homeless": fleet.homeless,
        "problems": [problem for problem in of_fleet(fleet, "") if problem.kind == HOST],
        "at": look.now / SECOND,
    }


def _host(context: Context, look: Look, view: HostView) -> HostDetail:
    record = look.hosts.get(view.name)
    shown = {name: getattr(view, name) for name in view.__struct_fields__}
    if record is None:
        return HostDetail(**shown)
    return HostDetail(
        **shown,
        holder=record.holder,
        lease=seconds(record.lease),
        lease_until=seconds(record.until),
        here=view.name == context.host,
    )


def unit(context: Context, args: Args) -> Any:
    look = context.look()
    return look.unit(known_unit(look, args["unit"]))


def state(context: Context, args: Args) -> Any:
    look = context.look()
    return look.policy_state(known_unit(look, args["unit"]))


def sessions(context: Context, args: Args) -> Any:
    status = args["status"]
    if status is not None and status not in [*SessionWord]:
        words = ", ".join(SessionWord)
        raise CommandError("bad_argument", f"{status!r} is no status of a session; there are {words}", remedy=words)
    look, user, limit = context.look(), args["user"], args["limit"]
    if limit is not None and limit < 0:
        raise CommandError("bad_argument", f"limit is {limit}", remedy="Give a number of sessions, 0 or more.")
    units = [unit for unit in look.units() if kind_of(look, unit) and user in (None, look.labels(unit).get("user"))]
    newest = sorted(units, key=lambda unit: look.past.of(unit).since or 0, reverse=True)[:limit]
    found = [session_view(look, unit) for unit in sorted(newest)]
    shown = [view for view in found if status in (None, view.status)]
    return {
        "sessions": shown,
        "layers": fired(look, shown),
        "costly": costly(found),
        "counts": dict(sorted(Counter(str(view.status) for view in shown).items())),
        "left_out": len(units) - len(newest),
        "at": look.now / SECOND,
    }


def session(context: Context, args: Args) -> Any:
    look = context.look()
    unit = known_session(look, args["unit"])
    checkpoint = None if args["checkpoint"] is None else checkpoint_of(look, unit, args["checkpoint"])
    return {
        "session": session_view(look, unit),
        "reasons": look.unit(unit).reasons,
        "chosen": checkpoints.chosen(context.governor.store, unit),
        "checkpoint": None if checkpoint is None else _content(checkpoint),
        "at": look.now / SECOND,
    }


def _content(checkpoint: checkpoints.Checkpoint) -> dict[str, Any]:
    """What is in a checkpoint: as data where it is JSON, as text where it is that, otherwise only how much it is."""
    data = checkpoint.data
    try:
        content, form = msgspec.json.decode(data), "json"
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        try:
            content, form = data.decode(), "text"
        except UnicodeDecodeError:
            content, form = f"{len(data)} bytes that are no text", "bytes"
    return {
        "id": checkpoint.id,
        "stage": checkpoint.stage,
        "at": checkpoint.at / SECOND,
        "version": checkpoint.version,
        "bytes": len(data),
        "form": form,
        "content": content,
    }


def why(context: Context, args: Args) -> Any:
    look = context.look()
    unit = known_unit(look, args["unit"])
    view = look.unit(unit)
    told = story.read(context.governor.store, unit) if kind_of(look, unit) else None
    work = session_view(look, unit, told) if told is not None else None
    opinions = look.opinions(unit)
    start = context.governor.look(Start(unit=unit, labels=view.labels)) if not view.running else None
    past = look.past.of(unit)
    return {
        "unit": view,
        "says": context.says(unit),
        "opinions": [
            {
                "policy": policy.name,
                "by": policy.by,
                "verb": VERB_NAMES[said.verb],
                "reasons": reasons_of([opinion], unit, view.labels),
            }
            for opinion in opinions
            for policy, _, said in [opinion]
        ],
        "start": None if start is None else {"verb": VERB_NAMES[start.verb], "codes": start.codes},
        "detail": past.last_exit.detail if past.last_exit is not None and past.last_exit.cause.failed else "",
        "events": _entries(context, unit, args["limit"]),
        "session": work,
        "post_mortem": None if told is None or work is None else post_mortem(work, told, look.now),
        "rule": rule_view(context, look, unit) if look.kind(unit) == RULE else None,
        "at": look.now / SECOND,
    }


def events(context: Context, args: Args) -> Any:
    limit, after, since, unit = args["limit"], args["after"], args["since"], args["unit"]
    if not 0 <= limit <= EVENTS_MAX:
        text = f"limit is {limit}; allowed: 0 to {EVENTS_MAX}"
        raise CommandError("bad_argument", text, remedy="For more, ask again with `after`: the last number so far.")
    kinds = args["kinds"] or ()
    for kind in kinds:
        if kind not in KINDS:
            hint = meant(kind, KINDS, nothing="")
            raise CommandError("bad_argument", f"no kind of event {kind!r}; {hint}", remedy=f"All: {', '.join(KINDS)}.")
    if unit is not None:
        unit = known_unit(context.look(), unit)
    store = context.governor.store
    # The end of the journal is read first: what comes in between is found the next time, and not missed.
    last = store.read(()).seq if after is None else after
    if not limit:
        found: Sequence[Entry] = ()
    elif after is None:
        found = store.last_entries(limit=limit, unit=unit, events=kinds)
    else:
        found = store.entries(after=after, limit=limit, unit=unit, events=kinds)
    last = max(last, found[-1].seq) if found else last
    if since is not None:
        found = [entry for entry in found if entry.at >= since * SECOND]
    return {"events": [entry_data(entry) for entry in found], "last": last}


def _entries(context: Context, unit: str, limit: int) -> list[Any]:
    return [entry_data(entry) for entry in context.governor.store.last_entries(limit=limit, unit=unit)]

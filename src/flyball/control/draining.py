"""Commands that order hosts: drain one, take that back, move a unit. An order is a record in the store, written with
its line of the audit trail in one transaction; whoever it concerns reads it there, on whichever host it was given.
Nothing here starts or ends anything itself."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from flyball.config.components import Component
from flyball.control import hosts
from flyball.control.context import LISTED_MAX, Args, CommandError, Context, known_unit, meant
from flyball.control.text import counted
from flyball.control.views import Look
from flyball.core.host import HostRecord, Move, decode, encode, holds, host_key, host_of, move_key
from flyball.core.time import seconds
from flyball.governor import Rows
from flyball.store import Snapshot

NO_HOSTS: Final = "this fleet has no hosts now"
SHARE_A_STORE: Final = "Hosts of a fleet share a PostgreSQL: `store: postgresql://…` in the settings."


def drain(context: Context, args: Args) -> Any:
    """A host is to take no units, and to leave those that it has to others."""
    look = context.look()
    host = _living(look, args["host"])
    stay, go = _whither(context, look, host)
    others = [name for name, one in look.hosts.items() if name != host.name and _takes(one, look)]
    if not others and not host.draining and not args["force"]:
        text = f"{host.name} is the only host that takes units: {_left_without(stay)}"
        remedy = f"Start another host first; or, if that is meant: `flyball drain {host.name} --force`."
        raise CommandError("last_host", text, remedy=remedy)
    parts = [f"{counted(len(go), 'unit')} left to others"] if go else []
    parts += [f"{counted(len(stay), 'unit')} without a host until then"] if stay else []
    effect = f"{host.name} drains" + (f": {', '.join(parts)}" if parts else "")
    if not args["dry_run"]:
        _mark(context, "drain", args, effect, host, draining=True)
    return _done(context, host.name, effect, dry=args["dry_run"], moves=go, waits=stay)


def undrain(context: Context, args: Args) -> Any:
    """A host may take units again."""
    look = context.look()
    host = _living(look, args["host"])
    effect = f"{host.name} takes units again" if host.draining else f"{host.name} took units all the time"
    if not args["dry_run"]:
        _mark(context, "undrain", args, effect, host, draining=False)
    return _done(context, host.name, effect, dry=args["dry_run"], moves=(), waits=())


def move(context: Context, args: Args) -> Any:
    """A unit is to run on another host, and those with it that run on one host together."""
    look = context.look()
    if not look.hosts:
        raise no_hosts()
    unit = known_unit(look, args["unit"])
    units = _placed(context, unit)
    host = _living(look, args["host"])
    if not host.suits(units.host, units.labels):
        raise _does_not_fit(look, unit, units, host)
    if host.draining:
        text = f"{host.name} is being drained: it takes no units"
        raise CommandError("draining", text, remedy=f"Name another host, or first: `flyball drain {host.name} --undo`.")
    names = sorted(units.units)
    if {look.unit(name).host for name in names} == {host.name}:
        effect, names, record = f"{_named(names)} on {host.name} already", [], None  # also if it was to leave
    else:
        effect = f"{_named(names)} to {host.name}"
        record = encode(Move(to=host.name, by=context.who, at=look.now))
    if not args["dry_run"]:
        ordered = context.trail.line(context, "move", args, effect=effect)
        context.governor.submit(ordered, {move_key(unit): record})
    return _done(context, host.name, effect, dry=args["dry_run"], moves=names, waits=())


# What can be wrong.


def no_hosts() -> CommandError:
    """What to say where there are none."""
    return CommandError("no_hosts", NO_HOSTS, remedy=SHARE_A_STORE)


def _living(look: Look, name: str) -> HostRecord:
    """The host of that name. CommandError if there is none, or if it is lost."""
    if not look.hosts:
        raise no_hosts()
    lost = {view.name for view in look.host_views({}) if view.state == hosts.LOST}
    if name in lost:
        text = f"the host {name} is lost: nobody there would hear of it"
        remedy = "What it ran is taken over by others. When it is back it joins by itself: `flyball hosts`."
        raise CommandError("host_lost", text, remedy=remedy)
    if name not in look.hosts:
        wrong = f"no host {name!r}" if name else "the name of a host is missing"
        text = f"{wrong}; {meant(name, [*look.hosts], nothing='there are none')}"
        raise CommandError("unknown_host", text, remedy="`flyball hosts` lists all hosts.")
    return look.hosts[name]


def _placed(context: Context, unit: str) -> Component:
    """The units that run on one host with that one. Only units of the settings are placed on hosts."""
    for units in context.together():
        if unit in units.units:
            return units
    text = f"{unit} cannot be moved: it is no unit of the settings, and whoever runs it chose the host"
    raise CommandError("not_placed", text, remedy="`flyball status` shows which host runs which unit.")


def _does_not_fit(look: Look, unit: str, units: Component, host: HostRecord) -> CommandError:
    others = [name for name in units.units if name != unit]
    whose = f"{unit} runs together with {_named(others)}, and they ask for" if others else f"{unit} asks for"
    fit = hosts.takers(units, look.hosts.values(), look.now)
    where = f"It may run on {_named(fit)}. " if fit else ""
    text = f"{host.name} does not fit: {whose} {hosts.wanted(units)}"
    remedy = f"{where}To change that: `host` and `host_labels` in the settings."
    return CommandError("does_not_fit", text, remedy=remedy)


def _left_without(stay: Sequence[str]) -> str:
    if not stay:
        return "nothing more would be started"
    return f"{_named(stay)} would be ended and run nowhere"


# What follows.


def _takes(record: HostRecord, look: Look) -> bool:
    return not record.draining and not record.ran_out(look.now)


def _whither(context: Context, look: Look, host: HostRecord) -> tuple[list[str], list[str]]:
    """Of the units that it runs: those that no other host may run, and those that others take."""
    others = [one for one in look.hosts.values() if one.name != host.name]
    held = {unit for unit, _, live in context.governor.live_runs() if holds(host.holder, live.holder)}
    stay: list[str] = []
    go: list[str] = []
    for units in context.together():
        (go if hosts.takers(units, others, look.now) else stay).extend(held.intersection(units.units))
    return sorted(stay), sorted(go)


def _mark(context: Context, verb: str, args: Args, effect: str, host: HostRecord, *, draining: bool) -> None:
    """Write it, if that host is still the same. Its lease is renewed all the time: what is written is what is there
    then, and only this is changed."""
    key = host_key(host.name)

    def change(snapshot: Snapshot) -> Rows | None:
        data = snapshot.records.get(key)
        now = None if data is None else decode(data)
        if now is None or now.holder != host.holder:
            return None
        return {key: encode(msgspec.structs.replace(now, draining=draining))}

    ordered = context.trail.line(context, verb, args, effect=effect)
    if context.governor.submit_changing(ordered, [key], change) is None:
        text = f"the host {host.name} has just left, or was started anew"
        raise CommandError("host_changed", text, remedy="Look at `flyball hosts`, then try again.")


def _done(
    context: Context, host: str, effect: str, *, dry: bool, moves: Sequence[str], waits: Sequence[str]
) -> Mapping[str, Any]:
    look = context.look()
    runs = sum(host_of(live.holder) == host for _, _, live in context.governor.live_runs())
    view = next(view for view in look.host_views({host: runs}) if view.name == host)
    return {
        "host": view,
        "moves": list(moves),
        "waits": list(waits),
        "effect": effect,
        "dry_run": dry,
        "at": seconds(look.now),
    }


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED_MAX} more" if len(names) > LISTED_MAX else ""
    return ", ".join(names[:LISTED_MAX]) + more

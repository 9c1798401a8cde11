"""Commands that order. Each order is submitted to the governor with who gave it and by which channel, so the journal is
the audit trail; then the daemon, if there is one, is told to look. Nothing here starts or ends anything itself."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from flyball.config.units import MESSAGE
from flyball.control import circuits
from flyball.control.context import LISTED_MAX, Args, CommandError, Context, known_units, meant
from flyball.control.past import RULE
from flyball.control.rules import refuse_restart
from flyball.control.sessions import checkpoint_of, kind_of, known_session
from flyball.control.sessions import view as session_view
from flyball.control.shapes import FailureView, SessionWord
from flyball.control.text import one_line, times
from flyball.control.views import Look
from flyball.core.decision import Decision, Verb
from flyball.core.event import Held, Released, Start
from flyball.governor import NO_ROWS, Rows
from flyball.policies import Session
from flyball.policies.restart import ENDED_BY_POLICY
from flyball.policies.session import CALL
from flyball.store import checkpoints

NOTE_MAX: Final = 500
"""Characters of a note: it becomes a part of a reason's text."""

RESUMED: Final = ("manual", "flapping", "restart", "storm", "clock", "resumes", "session")
"""Policies whose holds a person ends by `resume`. A quarantine is about one failure, and ends by `reset`."""
FORGOTTEN: Final = ("cooldown", "quarantine")
"""Policies that count failures by fingerprint."""
FORGOTTEN_BY_ALL: Final = (*FORGOTTEN, "flapping", "restart")
"""Policies that count a unit's failures in any way."""

NO_DAEMON: Final = "Start one: `flyball up -d`; or run this unit alone: `flyball run --name {unit} -- COMMAND`."


def held(verb: Verb, name: str) -> Callable[[Context, Args], Any]:
    def order(context: Context, args: Args) -> Any:
        _refuse_both(args)
        note = note_of(context, args["note"] or ("kill" if name == "kill" else ""))
        said: dict[str, Any] = {"verb": verb, "order": name, "host": context.host, "by": context.who, "note": note}
        orders = [Held(scope="fleet", **said)]
        units = [""]
        if args["user"]:
            units, label = units_of(context, args["user"]), {"user": args["user"]}
            orders = [Held(scope="user", labels=label, **said)]
        elif not args["all"]:
            units = _units(context, args["units"], name)
            orders = [Held(unit=unit, **said) for unit in units]
        if not args["dry_run"]:
            for one in orders:
                context.governor.submit(one)
        return _done(context, name, units, dry=args["dry_run"])

    return order


def resume(context: Context, args: Args) -> Any:
    """Whatever waits for a person goes on. Without a unit: what holds the fleet."""
    look = context.look()
    _refuse_both(args)
    named = known_units(look, args["units"] or ())
    units = named or (look.units() if args["all"] else units_of(context, args["user"]) if args["user"] else [])
    rows = _choice(look, named, args["checkpoint"])
    releases = [_release(context, look, unit, named=True) for unit in named]
    if args["user"]:
        releases = [_release(context, look, "", user=args["user"])]
    elif not named:
        releases = [_release(context, look, unit) for unit in ("", *units)]
    found = [released for released in releases if released is not None]
    found += [released for unit in named for released in _message_released(context, look, unit)]
    if not args["dry_run"]:
        for released in found:
            context.governor.submit(released, rows)
    done = _done(context, "resume", units or [""], dry=args["dry_run"])
    if not units:  # only the fleet was asked about; what is held all the same is told
        done["units"] = [view for view in done["units"] if view.held]
    return {**done, "released": [{"unit": one.unit, "policies": one.policies} for one in found]}


def _release(context: Context, look: Look, unit: str, *, user: str = "", named: bool = False) -> Released | None:
    """What lifts every hold on the unit (on the fleet: ""; or on that user) that a resume lifts; None if there is
    nothing to lift. A session that is named is told to go on in any case, unless there is nothing to go on with."""
    scope, labels = ("user", {"user": user}) if user else ("unit" if unit else "fleet", {})
    opinions = look.opinions(unit) if unit else context.governor.opinions(Start(labels=labels))
    policies = tuple(
        sorted(
            policy.name
            for policy, _, said in opinions
            if policy.by == scope and policy.name in RESUMED and _waits_for_a_person(policy.name, said, named=named)
        )
    )
    if named and kind_of(look, unit):
        _refuse_pointless(look, unit, held=bool(policies))
        policies = policies or (Session.NAME,)
    if not policies:
        return None
    return Released(unit=unit, scope=scope, labels=labels, policies=policies, **released_by(context, "resume"))


def _message_released(context: Context, look: Look, unit: str) -> Iterator[Released]:
    """What lets go of the message that the unit's last run was for, if that is held: it is what people are shown."""
    for policy, _, said in look.opinions(unit):
        if policy.by == MESSAGE and said.verb is Verb.HOLD:
            labels = {MESSAGE: look.labels(unit)[MESSAGE]}
            said_by = released_by(context, "resume")
            yield Released(unit=unit, scope=MESSAGE, labels=labels, policies=(policy.name,), **said_by)


def _refuse_pointless(look: Look, unit: str, *, held: bool) -> None:
    """CommandError if a session has nothing to go on with, and nobody holds it."""
    seen = session_view(look, unit)
    if seen.kind == CALL and not held:
        text = f"{unit} was one call of a graph, without a thread: nothing is left of it to resume"
        raise CommandError("not_paused", text, remedy="Call it again; with a thread it could go on.")
    texts = {
        SessionWord.RUNNING: (
            "running",
            "is running: there is nothing to resume",
            f"To end it: `flyball stop {unit}`.",
        ),
        SessionWord.COMPLETED: (
            "not_paused",
            "is done: there is nothing to resume",
            "To do it once more, start it as it was started before.",
        ),
        SessionWord.PENDING: ("not_paused", "was never begun: there is nothing to resume", "Start it instead."),
    }
    if seen.status in texts and not held:
        code, text, remedy = texts[seen.status]
        raise CommandError(code, f"{unit} {text}", remedy=remedy)


def _choice(look: Look, named: Sequence[str], checkpoint: str | None) -> Rows:
    """The rows that say from which checkpoint a session goes on. CommandError if it cannot be that one."""
    if checkpoint is None:
        return NO_ROWS
    if len(named) != 1:
        text = "a checkpoint is of one session: name that, and no other"
        raise CommandError("bad_argument", text, remedy="`flyball resume ID --checkpoint C`.")
    unit = known_session(look, named[0])
    if session_view(look, unit).status is SessionWord.RUNNING:
        text = f"{unit} is running: it goes on from where it is"
        raise CommandError("running", text, remedy=f"To go back to a checkpoint, first end it: `flyball stop {unit}`.")
    return checkpoints.choose(unit, checkpoint_of(look, unit, checkpoint).id)


def units_of(context: Context, user: str) -> list[str]:
    """The units of a user, by the labels of their last run or of their definition. CommandError if there are none."""
    look = context.look()
    defined = {
        **{unit.name: unit.labels for unit in context.settings.units},
        **{rule.name: rule.labels for rule in context.settings.rules},
    }
    owners = {unit: {**defined.get(unit, {}), **look.labels(unit)}.get("user", "") for unit in look.units()}
    units = [unit for unit, owner in owners.items() if owner == user]
    if units:
        return units
    users = sorted({one_line(owner) for owner in owners.values()} - {""})
    text = f"no unit of the user {user!r}; {meant(user, users, nothing='no unit has a user')}"
    raise CommandError("unknown_user", text, remedy="`flyball sessions` shows whose each session is.")


def _waits_for_a_person(policy: str, said: Decision, *, named: bool) -> bool:
    """Whether a resume lifts it. A session that waits for its time goes on earlier only if somebody names it: all of
    them at once would only meet the same limit again."""
    ordered = policy == "manual" and not said.proceeds
    earlier = named and policy == Session.NAME and not said.proceeds
    return said.verb is Verb.HOLD or ordered or earlier or ENDED_BY_POLICY in said.codes


def reset(context: Context, args: Args) -> Any:
    """Forget failures: those of one fingerprint, those that a circuit counts, or all. `dry_run` only says which."""
    if [bool(args["fingerprint"]), bool(args["breaker"]), args["all"]].count(True) != 1:
        raise CommandError(
            "bad_argument",
            "reset needs a fingerprint, or --breaker, or --all; one of them",
            remedy="`flyball status` shows open circuits, and with `flyball why UNIT` fingerprints; of those the first "
            "digits are enough.",
        )
    if args["breaker"]:
        return _close(context, args["breaker"], dry=args["dry_run"])
    look = context.look()
    failures = {unit: look.failures(unit) for unit in look.units()}
    found = _with_any_failure(look) if args["all"] else _with_fingerprint(failures, args["fingerprint"])
    cleared = [
        {"unit": unit, "state": look.unit(unit).state, "failures": [_brief(kind) for kind in kinds]}
        for unit, kinds in found.items()
    ]
    if args["dry_run"]:
        return {**_done(context, "reset", [], dry=True), "cleared": cleared, "closed": []}
    said = released_by(context, "reset")
    for unit, kinds in found.items():
        if args["all"]:
            context.governor.submit(Released(unit=unit, policies=FORGOTTEN_BY_ALL, **said))
            continue
        for kind in kinds:
            context.governor.submit(Released(unit=unit, policies=FORGOTTEN, fingerprint=kind.fingerprint, **said))
    return {**_done(context, "reset", list(found)), "cleared": cleared, "closed": []}


def _close(context: Context, name: str, *, dry: bool) -> Any:
    """Close a circuit: it forgets its failures, and whoever waits for it asks again."""
    there = {circuit.view.name: circuit for circuit in circuits.known(context.governor, context.look().now)}
    if name not in there:
        hint = meant(name, list(there), nothing="no circuit is open, and none counts failures")
        remedy = "`flyball status` shows the circuits that are open."
        raise CommandError("unknown_breaker", f"no circuit {name!r}; {hint}", remedy=remedy)
    circuit = there[name]
    if not dry:
        for released in circuit.closing(**released_by(context, "reset")):
            context.governor.submit(released)
        if context.poke is not None:
            context.poke("", "reset")
    return {**_done(context, "reset", [], dry=dry), "cleared": [], "closed": [circuit.view]}


def _with_any_failure(look: Look) -> dict[str, Sequence[FailureView]]:
    """Units of which any policy that a reset makes forget knows something."""
    store = look.governor.store
    units = {key.subject for name in FORGOTTEN_BY_ALL for key in store.states(name) if key.by == "unit"}
    found = {unit: look.failures(unit) for unit in sorted(units)}
    return {unit: kinds for unit, kinds in found.items() if kinds or look.unit(unit).failures_in_a_row}


def _with_fingerprint(failures: Mapping[str, Sequence[FailureView]], prefix: str) -> dict[str, Sequence[FailureView]]:
    """The one failure whose fingerprint begins so, and the units that have it."""
    matches = {kind.fingerprint for kinds in failures.values() for kind in kinds if kind.fingerprint.startswith(prefix)}
    if prefix in matches:
        matches = {prefix}
    listed = [
        f"{kind.fingerprint} ({unit}: {kind.error or 'failure'}, {times(kind.count)})"
        for unit, kinds in failures.items()
        for kind in kinds
        if not matches or kind.fingerprint in matches
    ]
    there_are = "; ".join(listed[:LISTED_MAX]) + (f"; and {len(listed) - LISTED_MAX} more" * (len(listed) > LISTED_MAX))
    if len(matches) > 1:
        text = f"{prefix!r} is the beginning of {len(matches)} fingerprints: {there_are}"
        raise CommandError("ambiguous", text, remedy="Give more digits of the one that is meant.")
    if not matches:
        remedy = "`flyball status` shows the failures that are remembered."
        if prefix in failures:
            remedy = f"{prefix!r} is a unit: `flyball why {prefix}` shows its failures and what holds it."
        text = f"no failure has a fingerprint that begins with {prefix!r}"
        text += f"; there are {there_are}" if listed else "; no failure is remembered"
        raise CommandError("not_found", text, remedy=remedy)
    return {
        unit: [kind for kind in kinds if kind.fingerprint in matches]
        for unit, kinds in failures.items()
        if any(kind.fingerprint in matches for kind in kinds)
    }


def started(name: str) -> Callable[[Context, Args], Any]:
    """A person wants it to run: what a person ordered before is taken back, of all units also what was ordered for all
    of them, and the daemon starts it. A rule is not fired by that: it is again when something fires it."""

    def order(context: Context, args: Args) -> Any:
        _refuse_both(args)
        look = context.look()
        units = look.units() if args["all"] else _units(context, args["units"], name)
        if name == "restart":
            refuse_restart(look, args["units"] or ())
            units = [unit for unit in units if look.kind(unit) != RULE]
        if context.poke is None and not look.hosts:
            raise CommandError(
                "no_daemon",
                "no daemon runs here, so there is nobody to start it",
                remedy=NO_DAEMON.format(unit=units[0] if units else "NAME"),
            )
        said = released_by(context, name, note=name)
        if args["all"] and context.look().fleet_state().state != "running":
            context.governor.submit(Released(scope="fleet", policies=("manual",), **said))
        for unit in units:
            context.governor.submit(Released(unit=unit, policies=("manual",), **said))
        return _done(context, name, units)

    return order


def _done(context: Context, verb: str, units: Sequence[str], *, dry: bool = False) -> dict[str, Any]:
    """Tell the daemon, and say how the fleet and these units stand now (all of them: ""). If it was only asked what
    would be done, nobody is told."""
    if context.poke is not None and not dry:
        for unit in units:
            context.poke(unit, verb)
    look = context.look()
    shown = look.units() if "" in units else sorted(units)
    return {
        "fleet": look.fleet_state(),
        "units": [look.unit(unit) for unit in shown],
        "sessions": [session_view(look, unit) for unit in shown if kind_of(look, unit)],
        "daemon": context.poke is not None,
        "told": [unit for unit in shown if unit in context.named] if context.poke is not None else [],
        "dry_run": dry,
    }


def _units(context: Context, units: Sequence[str] | None, name: str) -> list[str]:
    if not units:
        text = f"{name} needs the name of a unit, --user, or --all"
        raise CommandError("bad_argument", text, remedy="`flyball status` lists all units.")
    return known_units(context.look(), units)


def _refuse_both(args: Args) -> None:
    if args.get("user") == "":
        # Perhaps a variable that is not set: it must not mean the fleet.
        raise CommandError("bad_argument", "a user without a name", remedy="Give the name: `--user NAME`.")
    if [bool(args["units"]), args["all"], bool(args.get("user"))].count(True) > 1:
        text = "name units, or a user, or give --all; not both"
        raise CommandError("bad_argument", text, remedy="Leave one of them out.")


def released_by(context: Context, order: str, *, note: str = "") -> dict[str, Any]:
    """What every release says of the order: what it was, who gave it, and where."""
    return {"order": order, "host": context.host, "by": context.who, "note": note_of(context, note)}


def note_of(context: Context, note: str) -> str:
    """The note of an order: through which channel it came, and what the person adds."""
    if len(note) > NOTE_MAX:
        text = f"a note of {len(note)} characters; allowed: {NOTE_MAX}"
        raise CommandError("bad_argument", text, remedy="Say it in fewer words.")
    return f"via {context.channel}" + (f": {note}" if note else "")


def _brief(kind: FailureView) -> dict[str, Any]:
    return {
        "fingerprint": kind.fingerprint,
        "error": kind.error,
        "count": kind.count,
        "quarantined": kind.quarantined,
    }

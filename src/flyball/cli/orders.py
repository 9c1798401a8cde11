"""`flyball pause|resume|reset|stop|start|restart|kill`: what a person orders. Each order is in the journal, with who
gave it."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from flyball.cli import FAILED, FINE
from flyball.cli.ask import Asking
from flyball.cli.complete import fingerprints, unit_names
from flyball.cli.show import coloured, print_json
from flyball.cli.status import why
from flyball.control.past import RULE
from flyball.control.text import one_line, short, times
from flyball.errors import FlyballError

ENDED: Final = ("finished", "failed")
"""What a resume does not start: nothing waits for a person there."""
TOLD_BY_STORE: Final = "No daemon runs here: whoever runs it reads the order from the store."


def _order(name: str, *more: Callable[[Any], Any]) -> click.Command:
    """One order for units, or for all of them."""

    def order(units: tuple[str, ...], everything: bool, as_json: bool, yes: bool = True, **given: Any) -> int:
        with Asking() as ask:
            if given.get("user") and not yes and not given["dry_run"] and sys.stdin.isatty():
                _confirm_user(given["user"], ask(name, user=given["user"], dry_run=True))
            said = ask(name, units=list(units), all=everything, **given)
        whole = not units and not given.get("user")
        return _print(name, said, fleet_asked=whole, everything=everything, as_json=as_json)

    parts: list[Callable[[Any], Any]] = [
        click.argument("units", metavar="[UNIT]...", nargs=-1, shell_complete=unit_names),
        click.option("--all", "everything", is_flag=True, help="All units."),
        *more,
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    ]
    decorated: Any = order
    for part in reversed(parts):
        decorated = part(decorated)
    return click.command(name=name, help=HELP[name], epilog=EXAMPLES.get(name))(decorated)


_USER: Final = click.option("--user", metavar="USER", help="All units and sessions of this user.")
_NOTE: Final = click.option("--note", metavar="TEXT", help="Why, for whoever looks later.")
_DRY: Final = click.option("--dry-run", is_flag=True, help="Only say what would be done.")
_YES: Final = click.option("--yes", is_flag=True, help="Do not ask before --user.")
_CHECKPOINT: Final = click.option("--checkpoint", metavar="C", help="Of one session: go on from this checkpoint.")

HELP: Final = {
    "pause": "End UNIT, and hold it until it is resumed; what fires a rule meanwhile waits in its queue. --all holds "
    "the fleet: no unit starts until `flyball resume`. --user holds whatever that user has: `flyball "
    "resume --user USER` ends it.",
    "resume": "Let UNIT go on if it is paused, halted or waits for a person; a session also if it waits for its time. "
    "Without a UNIT, what holds the fleet: a restart storm, a clock that jumped, a pause of all. A quarantine is "
    "lifted by `flyball reset`.",
    "stop": "End UNIT in order, and do not start it again until somebody starts or resumes it.",
    "start": "Start UNIT, also one that was stopped or paused; --all also takes back a stop or pause of all. A rule "
    "may be fired again then; to fire it now: `flyball trigger`. Needs a daemon.",
    "restart": "End UNIT in order, and start it again. It counts as a restart. Rules have nothing to restart. Needs a "
    "daemon.",
    "kill": "End UNIT at once, without grace, and do not start it again until somebody starts or resumes it.",
}

EXAMPLES: Final = {
    "pause": """\
\b
Examples:
  flyball pause web worker            two units
  flyball pause --user ann            whatever ann has
  flyball pause --all --note deploy   the fleet, and why
""",
    "resume": """\
\b
Examples:
  flyball resume                              what holds the fleet
  flyball resume research-42                  a session, now
  flyball resume research-42 --checkpoint 3   from an earlier checkpoint
  flyball resume --user ann                   what was paused by --user
""",
    "start": """\
\b
Examples:
  flyball start web worker    two units
  flyball start --all         whatever is not held
""",
    "restart": """\
\b
Examples:
  flyball restart web      one unit
  flyball restart --all    one after the other is ended, then started
""",
    "stop": """\
\b
Examples:
  flyball stop web           one unit
  flyball stop --user ann    whatever ann has
""",
    "kill": """\
\b
Examples:
  flyball kill research-42             one session
  flyball kill --user ann --dry-run    what would be ended
  flyball kill --user ann --yes        without asking
""",
}

pause = _order("pause", _USER, _NOTE, _DRY)
resume = _order("resume", _USER, _CHECKPOINT, _DRY)
stop = _order("stop", _USER, _NOTE, _DRY)
start = _order("start")
restart = _order("restart")
kill = _order("kill", _USER, _NOTE, _DRY, _YES)


def _confirm_user(user: str, would: Mapping[str, Any]) -> None:
    units = would["units"]
    running = sum(unit["running"] for unit in units)
    click.echo(f"{', '.join(unit['name'] for unit in units)}", err=True)
    if not click.confirm(f"End all {len(units)} units of {user} at once ({running} of them run)?", err=True):
        raise FlyballError("nothing was ended", remedy="One of them alone: `flyball kill UNIT`.")


def _print(name: str, said: Mapping[str, Any], *, fleet_asked: bool, everything: bool, as_json: bool) -> int:
    """How things stand after the order. A resume or start that left something held did not do what was asked."""
    fleet = said["fleet"]
    held = [unit for unit in said["units"] if _is_held(unit)]
    frees = name in ("resume", "start", "restart")
    runs = fleet["state"] == "running"
    code = FAILED if frees and (not runs or (held and (not fleet_asked or everything))) else FINE
    if as_json:
        print_json(said)
        return FINE if said["dry_run"] else code
    if said["dry_run"]:
        _print_dry(name, said)
        return FINE
    if fleet["reasons"]:
        reason = one_line(fleet["reasons"][0]["text"])
        click.echo(f"fleet: {coloured(fleet['state'], fleet['state'])}: {reason}")
    elif fleet_asked:
        click.echo(f"fleet: {coloured(fleet['state'], fleet['state'])}")
    sessions = {session["id"]: session for session in said["sessions"]}
    for unit in said["units"]:
        session = sessions.get(unit["name"])
        follows = unit["state"] not in (ENDED if name == "resume" and session is None else ())
        if frees and session is not None and not _is_held(unit):
            click.echo(_session_line(name, session, told=unit["name"] in said["told"]))
        else:
            click.echo(_line(unit, fleet["at"], starting=said["daemon"] and frees and runs and follows))
    if frees:
        against = [*held, *(() if runs else (fleet,))]
        for remedy in dict.fromkeys(reason["remedy"] for one in against for reason in one["reasons"]):
            click.echo(one_line(remedy), err=True)
    elif not said["daemon"] and any(unit["running"] for unit in said["units"]):
        click.echo(TOLD_BY_STORE, err=True)
    return code


def _is_held(unit: Mapping[str, Any]) -> bool:
    """Whether something still stands against it that only a person ends: a hold, or a stop of all that a user has."""
    return unit["held"] or any(reason["verb"] == "stop" for reason in unit["reasons"])


def _print_dry(name: str, said: Mapping[str, Any]) -> None:
    done = {"pause": "paused", "resume": "resumed", "stop": "stopped", "kill": "killed"}[name]
    for unit in said["units"]:
        runs = ", running" if unit["running"] else ""
        click.echo(f"{unit['name']}: would be {done} ({unit['state']}{runs})")
    click.echo(f"Nothing was done: {len(said['units'])} units, {sum(unit['running'] for unit in said['units'])} run.")


def _session_line(name: str, session: Mapping[str, Any], *, told: bool) -> str:
    """A session that may go on. The daemon resumes its own; one that a program runs nobody here can start."""
    if told:
        return f"{session['id']}: the daemon was told to {name} it"
    resumes = session["resumes"]
    left = f", {resumes['max'] - resumes['used']} of {resumes['max']} resumes left" if resumes else ""
    status = coloured(session["status"], session["status"])
    return f"{session['id']}: {status}: it goes on when its program runs again{left}"


def _line(unit: Mapping[str, Any], now: float, *, starting: bool) -> str:
    """How a unit stands; or, where nothing is against it and there is a daemon to do it, what comes now. A rule is
    begun by what fires it."""
    if starting and unit["kind"] != RULE and not _is_held(unit) and unit["state"] != "cooling":
        return f"{unit['name']}: the daemon was told to start it"
    return f"{unit['name']}: {coloured(unit['state'], unit['state'])}: {one_line(why(unit, now))}"


RESET_EXAMPLES: Final = """\
\b
Examples:
  flyball reset 7f3a                    one failure, by its first digits
  flyball reset --breaker provider:x    a circuit
  flyball reset --all --dry-run         what would be forgotten
"""


@click.command(epilog=RESET_EXAMPLES)
@click.argument("fingerprint", required=False, shell_complete=fingerprints)
@click.option("--breaker", metavar="CIRCUIT", help="Close this circuit: provider:x, or fleet.")
@click.option("--all", "everything", is_flag=True, help="All failures of all units.")
@click.option("--yes", is_flag=True, help="Do not ask before --all.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def reset(
    *, fingerprint: str | None, breaker: str | None, everything: bool, yes: bool, dry_run: bool, as_json: bool
) -> int:
    """Forget the failures of one FINGERPRINT (its first digits are enough), and lift its quarantine.

    With --breaker, close a circuit that `flyball status` shows. With --all, forget all failures of all units, after
    asking. A pause stays: `flyball resume` ends it.
    """
    with Asking() as ask:
        if everything and not fingerprint and not breaker and not yes and not dry_run:
            would = ask("reset", all=True, dry_run=True)["cleared"]
            if not would:
                click.echo("There is nothing to forget.")
                return FINE
            _confirm(would)
        said = ask("reset", fingerprint=fingerprint, breaker=breaker, all=everything, dry_run=dry_run)
    if as_json:
        print_json(said)
        return FINE
    if not said["cleared"] and not said["closed"]:
        click.echo("There is nothing to forget.")
    for line in _listed(said["cleared"], "would be forgotten" if dry_run else "forgotten"):
        click.echo(line)
    for circuit in said["closed"]:
        done = "would be closed, and its failures forgotten" if dry_run else "closed, and its failures forgotten"
        click.echo(f"circuit {circuit['name']} ({circuit['state']}): {done}")
    for unit in said["units"]:
        click.echo(_line(unit, said["fleet"]["at"], starting=said["daemon"]))
    return FINE


def _confirm(would: Sequence[Mapping[str, Any]]) -> None:
    for line in _listed(would, "would be forgotten"):
        click.echo(line, err=True)
    if not sys.stdin.isatty():
        raise FlyballError("nothing was forgotten: there is no terminal to ask on", remedy="Add --yes if you mean it.")
    if not click.confirm("Forget all this?", err=True):
        raise FlyballError("nothing was forgotten", remedy="One failure alone: `flyball reset FINGERPRINT`.")


def _listed(cleared: Sequence[Mapping[str, Any]], what: str) -> list[str]:
    lines = []
    for one in cleared:
        kinds = ", ".join(
            f"{short(kind['fingerprint'])} {one_line(kind['error']) or 'failure'} ({times(kind['count'])})"
            for kind in one["failures"]
        )
        lines.append(f"{one['unit']} ({one['state']}): {what}: {kinds or 'its failures in a row'}")
    return lines

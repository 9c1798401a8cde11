"""`flyball sessions` and `flyball session show`: pieces of work that can be paused and resumed."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

from flyball.cli import FAILED, FINE
from flyball.cli.ask import Asking
from flyball.cli.show import coloured, print_json, width
from flyball.control.sessions import WANTS_A_PERSON
from flyball.control.shapes import SessionWord
from flyball.control.text import ago, clock_time, length, one_line, table
from flyball.core.amounts import MONEY, amount_text
from flyball.core.layers import LAYERS

SHOWN_MAX: Final = 1_000
"""Sessions that are shown if nothing else is said: those that changed last. To look at each takes a millisecond."""
HEAD: Final = ("SESSION", "STATUS", "RESUMES", "STEPS", "ROUND", "SPENT", "CHECKPOINT", "SINCE", "WHY")

EXAMPLES: Final = """\
\b
Examples:
  flyball sessions                          all sessions
  flyball sessions --status paused          those that are paused
  flyball sessions --user ann --json        for a script
  flyball sessions --check                  exit 1 if one of them needs a person
  flyball session show research-42          one, with its checkpoints
"""


SHOW_EXAMPLES: Final = """\
\b
Examples:
  flyball session show research-42                   how far it is, its checkpoints
  flyball session show research-42 --checkpoint 3    also what is in that one
"""


@click.command(epilog=EXAMPLES)
@click.option("--user", metavar="USER", help="Only sessions of this user.")
@click.option("--status", type=click.Choice([str(word) for word in SessionWord]), help="Only those that are this.")
@click.option("--check", is_flag=True, help="Exit 1 if one of them failed, ran out of time or money, or is held.")
@click.option("--all", "everything", is_flag=True, help=f"Also if there are more than {SHOWN_MAX}.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def sessions(user: str | None, status: str | None, check: bool, everything: bool, as_json: bool) -> int:
    """Show sessions, and threads of graphs: how far each is, and what ended or paused it. Needs no daemon."""
    # To find one of a kind, all have to be looked at.
    limit = None if everything or status or check else SHOWN_MAX
    with Asking() as ask:
        said = ask("sessions", user=user, status=status, limit=limit)
    if as_json:
        print_json(said)
    else:
        _print(said, some=bool(user or status))
    wants = any(one["held"] or one["status"] in WANTS_A_PERSON for one in said["sessions"])
    return FAILED if check and wants else FINE


def _print(said: Mapping[str, Any], *, some: bool) -> None:
    found, now = said["sessions"], said["at"]
    if not found:
        click.echo("No such session." if some else "There is no session yet.")
        return
    counts = ", ".join(f"{number} {word}" for word, number in said["counts"].items())
    fired = [f"layer {layer} ({LAYERS[int(layer)]}) {number}x" for layer, number in said["layers"].items() if number]
    sessions = f"{len(found)} session{'s' if len(found) != 1 else ''}"
    click.echo(f"{sessions}: {counts}" + (f"; ended by {', '.join(fired)}" if fired else ""))
    click.echo("")
    lines = table(HEAD, [_row(one, now) for one in found], width())
    click.echo(lines[0])
    for line, one in zip(lines[1:], found, strict=True):
        before, word, after = line.partition(f"  {one['status']}")
        click.echo(before + coloured(word, one["status"]) + after)
    for one in said["costly"]:
        spent, usual = amount_text(MONEY, one["spent"]), amount_text(MONEY, one["usual"])
        click.echo(f"{one['id']} spent {spent}, {one['spent'] / one['usual']:.0f} times the usual {usual}.")
    if said["left_out"]:
        click.echo(f"{said['left_out']} that did not change for longer are not shown: `flyball sessions --all`.")


def _row(one: Mapping[str, Any], now: float) -> Sequence[str]:
    last = one["checkpoints"][-1] if one["checkpoints"] else None
    since = one["started"] if one["ended"] is None else one["ended"]
    return (
        one["id"],
        one["status"],
        _of(one["resumes"], "used"),
        _of(one["steps"], "used"),
        _of(one["rounds"], "reached") if one["rounds"] and one["rounds"]["reached"] else "-",
        _money(one["budget"]),
        "-" if last is None else f"{last['id']} {last['stage']} ({ago(last['at'], now)})",
        ago(since, now),
        why(one, now),
    )


def _of(count: Mapping[str, Any] | None, what: str) -> str:
    return "-" if count is None else f"{count[what]} of {count['max']}"


def _money(budget: Mapping[str, Any] | None) -> str:
    return "-" if budget is None else f"{amount_text(MONEY, budget['spent'])} of {amount_text(MONEY, budget['limit'])}"


def why(one: Mapping[str, Any], now: float) -> str:
    """What paused or ended it, in a few words."""
    layer = f" (layer {one['layer']}: {LAYERS[one['layer']]})" if one["layer"] else ""
    reason = one["failure_reason"] or one["stop_reason"]
    pause = one["pause"]
    if pause is not None and one["status"] == SessionWord.PAUSED:
        if pause["resume_at"] is None:
            return "waits for a person"
        due = pause["resume_at"] <= now
        until = "may go on" if due else f"until {clock_time(pause['resume_at'], now)}"
        return f"{one_line(pause['reason'])}, {until}"
    return f"{one_line(reason)}{layer}" if reason else ""


@click.group(epilog=SHOW_EXAMPLES)
def session() -> None:
    """Show one session. `flyball resume`, `pause`, `stop` and `kill` take its id, as that of any unit."""


@session.command(epilog=SHOW_EXAMPLES)
@click.argument("id")
@click.option("--checkpoint", metavar="C", help="Also what is in this checkpoint, by its number.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(id: str, checkpoint: str | None, as_json: bool) -> int:  # noqa: A002 - so people call it
    """Show all that there is to see of the session ID: how far it is, its limits, its checkpoints."""
    with Asking() as ask:
        said = ask("session", unit=id, checkpoint=checkpoint)
    if as_json:
        print_json(said)
        return FINE
    for line in _lines(said):
        click.echo(line)
    return FINE


def _lines(said: Mapping[str, Any]) -> Iterable[str]:
    one, now = said["session"], said["at"]
    reason = why(one, now)
    yield f"{one['id']} ({one['kind']}) is {coloured(one['status'], one['status'])}" + (f": {reason}" if reason else "")
    for given in said["reasons"]:
        yield f"  {one_line(given['text'])}"
    yield ""
    for name, text in _facts(one, now):
        yield f"{name + ':':<12}{text}"
    if said["chosen"]:
        yield f"Next:       it goes on from checkpoint {said['chosen']}, which a person chose"
    yield from _checkpoints(one["checkpoints"], now)
    if said["checkpoint"] is not None:
        yield from _content(said["checkpoint"], now)
    remedies = dict.fromkeys(given["remedy"] for given in said["reasons"] if given["remedy"])
    if remedies:
        yield from ("", "What to do:", *(f"  {one_line(remedy)}" for remedy in remedies))


def _facts(one: Mapping[str, Any], now: float) -> Iterable[tuple[str, str]]:
    for name, key in (("User", "user"), ("Tree", "tree")):
        if one[key]:
            yield name, one_line(one[key])
    if one["started"] is not None:
        yield "Began", f"{clock_time(one['started'], now)}, {ago(one['started'], now)} ago"
    if one["ended"] is not None:
        yield "Last end", f"{clock_time(one['ended'], now)}, {ago(one['ended'], now)} ago"
    if one["resumes"] is not None:
        yield "Resumes", _of(one["resumes"], "used")
    if one["steps"] is not None:
        yield "Steps", _of(one["steps"], "used")
    rounds = one["rounds"]
    if rounds is not None and rounds["reached"]:
        gauges = "".join(f", {name} {rounds[name]:.2f}" for name in ("convergence", "agreement") if rounds[name])
        yield "Rounds", _of(rounds, "reached") + gauges
    if one["deadline"] is not None:
        yield "Time", f"{length(one['deadline']['lasted'])} of {length(one['deadline']['limit'])} in its last run"
    if one["budget"] is not None:
        reserved = one["budget"]["reserved"]
        held = f", {amount_text(MONEY, reserved)} reserved" if reserved else ""
        yield "Money", _money(one["budget"]) + held
    if one["pause"] is not None:
        yield "Paused", f"{one_line(one['pause']['reason'])}, {ago(one['pause']['since'], now)} ago"


def _checkpoints(kept: Sequence[Mapping[str, Any]], now: float) -> Iterable[str]:
    if not kept:
        yield from ("", "It has kept no checkpoint.")
        return
    rows = [
        (one["id"], one["stage"] or "-", f"{ago(one['at'], now)} ago", f"{one['bytes']} bytes")
        for one in reversed(kept)
    ]
    yield from ("", "Checkpoints, the newest first:")
    yield from (f"  {line}" for line in table(("ID", "STAGE", "KEPT", "SIZE"), rows))


def _content(checkpoint: Mapping[str, Any], now: float) -> Iterable[str]:
    after = f" after {one_line(checkpoint['stage'])}" if checkpoint["stage"] else ""
    yield from ("", f"Checkpoint {checkpoint['id']}{after}, kept {ago(checkpoint['at'], now)} ago:")
    content = checkpoint["content"]
    text = json.dumps(content, indent=2, ensure_ascii=False) if checkpoint["form"] == "json" else content
    yield from (f"  {one_line(line)}" for line in text.splitlines())

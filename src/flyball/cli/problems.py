"""`flyball problems`: what waits for a person, why, and the command to type. Here too: how a problem is told in lines,
for whoever else shows one."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

from flyball.cli import FINE
from flyball.cli.ask import Asking
from flyball.cli.show import colour_option, coloured, faint, fitted, print_json, strong, width
from flyball.cli.watching import Picture, every_option, watch, watch_option
from flyball.control.acknowledging import PROBLEMS_MAX
from flyball.control.text import clock_time, length, one_line, short

EXAMPLES: Final = """\
\b
Examples:
  flyball problems              what needs you, the worst first
  flyball problems --watch      until Ctrl-C
  flyball problems --json       for a script
"""


@click.command(epilog=EXAMPLES)
@click.option("-n", "--lines", default=100, type=click.IntRange(0, PROBLEMS_MAX), help="How many; 100 if not given.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --watch one object a line, for each change.")
@watch_option
@every_option
@colour_option
def problems(lines: int, as_json: bool, watch: bool, every: float | None) -> int:
    """Show what waits for a person: the worst and oldest first, each with the command to type. What somebody has seen
    (`flyball ack`, `flyball snooze`) comes last. Needs no daemon.
    """
    with Asking() as ask:
        if watch or every is not None:
            _watch(ask, lines, every, as_json=as_json)
        said = ask("problems", limit=lines)
    if as_json:
        print_json(said)
        return FINE
    for line in _lines(said):
        click.echo(line)
    return FINE


def _watch(ask: Asking, limit: int, every: float | None, *, as_json: bool) -> None:
    def look() -> Picture:
        said = ask("problems", limit=limit)
        return Picture(list(_lines(said)), said, gist_of(said["problems"]))

    watch(ask, look, every, as_json=as_json)


def _lines(said: Mapping[str, Any]) -> Iterable[str]:
    found, now, wide = said["problems"], said["at"], width()
    new, seen = split(found)
    yield strong(f"Needs you ({len(new)}):") if new else "Nothing needs you."
    for problem in new:
        yield from lines_of(problem, now, wide, with_id=True)
    if seen:
        yield from ("", strong(f"Somebody has seen ({len(seen)}):"))
    for problem in seen:
        yield from lines_of(problem, now, wide, with_id=True)
    if said["left_out"]:
        yield f"And {said['left_out']} more: `flyball problems -n {min(PROBLEMS_MAX, len(found) + said['left_out'])}`."


def split(found: Iterable[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Those that nobody has seen, and those that somebody has."""
    new: list[Mapping[str, Any]] = []
    seen: list[Mapping[str, Any]] = []
    for problem in found:
        (seen if problem["acknowledged"] or problem["snoozed_until"] is not None else new).append(problem)
    return new, seen


def gist_of(found: Iterable[Mapping[str, Any]]) -> object:
    """What of it makes a change."""
    return [(one["id"], one["count"], one["acknowledged"], one["snoozed_until"]) for one in found]


def lines_of(
    problem: Mapping[str, Any], now: float, wide: int | None, *, with_id: bool = False, indent: str = "  "
) -> Iterable[str]:
    """What it is and since when, why, and what to type."""
    since = f", {length(now - problem['since'])}" if problem["since"] is not None else ""
    title = one_line(problem["title"])
    head = fitted(f"{indent}{title}{since}{_seen(problem, now)}", wide)
    before, found, after = head.partition(title)
    yield before + coloured(found, problem["severity"], bold=True) + faint(after) if found else head
    yield fitted(f"{indent}  {one_line(problem['text'])}", wide)
    # A command is never cut off: half of one is worse than a long line.
    todo = what_to_type(problem["actions"])
    yield f"{indent}  $ {strong(todo)}" if todo else fitted(f"{indent}  {one_line(problem['remedy'])}", wide)
    if with_id:
        yield faint(f"{indent}  {one_line(problem['id'])}")


def _seen(problem: Mapping[str, Any], now: float) -> str:
    if problem["snoozed_until"] is not None:
        return f" (snoozed by {one_line(problem['by'])} until {clock_time(problem['snoozed_until'], now)})"
    return f" (seen by {one_line(problem['by'])})" if problem["acknowledged"] else ""


def what_to_type(actions: Sequence[Mapping[str, Any]]) -> str:
    """The command of the one safe thing to do; of a question the first answer, and which others there are."""
    if not actions:
        return ""
    first = command_of(actions[0])
    if actions[0]["verb"] != "answer":
        return first
    others = ", ".join(one_line(action["label"]) for action in actions[1:])
    return f"{first}   # or: {others}" if others else first


def command_of(action: Mapping[str, Any]) -> str:
    """An action as it is typed on the command line."""
    verb, args = action["verb"], action["args"]
    match verb:
        case "reset" if args.get("fingerprint"):
            words = [short(args["fingerprint"])]
        case "reset":
            words = ["--breaker", args["breaker"]]
        case "raise":
            whose = ["--user", args["user"]] if args.get("user") else ["--fleet"] if args.get("fleet") else []
            words = [*([args["unit"]] if args.get("unit") else whose), args["more"]]
            words += ["--resume"] if args.get("resume") else []
        case "answer":
            words = [args["unit"], "--id", args["id"], args["answer"]]
        case _:
            words = list(args.get("units", ()))
    return one_line(shlex.join(["flyball", verb, *words]))

"""`flyball audit`: who asked for what, through which channel, and what came of it. It only reads."""

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from flyball.cli import FINE
from flyball.cli.ask import Asking
from flyball.cli.show import colour_option, coloured, faint, strong
from flyball.control.audit import LINES_MAX
from flyball.control.commands import COMMANDS
from flyball.control.context import Right
from flyball.control.text import clock_time, one_line

FOLLOW_SECONDS: Final = 0.2
"""Between two looks for something new, as `flyball events` does."""
VERBS: Final = sorted(name for name, command in COMMANDS.items() if command.right is not Right.LOOK)

EXAMPLES: Final = """\
\b
Examples:
  flyball audit                        the last 50 lines
  flyball audit --who ann -n 5         the last 5 of one person
  flyball audit --verb raise --json    for a script, one JSON object a line
  flyball audit --follow               and whatever comes, until Ctrl-C
"""


@click.command(epilog=EXAMPLES)
@click.option("-n", "--lines", default=50, type=click.IntRange(0, LINES_MAX), help="The newest; 50 if not given.")
@click.option("--who", metavar="NAME", help="Only of this person, or token.")
@click.option("--verb", metavar="VERB", shell_complete=lambda _c, _p, begun: _verbs(begun), help="Only this verb.")
@click.option("-f", "--follow", "--watch", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@colour_option
def audit(lines: int, who: str | None, verb: str | None, follow: bool, as_json: bool) -> int:
    """Show who asked for what, through which channel, and what came of it; also what was refused. Needs no daemon. No
    command changes or removes a line.
    """
    if verb is not None and verb not in VERBS:
        raise click.BadParameter(f"{verb!r} is no verb that leaves a line; there are {', '.join(VERBS)}")
    with Asking() as ask:
        said = ask("audit", limit=lines, who=who, verb=verb)
        _print(said["audit"], as_json=as_json)
        while follow:
            time.sleep(FOLLOW_SECONDS)
            ask.renew()
            said = ask("audit", limit=LINES_MAX, after=said["last"], who=who, verb=verb)
            _print(said["audit"], as_json=as_json)
    return FINE


def _verbs(begun: str) -> list[str]:
    return [name for name in VERBS if name.startswith(begun)]


def _print(found: Iterable[Mapping[str, Any]], *, as_json: bool) -> None:
    now = time.time()
    for line in found:
        click.echo(json.dumps(line) if as_json else _line(line, now))


def _line(line: Mapping[str, Any], now: float) -> str:
    """`12:01:07  ann via page  reset fingerprint=7f3a: forgot 1 kind of failure of 2 units`."""
    who = f"{line['by'] or 'a person'} via {line['channel']}" if line["channel"] else line["by"] or "a person"
    asked = f" {one_line(line['asked'])}" if line["asked"] else ""
    refused = coloured(f" refused ({one_line(line['refused'])})", "failed") if line["refused"] else ""
    effect = f": {one_line(line['effect'])}" if line["effect"] else ""
    verb = strong(one_line(line["verb"]))
    return f"{faint(clock_time(line['at'], now))}  {one_line(who)}  {verb}{asked}{refused}{effect}"

"""`flyball doctor`: what is right and wrong here, and what to do."""

import dataclasses
import os
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import click

from flyball.cli import FAILED, FINE
from flyball.cli.show import colour_option, coloured, faint, print_json
from flyball.control.text import counted, one_line

COLOURS: Final = {"ok": "healthy", "warning": "warning", "bad": "failed"}
"""Each in the colour of that word."""

EXAMPLES: Final = """\
\b
Examples:
  flyball doctor                     look at everything
  flyball doctor --no-send           without test messages to people
  flyball doctor --only store,disk   only these
  flyball doctor --strict            warnings are failures, too: for scripts
  flyball doctor --json              for a script
"""


def _names(_: click.Context, __: click.Parameter, given: Sequence[str]) -> list[str]:
    from flyball.doctor import CHECKS  # noqa: PLC0415 - only when it is run

    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    for name in names:
        if name not in CHECKS:
            near = get_close_matches(name, CHECKS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(CHECKS)}."
            raise click.BadParameter(f"no check {name!r}; {hint}")
    return [name for name in CHECKS if name in names]


@click.command(epilog=EXAMPLES)
@click.option("--only", multiple=True, callback=_names, metavar="CHECK,…", help="Only these checks.")
@click.option(
    "--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings; not given: as they are found."
)
@click.option("--send/--no-send", default=True, help="Send a test message by each channel of alerts; or do not.")
@click.option("--strict", is_flag=True, help="Exit 1 for warnings, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@colour_option
def doctor(only: list[str], config: Path | None, send: bool, strict: bool, as_json: bool) -> int:
    """Look at everything that flyball needs, and say what is wrong and what to do: Python, settings, variables, units,
    extras, the state folder and its socket, the daemon, the disk, the store, the clock, secrets, addresses, alerts, the
    browser, the kernel, limits, systemd.

    Changes nothing. The channels of alerts are tried by a test message, unless there is --no-send. Exits 0 if nothing
    is bad, 1 if something is.
    """
    from flyball.doctor import Level, Scene, examine  # noqa: PLC0415 - as above

    found = []
    for finding in examine(Scene(os.environ, config=config, send=send), only):
        found.append(finding)
        if not as_json:
            word = coloured(f"{finding.level.word:<7}", COLOURS[finding.level.word])
            click.echo(f"{word}  {finding.check:<9}  {one_line(finding.text)}")
            if finding.remedy:
                click.echo(faint(f"{'':<20}{one_line(finding.remedy)}"))
    worst = max((finding.level for finding in found), default=Level.OK)
    fine = worst < (Level.WARNING if strict else Level.BAD)
    counts = {level.word: sum(finding.level is level for finding in found) for level in Level}
    if as_json:
        rows = [{**dataclasses.asdict(finding), "level": finding.level.word} for finding in found]
        print_json({"ok": fine, "counts": counts, "findings": rows})
    else:
        click.echo(f"\n{counts['ok']} ok, {counted(counts['warning'], 'warning')}, {counts['bad']} bad")
    return FINE if fine else FAILED

"""`flyball check`: is this settings file good? All that is wrong with it at once, and what can hardly be meant."""

import json
from pathlib import Path
from typing import Final

import click

from flyball.cli import BAD, FINE
from flyball.config import DEFAULT, load
from flyball.errors import SettingsError

EXAMPLES: Final = """\
\b
Examples:
  flyball check            the settings that are found
  flyball check my.yaml    another file
  flyball check --json     for a script
"""


@click.command(epilog=EXAMPLES)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(file: Path | None, as_json: bool) -> int:
    """Say what is wrong with FILE, or with the settings that are found.

    Exits 0 if they are good, 2 if they are not. Problems are printed as FILE:LINE:COLUMN: what is wrong; rules that
    fire each other for ever are drawn. Warnings do not make a file bad: they tell of thresholds that can never be
    reached, and of rules that may fire each other.
    """
    try:
        settings = load(file)
    except SettingsError as error:
        if as_json:
            click.echo(json.dumps({"ok": False, "problems": error.problems, "warnings": []}, indent=2))
        else:
            for problem in error.problems:
                click.echo(problem, err=True)
        return BAD
    warnings = settings.warnings()
    if as_json:
        click.echo(json.dumps({"ok": True, "problems": [], "warnings": warnings}, indent=2))
        return FINE
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    values = list(settings.effective())
    given = sum(value.origin != DEFAULT for value in values)
    click.echo(f"{settings.source or 'no settings file'}: fine ({given} given, {len(values) - given} by default)")
    return FINE

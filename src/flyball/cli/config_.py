"""`flyball config`: every effective setting, and where it came from."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import click

from flyball.config import Effective, load

VALUES_MAX: Final = 60
"""Columns that are kept free for values. What is longer, such as the actions of a rule, has its origin further right;
the origins of the others stay in sight."""


EXAMPLES: Final = """\
\b
Examples:
  flyball config                   every value in force
  flyball config --origin          and where it came from
  flyball config my.yaml --json    of another file, for a script
"""


@click.command(epilog=EXAMPLES)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--origin", is_flag=True, help="Say where each value came from.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def config(file: Path | None, origin: bool, as_json: bool) -> None:
    """Show every effective setting of FILE, or of the settings that are found.

    The origin of a value is `default`, FILE:LINE:COLUMN, or the name of an environment variable.
    """
    values = list(load(file).effective())
    if as_json:
        click.echo(json.dumps(_as_json(values, origin=origin), indent=2))
    else:
        _print(values, origin=origin)


def _as_json(values: Iterable[Effective], *, origin: bool) -> dict[str, object]:
    if origin:
        return {value.key: {"value": value.value, "origin": value.origin} for value in values}
    return {value.key: value.value for value in values}


def _print(values: Sequence[Effective], *, origin: bool) -> None:
    """One line each, so that it can be searched."""
    keys_width = max(len(value.key) for value in values)
    values_width = min(max(len(_shown(value)) for value in values), VALUES_MAX)
    for value in values:
        line = f"{value.key:<{keys_width}}  {_shown(value):<{values_width}}"
        click.echo(f"{line}  {value.origin}" if origin else line.rstrip())


def _shown(value: Effective) -> str:
    return value.value if isinstance(value.value, str) else json.dumps(value.value)

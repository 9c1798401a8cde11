"""`flyball init`: finds what is there, and writes a first settings file."""

import dataclasses
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from flyball.cli.show import print_json
from flyball.control.text import counted
from flyball.errors import FlyballError

if TYPE_CHECKING:
    from flyball.starting import Found

FILE: Final = "flyball.yaml"
PRINT: Final = "-"

EXAMPLES: Final = """\
\b
Examples:
  flyball init             write flyball.yaml, with what was found as comments
  flyball init --dry-run   only print it; so does `flyball init -`
  flyball init --json      what was found, for a script
  flyball init --force     replace the one that is there; it is kept as a backup
"""


@click.command(epilog=EXAMPLES)
@click.argument("file", required=False, default=FILE, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--dry-run", is_flag=True, help="Print what would be written, and write nothing.")
@click.option("--force", is_flag=True, help="Write it though there are settings already; a file is kept as a backup.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def init(file: Path, dry_run: bool, force: bool, as_json: bool) -> None:
    """Find what flyball could look after, and write it as comments into FILE (flyball.yaml): command lines of agents on
    PATH; services of Docker Compose, a Procfile, supervisord, pm2, your systemd; scripts of package.json and
    pyproject.toml. Nothing that is found is run. Beside it goes flyball.schema.json, by which editors know all keys.
    """
    from flyball.starting import ON_PATH, survey, text_of, write  # noqa: PLC0415 - only when it is run

    found = survey(Path(), os.environ)
    text = text_of(found, topic=f"flyball-{secrets.token_hex(8)}")
    if dry_run or str(file) == PRINT:
        if as_json:
            _print_json(found, {"file": "", "backup": "", "schema": ""})
        else:
            click.echo(text, nl=False)
        return
    others = [name for name in found.settings if Path(name) != file]
    if others and file.name == FILE and not force:
        remedy = (
            "Go on with that file: `flyball check` says whether it is good. `--force` writes another one all the same."
        )
        raise FlyballError(f"{others[0]} has settings that flyball reads; {file} would hide them", remedy=remedy)
    written = write(file, text, force=force)
    if as_json:
        _print_json(found, dataclasses.asdict(written))
        return
    for offer in found.offers:
        click.echo(f"found {offer.name}: {offer.source}")
    for note in found.notes:
        click.echo(note)
    kept = f"; what was there is {written.backup}" if written.backup else ""
    what = f"{counted(len(found.offers), 'unit')} to choose from" if found.offers else "an example"
    click.echo(f"wrote {written.file} with {what}, as comments{kept}")
    if not written.schema:
        click.echo("flyball.schema.json is a file of something else, and was left alone: `flyball schema` prints ours")
    first = next((offer.command[0] for offer in found.offers if offer.source == ON_PATH), "my-agent")
    click.echo(
        f"Next: take away the # before what you want in {written.file}, then `flyball check` and `flyball up -d`."
    )
    click.echo(
        f"Or guard one command now, without settings: `flyball run -- {first} …`; `flyball doctor` looks at the rest."
    )


def _print_json(found: "Found", written: dict[str, str]) -> None:
    print_json({**dataclasses.asdict(found), "written": written})

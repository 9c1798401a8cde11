"""`flyball page`: a link that opens the page of the daemon, and logs in once."""

import json
import os
import webbrowser
from pathlib import Path
from typing import Final

import click

from flyball import app
from flyball.cli import FAILED, FINE
from flyball.cli.show import print_json
from flyball.control.web import ADDRESS
from flyball.errors import FlyballError

EXAMPLES: Final = """\
\b
Examples:
  flyball page                  print a link; it works once, within 5 minutes
  flyball page --open           open it in the browser
  flyball page --token phone    log in as the token `phone`, with its role
"""


@click.command(epilog=EXAMPLES)
@click.option("--open", "opens", is_flag=True, help="Open it in the browser, too.")
@click.option("--token", metavar="NAME", help="Log in as this token; not given: the first one of an admin.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def page(opens: bool, token: str | None, as_json: bool) -> int:
    """Print a link that opens the page of the daemon. Whoever opens it is logged in: it is for you alone.

    Exits 0, or 1 if the browser could not be opened; 2 if no daemon runs here, or it has no page.
    """
    from flyball.control.client import connect  # noqa: PLC0415 - `up` wants the address only

    client = connect(app.state_dir(os.environ))
    if client is None:
        raise FlyballError("no daemon runs here", remedy="Start one: `flyball up -d`.")
    with client:
        said = client.ask("login_link", {"token": token})
    if as_json:
        print_json({name: said[name] for name in ("link", "address", "token")})
    else:
        click.echo(said["link"])
    if opens and not webbrowser.open(said["link"]):
        click.echo("no browser could be opened; open the link yourself", err=True)
        return FAILED
    return FINE


def address_in_force(folder: Path) -> str:
    """Where the page of the daemon of that state folder is; nothing if there is none."""
    try:
        return str(json.loads((folder / ADDRESS).read_bytes())["address"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""

"""`flyball token`: who may come in over HTTP, and what they may do.

A change goes through the daemon, if one runs, or straight to the file; either way it is on the audit trail.
"""

import os
import time
from collections.abc import Callable
from typing import Any, Final

import click

from flyball import app
from flyball.cli import FINE
from flyball.cli.show import print_json, width
from flyball.control.text import ago, table
from flyball.control.web.tokens import ROLES, Tokens, unknown
from flyball.errors import FlyballError

EXAMPLES: Final = """\
\b
Examples:
  flyball token                        names and roles
  flyball token show admin             the token itself: a secret
  flyball token add phone              one that may only look
  flyball token add ci --role operate  one that may pause, resume, start, stop
  flyball token remove phone           whoever came in by it is out
"""


def _names(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """Names that a shell completes."""
    try:
        return [token.name for token in _tokens().all() if token.name.startswith(begun)]
    except FlyballError:
        return []


def _tokens() -> Tokens:
    return Tokens(app.state_dir(os.environ))


@click.group(invoke_without_command=True, epilog=EXAMPLES)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def token(context: click.Context, as_json: bool) -> int:
    """Show, make and remove tokens for the page and its API. Needs no daemon; a daemon heeds a change at once.

    Roles: look sees everything; operate may also give orders; admin may also raise budgets, reload and end the daemon.
    """
    if context.invoked_subcommand is None:
        _list(as_json)
    return FINE


def _list(as_json: bool) -> None:
    found = [one.shown() for one in _tokens().all()]
    if as_json:
        print_json({"tokens": found})
    elif not found:
        click.echo("There is no token yet: `flyball up` makes the first one, `flyball token add NAME` more.")
    else:
        now = time.time()
        rows = [(one["name"], one["role"], f"{ago(one['made'], now)} ago") for one in found]
        for line in table(("NAME", "ROLE", "MADE"), rows, width()):
            click.echo(line)


@token.command()
@click.argument("name", shell_complete=_names)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(name: str, as_json: bool) -> int:
    """Print the token NAME: a secret that lets in whoever has it."""
    tokens = _tokens()
    found = tokens.named(name)
    if found is None:
        raise unknown(name, tokens.all())
    if as_json:
        print_json({**found.shown(), "token": found.token})
    else:
        click.echo(found.token)
    return FINE


@token.command()
@click.argument("name")
@click.option("--role", type=click.Choice(list(ROLES)), default="look", help="What it may do; look if not given.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def add(name: str, role: str, as_json: bool) -> int:
    """Make a token NAME, and print it."""

    def here(tokens: Tokens) -> dict[str, Any]:
        made = tokens.add(name, role)
        return {**made.shown(), "token": made.token, "effect": f"{made.name} may {made.role}"}

    said = _changed("token_add", {"name": name, "role": role}, here)
    if as_json:
        print_json({key: said[key] for key in ("name", "role", "made", "token")})
    else:
        click.echo(said["token"])
    return FINE


@token.command()
@click.argument("name", shell_complete=_names)
def remove(name: str) -> int:
    """Remove the token NAME: whoever came in by it is out."""

    def here(tokens: Tokens) -> dict[str, Any]:
        return {"effect": f"{tokens.remove(name).name} is out"}

    said = _changed("token_remove", {"name": name}, here)
    click.echo(said["effect"])
    return FINE


def _changed(verb: str, args: dict[str, Any], here: Callable[[Tokens], dict[str, Any]]) -> dict[str, Any]:
    """What came of a change: made by the daemon, or here if there is none."""
    from flyball.cli.ask import Asking  # noqa: PLC0415 - to look at tokens takes no settings

    with Asking() as ask:
        if ask.by_daemon:
            done: dict[str, Any] = ask(verb, **args)
            return done
        said = here(_tokens())
        if not ask.fresh:
            ask.record(verb, args, said)
    return said

"""`flyball run`: guard one command in the foreground, with no configuration. Parsing here, the rest in run_unit.

It is run by a guardian, so that nothing goes on when it is killed. For that the command line is passed on once more,
without the values of --env: those go through the environment, which nobody else can read. Until then as little as
possible is imported: whatever it costs is paid twice.
"""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from flyball.core.name import IN_WORDS, is_name, name_from
from flyball.core.time import DAY, Span, parse_span
from flyball.runtimes import guardian

CANNOT_EXECUTE: Final = 126
NOT_FOUND: Final = 127

DAYS_MAX: Final = 3_650
"""Ten years: longer than that nothing is waited for."""

VARIABLES: Final = "FLYBALL_RUN_VARIABLES"
"""The values of --env, from the guardian to whom it guards."""

EXAMPLES: Final = """\
\b
Examples:
  flyball run -- my-agent --task "fix the tests"
  flyball run --deadline 2h --idle 10m -- my-agent     end it when it takes too long or falls silent
  flyball run --continue-args --continue -- my-agent   after a failure, go on with the conversation
  flyball run --budget 2.00 -- ./agent.py              what it says by `flyball report` that it spends
  flyball run --restart always --name web -- ./serve   a service
  flyball run --restart never -- make                  not restarted; its own exit code

\b
Exit codes: 0 done; the command's own, if it ended by itself and is not restarted; 2 bad usage or settings;
69 its budget is used up; 75 it is held, or runs already; 124 ended by its deadline; 126 it cannot be
executed; 127 there is no such command; 128 + N ended by signal N, so 130 by Ctrl-C.
"""


def _span(_: click.Context, parameter: click.Parameter, given: str | None) -> Span:
    """A length of time; 0 if none was given. A grace may be 0; a limit of 0 would let nothing run."""
    if given is None:
        return 0
    try:
        length = parse_span(given)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if length > DAYS_MAX * DAY or (not length and parameter.name != "grace"):
        raise click.BadParameter(f"{given!r} is not above 0 and up to {DAYS_MAX} days")
    return length


def _words(_: click.Context, __: click.Parameter, given: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(given))
    except ValueError as error:
        raise click.BadParameter(f"{given!r}: {error}") from None


def _name(_: click.Context, __: click.Parameter, given: str | None) -> str | None:
    if given is not None and not is_name(given):
        raise click.BadParameter(f"{given!r} is no name: {IN_WORDS}")
    return given


def _labels(_: click.Context, __: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    for pair in given:
        if "=" not in pair or not is_name(pair.partition("=")[0]):
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE")
    return dict(pair.split("=", 1) for pair in given)


def _variables(_: click.Context, __: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    """The value of one that is only named is the one that flyball itself has. No value appears in an error."""
    passed: dict[str, str] = json.loads(os.environ.get(VARIABLES, "{}"))
    variables: dict[str, str] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not name:
            raise click.BadParameter("one of them has no name; write NAME=VALUE, or NAME for one that is set already")
        if not equals and name not in passed and name not in os.environ:
            raise click.BadParameter(f"{name} is not set here; write {name}=VALUE")
        variables[name] = value if equals else passed.get(name, os.environ.get(name, ""))
    return variables


class _Run(click.Command):
    """Remembers the words that it was given."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        context.meta["given"] = tuple(args)
        return super().parse_args(context, args)


@click.command(cls=_Run, epilog=EXAMPLES, context_settings={"allow_interspersed_args": False})
@click.argument("command", metavar="-- COMMAND...", nargs=-1, type=click.UNPROCESSED)
@click.option("--name", callback=_name, help="What its history is kept under; not given: the command's own name.")
@click.option("--deadline", callback=_span, metavar="TIME", help="How long one run may last: 90s, 10m, 2h.")
@click.option("--idle", callback=_span, metavar="TIME", help="How long it may give no sign of life.")
@click.option("--budget", metavar="USD", help="What it may spend, over all its restarts.")
@click.option(
    "--restart",
    type=click.Choice(["on-failure", "always", "never"]),
    default="on-failure",
    help="After which exits it is started again; not given: on-failure.",
)
@click.option("--continue-args", callback=_words, default="", metavar="ARGS", help="Added to it after a failure.")
@click.option("--grace", callback=_span, default="10s", metavar="TIME", help="Between SIGTERM and SIGKILL; 10s.")
@click.option("--tty/--no-tty", default=None, help="Give it a terminal of its own; not given: if there is one here.")
@click.option("--cwd", type=click.Path(path_type=Path), metavar="FOLDER", help="Where it runs.")
@click.option("--env", callback=_variables, multiple=True, metavar="NAME=VALUE", help="A variable for it.")
@click.option("--label", callback=_labels, multiple=True, metavar="KEY=VALUE", help="A label: provider, user, tree, …")
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings; not given: as found.")
@click.option("--json", "as_json", is_flag=True, help="Print each decision as a line of JSON on stderr.")
@click.pass_context
def run(context: click.Context, /, *, command: tuple[str, ...], **given: Any) -> int:
    """Guard COMMAND: restart it after a failure, more and more slowly, and hold it when it fails too often.

    Each decision is one line on stderr. What happened is remembered under its name: as long as it is held, it is not
    started, and the line says how to lift that.
    """
    if not command or not command[0]:
        raise click.UsageError("nothing to run; write `flyball run [OPTIONS] -- COMMAND`", context)
    there = os.isatty(0) and os.isatty(1)
    if given["tty"] and not there:
        raise click.UsageError("--tty needs a terminal, for reading and for writing", context)
    given["tty"] = there if given["tty"] is None else given["tty"]
    if not guardian.is_guarded(os.environ):
        code = _cannot_run(command[0], given["cwd"], given["env"])
        if code:
            return code
        os.environ[VARIABLES] = json.dumps(given["env"])
        words = _without_values(context.meta["given"], command)
        guardian.guarded([sys.executable, "-P", "-m", "flyball", "run", *words])
    from flyball.cli.run_unit import run_unit  # noqa: PLC0415 - it imports everything

    os.environ.pop(VARIABLES, None)
    given["name"] = given["name"] or name_from(Path(command[0]).name, "command")
    return run_unit(command, given)


def _cannot_run(command: str, cwd: Path | None, env: Mapping[str, str]) -> int:
    """The exit code if there is no such command, or it cannot be executed. Nothing is counted then: it is a slip of
    whoever typed it, not a failure of the unit."""
    if cwd is not None and not cwd.is_dir():
        raise click.BadParameter(f"{cwd} is no folder", param_hint="--cwd")
    if "/" not in command:
        found = shutil.which(command, path=env.get("PATH", os.environ.get("PATH", os.defpath)))
        place = Path(found) if found else None
    else:
        place = (cwd or Path()) / command
    if place is None or not place.exists():
        where = "" if "/" in command else " in PATH"
        click.echo(f"error: there is no {command}{where}; check its spelling, or give its full path", err=True)
        return NOT_FOUND
    if place.is_dir() or not os.access(place, os.X_OK):
        click.echo(f"error: {command} cannot be executed; check what it is, and its mode (`chmod +x`)", err=True)
        return CANNOT_EXECUTE
    return 0


def _without_values(given: Sequence[str], command: Sequence[str]) -> list[str]:
    """The words that were given, with variables named only: their values are not for everybody who lists processes."""
    options = list(given[: len(given) - len(command)])
    for place, word in enumerate(options):
        if place and options[place - 1] == "--env":
            options[place] = word.partition("=")[0]
        elif word.startswith("--env="):
            options[place] = "--env=" + word.removeprefix("--env=").partition("=")[0]
    return [*options, *command]

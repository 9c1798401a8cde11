"""The group of commands, as click sees it: finds a command by its name and imports it then."""

import importlib
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Final

import click

from flyball.cli import COMMANDS, CUT_OFF, FINE, HELP, INTERRUPTED

SUGGESTIONS_MAX: Final = 3
"""Names offered for one that is not known."""


class LazyGroup(click.Group):
    """Knows its commands by name, and imports one when it is run."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = arguments[0]
        if name not in COMMANDS:
            near = get_close_matches(name, COMMANDS, n=SUGGESTIONS_MAX)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(COMMANDS)}."
            raise click.UsageError(f"no command {name!r}; {hint}", context)
        return super().resolve_command(context, arguments)

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except BrokenPipeError:
            return CUT_OFF  # before click sees it, and takes it for a failure

    def get_help(self, context: click.Context) -> str:
        return HELP.rstrip("\n")


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="flyball-governor", prog_name="flyball", message="%(prog)s %(version)s")
def flyball() -> None:
    """Keeps agents and automations from running away."""


def run(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name; its exit code. A command returns its code, or nothing for 0."""
    try:
        code = flyball.main(args=list(arguments), prog_name="flyball", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    return code if isinstance(code, int) else FINE

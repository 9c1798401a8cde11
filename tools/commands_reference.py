"""Brings docs/reference/commands.md up to date: under the heading of each command stands how it is called and what each
option does, made from the command itself. The prose beside it is written by hand, and is left as it is.

    python tools/commands_reference.py

`make docs` runs it; a test sees when the page is stale. A new command needs a heading with its name: the block is made.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from flyball.cli import COMMANDS
from flyball.cli.group import flyball

PAGE: Final = Path(__file__).parent.parent / "docs" / "reference" / "commands.md"
BEGIN: Final = "<!-- made by `make docs` -->"
END: Final = "<!-- end of what is made -->"
BLOCK: Final = re.compile(rf"\n{BEGIN}\n.*?\n{END}\n", re.DOTALL)


def page() -> str:
    """The whole page, with every block as it should be."""
    first, *sections = re.split(r"(?m)^## ", BLOCK.sub("", PAGE.read_text(encoding="utf-8")))
    return "## ".join([first, *(_with_block(section) for section in sections)])


def _with_block(section: str) -> str:
    title, _, prose = section.partition("\n")
    if title not in COMMANDS:
        return section
    made = "\n\n".join(_calls(flyball, title, click.Context(flyball, info_name="flyball")))
    return f"{title}\n\n{BEGIN}\n{made}\n{END}\n{prose}"


def _calls(group: click.Group, name: str, parent: click.Context) -> Iterator[str]:
    """How a command of a group is called, and its options; of one that is a group those of its commands, too."""
    command = group.get_command(parent, name)
    if command is None:
        return
    context = click.Context(command, info_name=name, parent=parent)
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield _call(command, context)
    if isinstance(command, click.Group):
        for part in command.list_commands(context):
            yield from _calls(command, part, context)


def _call(command: click.Command, context: click.Context) -> str:
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    pieces = [
        piece
        for piece in command.collect_usage_pieces(context)
        if "ARGS" not in piece and (options or "OPTIONS" not in piece)  # a group's commands have calls of their own
    ]
    usage = f"```text\n{' '.join([context.command_path, *pieces])}\n```"
    rows = [f"| {_code(_names(option))} | {_cell(option.help or '')} |" for option in options]
    return "\n".join([usage, "", "| option | |", "|---|---|", *rows] if rows else [usage])


def _names(option: click.Option) -> str:
    """How it is written: its names, and what is given with it."""
    names = " / ".join(", ".join(some) for some in (option.opts, option.secondary_opts) if some)
    if option.is_flag or option.count:
        return names
    if option.metavar:
        return f"{names} {option.metavar}"
    if isinstance(option.type, click.Choice):
        return f"{names} {'|'.join(option.type.choices)}"
    return f"{names} {'N' if isinstance(option.type, click.types.IntParamType) else str(option.name).upper()}"


def _code(text: str) -> str:
    """As code. A pipe would end the cell; what hides it there is itself seen by some readers inside of backticks."""
    return f"<code>{_cell(text).replace(chr(92) + '|', '&#124;')}</code>" if "|" in text else f"`{_cell(text)}`"


def _cell(text: str) -> str:
    """What is written as a name in angle brackets would be taken for a tag."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.name} is up to date\n")

"""`flyball completion`: the script that makes a shell complete commands, options, and names of units and rules."""

from typing import Final

import click
from click.shell_completion import get_completion_class

from flyball.cli.group import flyball

EXAMPLES: Final = """\
\b
Examples:
  eval "$(flyball completion bash)"     in ~/.bashrc
  eval "$(flyball completion zsh)"      in ~/.zshrc
  flyball completion fish | source      in ~/.config/fish/config.fish
"""


@click.command(epilog=EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL."""
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click knows all shells of the choice above
    click.echo(kind(flyball, {}, "flyball", "_FLYBALL_COMPLETE").source())

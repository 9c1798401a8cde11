"""`flyball completion`: the script that makes a shell complete commands, options, and names of units and rules."""

import click
from click.shell_completion import get_completion_class

from flyball.cli.group import flyball


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash:  flyball completion bash > ~/.local/share/bash-completion/completions/flyball
    zsh:   flyball completion zsh > "${fpath[1]}/_flyball"
    fish:  flyball completion fish > ~/.config/fish/completions/flyball.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click knows all shells of the choice above
    click.echo(kind(flyball, {}, "flyball", "_FLYBALL_COMPLETE").source())

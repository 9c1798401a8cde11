"""`flyball schema`: the JSON Schema of the settings."""

import json

import click

from flyball.config import json_schema


@click.command()
def schema() -> None:
    """Print the JSON Schema of the settings, for editors.

    \b
    flyball schema > flyball.schema.json
    # and as the first line of flyball.yaml:
    # yaml-language-server: $schema=flyball.schema.json
    """
    click.echo(json.dumps(json_schema(), indent=2))

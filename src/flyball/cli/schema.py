"""`flyball schema`: the JSON Schema of the settings."""

import json
from typing import Final

import click

from flyball.config import json_schema

EXAMPLES: Final = """\
\b
Examples:
  flyball schema > flyball.schema.json    beside flyball.yaml, whose first line is then
                                          # yaml-language-server: $schema=flyball.schema.json
"""


@click.command(epilog=EXAMPLES)
def schema() -> None:
    """Print the JSON Schema of the settings, for editors."""
    click.echo(json.dumps(json_schema(), indent=2))

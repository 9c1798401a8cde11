"""`flyball answer`: the answer to what a unit asks a person. It is in the journal, with who gave it."""

from typing import Final

import click

from flyball.cli import FINE
from flyball.cli.ask import Asking
from flyball.cli.show import print_json
from flyball.control.text import one_line

EXAMPLES: Final = """\
\b
Examples:
  flyball answer deployer yes
  flyball answer deployer --id 3fa9 no, wait for Monday
"""


@click.command(epilog=EXAMPLES)
@click.argument("unit")
@click.argument("text", nargs=-1, required=True)
@click.option("--id", "question", metavar="ID", help="Which question, where there are several: the first digits.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def answer(unit: str, text: tuple[str, ...], question: str | None, as_json: bool) -> int:
    """Answer what UNIT asks a person; `flyball status` shows who asks. The unit, which waits, goes on with it.

    Where the question has choices, TEXT has to be one of them. It is written into the journal: answer with no secret.
    """
    with Asking() as ask:
        said = ask("answer", unit=unit, answer=" ".join(text), id=question)
    if as_json:
        print_json(said)
    else:
        click.echo(one_line(f"{unit}: answered {said['answer']}: {said['question']['text']}"))
    return FINE

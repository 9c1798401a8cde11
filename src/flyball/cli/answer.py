"""`flyball questions` and `flyball answer`: what units ask people, and the answers. Those are in the journal, with who
gave them."""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Final

import click

from flyball.cli import FINE
from flyball.cli.ask import Asking
from flyball.cli.complete import unit_names
from flyball.cli.show import print_json
from flyball.control.text import counted, length, one_line, question_text

EXAMPLES: Final = """\
\b
Examples:
  flyball answer deployer yes
  flyball answer deployer --id 3fa9 no, wait for Monday
  flyball answer pay-invoices --all yes
"""

QUESTIONS_EXAMPLES: Final = """\
\b
Examples:
  flyball questions              what is open
  flyball questions deployer     of one unit
"""


@click.command(epilog=EXAMPLES)
@click.argument("unit", shell_complete=unit_names)
@click.argument("text", nargs=-1, required=True)
@click.option("--id", "question", metavar="ID", help="Which question, where there are several: the first digits.")
@click.option("--all", "everything", is_flag=True, help="All that it asks, with the same answer.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def answer(unit: str, text: tuple[str, ...], question: str | None, everything: bool, as_json: bool) -> int:
    """Answer what UNIT asks a person; `flyball questions` shows who asks what. The unit, which waits, goes on with it.

    Where the question has choices, TEXT has to be one of them. It is written into the journal: answer with no secret.
    """
    with Asking() as ask:
        said = ask("answer", unit=unit, answer=" ".join(text), id=question, all=everything)
    if as_json:
        print_json(said)
        return FINE
    for one in said["answered"]:
        click.echo(one_line(f"{unit}: answered {one['answer']}: {one['question']['text']}"))
    for late in said["too_late"]:
        click.echo(one_line(f"{unit}: {late}"), err=True)
    return FINE


@click.command(epilog=QUESTIONS_EXAMPLES)
@click.argument("units", metavar="[UNIT]...", nargs=-1, shell_complete=unit_names)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def questions(units: tuple[str, ...], as_json: bool) -> int:
    """Show what units ask people and nobody has answered: unit by unit, who asks for longest first. Needs no daemon."""
    with Asking() as ask:
        said = ask("questions", units=list(units))
    if as_json:
        print_json(said)
        return FINE
    if not said["questions"]:
        click.echo("Nobody asks anything.")
        return FINE
    for line in _lines(said["questions"], said["at"]):
        click.echo(line)
    return FINE


def _lines(asked: Iterable[Mapping[str, Any]], now: float) -> Iterable[str]:
    for unit, group in groupby(asked, key=lambda question: question["unit"]):
        found = list(group)
        yield f"{unit} asks {counted(len(found), 'question')}:"
        for question in found:
            text = one_line(question_text(question["text"], question["choices"]))
            yield f"  {question['id']}  {text}, {length(now - question['at'])} ago{ends(question, now)}"
        which = f"--id {found[0]['id']} " if len(found) > 1 else ""
        alike = f"; all alike: `flyball answer {unit} --all TEXT`" if len(found) > 1 else ""
        yield f"  Answer: `flyball answer {unit} {which}TEXT`{alike}"


def ends(question: Mapping[str, Any], now: float) -> str:
    """What becomes of a question that nobody answers."""
    if question["until"] is None:
        return ""
    then = "gives up" if question["default"] is None else f"takes {one_line(question['default'])}"
    return f"; {then} in {length(question['until'] - now)}"

"""Every command in README and docs is typed by a test, or stands in a table that says why it cannot be."""

import json
import re
import tomllib

import pytest

from tests.docs.pages import ROOT, SHELLS, SHOWN, Command, blocks, commands, pages
from tests.docs.prepare import prepare
from tests.docs.tables import CODES, EXCEPTED, PAGES, Page, code_of, excepted
from tests.docs.typist import Done
from tests.docs.world import World

ADVICE = """
{where}: `{text}` ended with {code} instead of {right}.
What to do: put the page right, or the command. If both are right, see the head of tests/docs/tables.py: give the page
the world that it speaks of, or say that it ends with another code, or why it cannot be typed here. A block that nobody
types is marked ```text.
--- printed ---
{out}
--- complained ---
{err}"""

ALL = [command for page in pages() for command in commands(page)]
PLAIN_WORDS = r"[A-Za-z]+:?( [A-Za-z]+)+"
"""Of what a page shows: what does not depend on times and numbers."""
CHECKED = ("make", "pip")
"""Programs that are not run: what they name is looked up."""


def _is_typed(command: Command) -> bool:
    return command.program not in CHECKED and not excepted(command)


TYPED = sorted({command.page for command in ALL if _is_typed(command)})


@pytest.mark.slow
@pytest.mark.parametrize("page", TYPED)
def test_commands(page: str) -> None:
    """They do what the page says, in the order in which it shows them, for somebody who types them."""
    of_page = [command for command in commands(page) if _is_typed(command)]
    with World() as world:
        typist = prepare(world, page, of_page)
        first = PAGES.get(page, Page()).first
        for command in of_page:
            for begins, text in first.items():
                if command.bare.startswith(begins):
                    typist.type(Command(page, 0, text))
            done = typist.type(command)
            assert done.code == code_of(command), _advice(command, done)
            assert "Traceback" not in done.err, _advice(command, done)
            missing = _missing(command, done)
            assert not missing, f"{command.where}: the page shows what is not printed: {missing}\n{done.out}"
        world.down()
        assert not world.left()


def _advice(command: Command, done: Done) -> str:
    return ADVICE.format(
        where=command.where, text=command.bare, code=done.code, right=code_of(command), out=done.out, err=done.err
    )


def _missing(command: Command, done: Done) -> list[str]:
    """Heads of tables, lines of plain words, and keys of JSON that the page shows and the command does not print."""
    printed = " ".join(f"{done.out} {done.err}".split())
    shown = [" ".join(line.split()) for line in command.shown.splitlines()]
    missing = [line for line in shown if re.fullmatch(PLAIN_WORDS, line) and line not in printed]
    if command.shown.startswith("{"):
        keys = re.findall(r'^  "(\w+)":', command.shown, re.MULTILINE)
        missing += [key for key in keys if key not in json.loads(done.out)]
    return missing


def test_extras_and_targets() -> None:
    """What pages have people install with pip, and make, is there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    makefile = (ROOT / "Makefile").read_text()
    targets = {name for line in re.findall(r"^([\w. /$()-]+):(?!=)", makefile, re.MULTILINE) for name in line.split()}
    for command in ALL:
        if command.program == "pip":
            named = re.findall(rf"{project['name']}\[([\w,-]+)\]", command.bare)
            extras = {extra for names in named for extra in names.split(",")}
            assert extras <= project["optional-dependencies"].keys(), command
            assert re.search(rf"\b{project['name']}\b", command.bare) or "-e" in command.bare, command
        if command.program == "make":
            assert set(command.bare.split()[1:]) <= targets, command


def test_every_block_says_what_it_is() -> None:
    """So that no command is overlooked."""
    unknown = [block.where for page in pages() for block in blocks(page) if block.language not in SHELLS | SHOWN]
    assert unknown == [], "what language is that? Add it to tests/docs/pages.py, and a test that reads it"


def test_no_line_of_the_tables_is_in_vain() -> None:
    """An exception that is needed no more is taken out, and so is a world that no page speaks of."""
    assert [one.pattern for one in EXCEPTED if not any(excepted(command) is one for command in ALL)] == []
    assert [page for page in PAGES if page not in TYPED] == []
    assert [rule for rule in CODES if not any(c.page == rule[0] and c.bare.startswith(rule[1]) for c in ALL)] == []
    tests = [one.test for one in EXCEPTED if one.test]
    assert [test for test in tests if not (ROOT / test).exists()] == []

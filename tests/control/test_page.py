"""The reference of commands has all that there is."""

from pathlib import Path

import pytest

from flyball.cli import COMMANDS
from flyball.control.commands import COMMANDS as VERBS
from flyball.control.shapes import SessionWord, Word

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "commands.md").read_text()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_on_the_page(name: str) -> None:
    """Each command has its heading in the reference."""
    assert f"\n## {name}\n" in PAGE


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_on_the_page(verb: str) -> None:
    """Each verb of the socket is in its table, with its arguments."""
    rows = [line.split(" | ") for line in PAGE.split("## The socket")[1].splitlines() if line.startswith("| `")]
    [arguments] = [row[1] for row in rows if f"`{verb}`" in row[0]]
    for argument in VERBS[verb].arguments:
        assert f"`{argument.name}`" in arguments


@pytest.mark.parametrize("word", Word)
def test_every_word_is_on_the_page(word: Word) -> None:
    """Each state has its row."""
    assert f"\n| `{word}` |" in PAGE


@pytest.mark.parametrize("word", SessionWord)
def test_every_status_of_a_session_is_on_the_page(word: SessionWord) -> None:
    """Each status has its row."""
    assert f"\n| `{word}` |" in PAGE.split("\n## sessions\n")[1].split("\n## ")[0]

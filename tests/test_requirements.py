"""The page of requirements and the acceptance tests are in step: neither names what the other does not have."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "requirements.md"
ACCEPTANCE = sorted((ROOT / "tests" / "acceptance").glob("test_*.py"))
THEMES = {
    "Anti-loop": ("S0", 46),
    "Layers": ("S1", 66),
    "Resume limit": ("S2", 42),
    "Auto-restart": ("S3", 51),
    "Crash policy": ("S4", 24),
}

ROW = re.compile(r"\| (?P<id>S\d-\d\d) \| (?P<asks>.+?) \| (?P<shown>.*?) \|")
ID = re.compile(r"\bS\d-\d\d\b")


class Row(NamedTuple):
    """A row of the page."""

    id: str
    theme: str
    asks: str
    shown: str

    @property
    def tests(self) -> list[str]:
        """The tests that it names."""
        return re.findall(r"`(tests/[^`]+)`", self.shown)


@cache
def rows() -> tuple[Row, ...]:
    """The rows of the page, each under its theme."""
    found, theme = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            theme = line.removeprefix("## ")
        elif line.startswith("| S"):
            row = ROW.fullmatch(line)
            assert row is not None, f"not a row: {line}"
            found.append(Row(row["id"], theme, row["asks"], row["shown"]))
    return tuple(found)


@cache
def docstrings(path: Path) -> dict[str, str]:
    """The tests of a file, with their docstrings; read, not run."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return {function.name: ast.get_docstring(function) or "" for function in functions}


def acceptance_tests() -> dict[str, str]:
    """The acceptance tests by node id, with their docstrings."""
    return {
        f"{path.relative_to(ROOT).as_posix()}::{name}": text
        for path in ACCEPTANCE
        for name, text in docstrings(path).items()
    }


@pytest.mark.parametrize("theme", THEMES)
def test_every_row_is_there_once(theme: str) -> None:
    """Each requirement of a theme stands on the page exactly once, in its order, under its theme."""
    prefix, number = THEMES[theme]
    expected = [f"{prefix}-{n:02}" for n in range(1, number + 1)]
    assert [row.id for row in rows() if row.theme == theme] == expected


def test_no_other_rows() -> None:
    """There are 229 rows, and no others."""
    assert len(rows()) == sum(number for _, number in THEMES.values()) == 229


def test_every_row_has_a_test_that_names_it() -> None:
    """A row names its tests, and the docstring of at least one of them names the row."""
    without = [
        row.id
        for row in rows()
        if not any(
            row.id in docstrings(ROOT / path)[name] for path, _, name in (test.partition("::") for test in row.tests)
        )
    ]
    assert without == []


def test_tests_of_the_page_exist() -> None:
    """Every test that the page names is there."""
    missing = [
        (row.id, test)
        for row in rows()
        for test in row.tests
        if test.partition("::")[2] not in docstrings(ROOT / test.partition("::")[0])
    ]
    assert missing == []


def test_every_acceptance_test_names_a_row() -> None:
    """The docstring of an acceptance test begins with the rows that it shows, and they are rows of the page."""
    known = {row.id for row in rows()}
    wrong = [
        test for test, text in acceptance_tests().items() if not ID.match(text) or not set(ID.findall(text)) <= known
    ]
    assert wrong == []


def test_page_and_tests_say_the_same() -> None:
    """An acceptance test that names a row is named by it, and the other way round."""
    by_page = {(row.id, test) for row in rows() for test in row.tests if test.startswith("tests/acceptance/")}
    by_tests = {(row, test) for test, text in acceptance_tests().items() for row in ID.findall(text)}
    assert by_page == by_tests

"""The one table of names that conditions and templates may use agrees with what is shown to people."""

from pathlib import Path

import pytest

from flyball.config.rule_names import ROOTS, STATES, STEPS, TRIGGERS, UNIT, kinds_of, trigger_shape
from flyball.control.shapes import SessionWord, Word

PAGE = (Path(__file__).parents[2] / "docs/how-to/rules.md").read_text()


def test_states() -> None:
    """A unit can be whatever the views call it, and nothing else."""
    assert set(STATES) == {*Word, *SessionWord}


@pytest.mark.parametrize("kind", TRIGGERS)
def test_triggers_are_documented(kind: str) -> None:
    """What each kind of trigger says is on the page about rules."""
    assert f"`{kind}" in PAGE
    for name in TRIGGERS[kind]:
        assert f"`{name}`" in PAGE


@pytest.mark.parametrize("root", ROOTS)
def test_roots_are_documented(root: str) -> None:
    """Each name, and all within it, is on the page about rules."""
    assert f"`{root}" in PAGE
    for name in (ROOTS[root].fields or UNIT.fields if root == "units" else ROOTS[root].fields) or ():
        assert f"`{name}`" in PAGE


@pytest.mark.parametrize("kind", STEPS)
def test_results_are_documented(kind: str) -> None:
    """The result of each kind of action is on the page about rules."""
    assert f"`{kind}" in PAGE
    for name in STEPS[kind].fields or ():
        assert f"`{name}`" in PAGE


def test_a_trigger_may_be_of_several_kinds() -> None:
    """A field that two kinds of trigger have is of the kind that both give it; `kind` is always there."""
    shape = trigger_shape(kinds_of([]))
    assert set(shape.fields or ()) == {"kind", "by", "data", "rule", "run"}

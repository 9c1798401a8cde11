"""The bench of conditions measures what it says. No time is judged."""

import pytest
from bench import conditions


def test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row has a figure of ours and one of a peer's; all say that the condition holds."""
    monkeypatch.setattr(conditions, "EVALUATIONS", 2)
    monkeypatch.setattr(conditions, "REPEAT", 2)
    rows = conditions.rows()
    assert [row.peer for row in rows] == ["simpleeval", "cel-python"]
    assert all(row.ours > 0 and row.theirs > 0 for row in rows)


def test_the_answer_depends_on_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them gives the same answer whatever it is given."""
    given = conditions.names()
    given["time"]["hour"] = 3
    monkeypatch.setattr(conditions, "names", lambda: given)
    assert [bool(one()()) for one in (conditions.ours, conditions.by_simpleeval, conditions.by_cel_python)] == [
        False
    ] * 3

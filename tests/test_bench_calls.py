"""The bench of guarded calls measures what it says. No time is judged."""

import pytest
from bench import calls


def test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row has a figure of ours and one of a peer's, and what it calls is really guarded and made."""
    monkeypatch.setattr(calls, "CALLS", 40)
    monkeypatch.setattr(calls, "REPEAT", 2)
    rows = calls.rows()
    assert len(rows) == 6
    assert all(row.ours > 0 and row.theirs > 0 for row in rows)

"""A stage for each test, and the claim of all of them: nothing is left running."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtimes.rule.actions.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    assert stage.processes() == []

"""A stage for forked runs."""

from collections.abc import Iterator

import pytest

from tests.runtimes.forked.stage import Begin, stage


@pytest.fixture
def begin() -> Iterator[Begin]:
    with stage() as begins:
        yield begins

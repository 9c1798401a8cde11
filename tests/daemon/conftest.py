"""A place for a daemon, and nothing left of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.site import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A place of its own."""
    place = Site(tmp_path)
    yield place
    place.clean()

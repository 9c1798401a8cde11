"""One Temporal server for all tests of a module."""

from collections.abc import Iterator

import pytest

from tests.servers.temporal import TemporalServer, temporal


@pytest.fixture(scope="module")
def server() -> Iterator[TemporalServer]:
    """A server."""
    with temporal() as server:
        yield server

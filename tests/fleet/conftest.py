"""One cluster for all tests of a module: each begins with all hosts up and every unit running."""

from collections.abc import Iterator

import pytest

from tests.fleet.cluster import Cluster, cluster, unit

UNITS = {
    **{f"w{number}": unit() for number in range(4)},
    "stubborn": unit("--stubborn", grace="6s"),
    "child": unit("--child"),
    "kept": unit(on_supervisor_death="keep"),
    "first": unit(),
    "second": unit(after=["first"]),
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three hosts."""
    with cluster(tmp_path_factory.mktemp("fleet")) as made:
        made.write(UNITS)
        made.up()
        yield made

"""A fleet on several hosts: their records as each would have written it, and what they run."""

from collections.abc import Mapping, Sequence

from flyball.config import Settings
from flyball.core.event import Joined, Left, Start
from flyball.core.host import HostRecord, encode, host_key
from flyball.core.time import SECOND, Instant
from flyball.governor import Governor
from tests.control.scene import Scene

LEASE = 15 * SECOND


def holder_of(host: str, number: int = 1) -> str:
    """The daemon of a host, as the holder of runs."""
    return f"{host}/{number}/1"


def record(host: str, now: Instant, **more: object) -> HostRecord:
    """A host that has just renewed its lease."""
    given = {"holder": holder_of(host), "since": now, "until": now + LEASE, "lease": LEASE, "settings": "same", **more}
    return HostRecord(name=host, **given)  # type: ignore[arg-type]  # whatever a test gives


def join(governor: Governor, host: str, **more: object) -> HostRecord:
    """That host joins, or writes another record."""
    made = record(host, governor.clock.now(), **more)
    governor.submit(Joined(host=host, holder=made.holder), {host_key(host): encode(made)})
    return made


def lose(governor: Governor, host: str, *, runs: int = 0, by: str = "") -> None:
    """That host is fenced."""
    left = Left(host=host, holder=holder_of(host), lost=True, runs=runs, by=by)
    governor.submit(left, {host_key(host): None})


def run_on(governor: Governor, host: str, *units: str) -> None:
    """That host runs these units."""
    for unit in units:
        assert governor.submit(Start(unit=unit, run=f"{unit}-1", holder=holder_of(host))).proceeds


def three_hosts(
    scene: Scene, units: Mapping[str, Sequence[str]] | None = None, settings: Settings | None = None
) -> None:
    """Hosts a, b and c, which run these units."""
    scene.settings = settings or scene.settings
    for host in "abc":
        join(scene.governor, host)
        run_on(scene.governor, host, *(units or {}).get(host, ()))

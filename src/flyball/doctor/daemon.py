"""The daemon: whether one runs here, and whether it is of the version that is installed."""

from collections.abc import Iterator, Mapping
from typing import Any

from flyball import __version__
from flyball.doctor.finding import Finding, bad, ok, warning
from flyball.doctor.scene import Scene
from flyball.errors import FlyballError


def check(scene: Scene) -> Iterator[Finding]:
    """That none runs is fine: most commands need none."""
    yield judge(scene.ping, __version__)


def judge(said: Mapping[str, Any] | FlyballError | None, installed: str) -> Finding:
    """`said` is what it says of itself; why it says nothing; None: there is none."""
    if said is None:
        return ok("no daemon runs here; `flyball up -d` starts one")
    if isinstance(said, FlyballError):
        return bad(f"the daemon does not answer: {said}", said.remedy)
    text = f"a daemon runs (pid {said['pid']}) with {len(said['pids'])} of its units"
    version = said.get("version", "an older version")
    if version != installed:
        remedy = "Restart it: `flyball down`, then `flyball up -d`."
        return warning(f"{text}; it is flyball {version}, and {installed} is installed", remedy)
    return ok(f"{text}; it is flyball {version}, as installed")

"""What is right and wrong with this machine, these settings and this state folder, each with what to do.

Each check is one file with a function `check`, which looks, and functions `judge…`, which take what was seen and say
how good that is: so they can be tried without a machine that is broken. Nothing is ever changed: a store is looked at
as a copy, an address is opened for a moment. The one thing that leaves the machine is the test message of alerts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from flyball.doctor import (
    alerts,
    browser,
    clock,
    daemon,
    disk,
    extras,
    http,
    interpreter,
    kernel,
    limits,
    secrets,
    settings,
    socket,
    store,
    systemd,
    units,
    variables,
)
from flyball.doctor.finding import Finding, Level, bad, warning
from flyball.doctor.scene import Scene

__all__ = ["CHECKS", "Finding", "Level", "Scene", "examine"]

CHECKS: Final[Mapping[str, Callable[[Scene], Iterator[Finding]]]] = {
    "python": interpreter.check,
    "settings": settings.check,
    "variables": variables.check,
    "units": units.check,
    "extras": extras.check,
    "socket": socket.check,
    "daemon": daemon.check,
    "disk": disk.check,
    "store": store.check,
    "clock": clock.check,
    "secrets": secrets.check,
    "http": http.check,
    "alerts": alerts.check,
    "browser": browser.check,
    "kernel": kernel.check,
    "limits": limits.check,
    "systemd": systemd.check,
}
"""All checks, in the order in which they are told."""
OF_SETTINGS: Final = frozenset(("units", "extras", "alerts", "browser", "limits"))
"""Those that have nothing to look at where the settings are wrong."""


def examine(scene: Scene, only: Sequence[str] = ()) -> Iterator[Finding]:
    """What is found, one after the other. A check that fails itself is told like any other fault, and the next one
    goes on."""
    for name in only or CHECKS:
        if name in OF_SETTINGS and scene.settings is None:
            yield replace(warning("not looked at: the settings are wrong", "Put them right first."), check=name)
            continue
        try:
            for finding in CHECKS[name](scene):
                yield replace(finding, check=name)
        except Exception as error:  # noqa: BLE001 - what is looked at may be broken in any way
            text = f"this check itself failed: {type(error).__name__}: {error}"
            yield replace(bad(text, "This is a fault of flyball: tell its makers."), check=name)

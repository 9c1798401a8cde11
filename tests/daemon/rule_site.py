"""Rules at a daemon's place: how they are written, fired and seen, the way people do it."""

from collections.abc import Mapping
from typing import Any

from tests.daemon.site import Site, until

ONCE = {"max_attempts": 1}
"""Each run tries its action once: tests are about runs."""


def runs(site: Site, script: str, *triggers: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A rule whose only action is a script of a shell, in the place's folder."""
    action = {"run": ["sh", "-c", script], "cwd": str(site.folder), "retry": ONCE}
    return {"triggers": [*triggers] or [{"command": True}], "actions": [action], **more}


def lines(site: Site, name: str) -> list[str]:
    """What was written into a file so far."""
    file = site.folder / name
    return file.read_text().splitlines() if file.exists() else []


def fire(site: Site, rule: str, data: Any = None) -> dict[str, Any]:
    """As `flyball trigger` does, without the price of a command."""
    return site.ask("trigger", rule=rule, data=data)


def rule_of(site: Site, name: str) -> dict[str, Any]:
    """What `flyball rules NAME` is made of."""
    found: dict[str, Any] = site.ask("rules", rules=[name])["rules"][0]
    return found


def at_rest(site: Site, *names: str) -> None:
    """Wait until nothing waits or runs of these."""

    def rests(name: str) -> bool:
        rule = rule_of(site, name)
        return not rule["queue"] and not rule["running"]

    for name in names:
        until(lambda name=name: rests(name), f"the rest of {name}")  # type: ignore[misc]


def journal(site: Site, unit: str = "") -> list[dict[str, Any]]:
    """What happened, the oldest first."""
    found: list[dict[str, Any]] = []
    last = 0
    while True:
        said = site.ask("events", unit=unit or None, after=last, limit=10_000)
        if not said["events"]:
            return found
        found += said["events"]
        last = said["last"]


def exits(site: Site, unit: str) -> list[dict[str, Any]]:
    """The exits of a rule's runs."""
    return [entry["data"] for entry in journal(site, unit) if entry["event"] == "exited"]


def starts(site: Site, unit: str) -> list[dict[str, Any]]:
    """The starts of a rule that were granted."""
    return [entry["data"] for entry in journal(site, unit) if entry["event"] == "start" and entry["verb"] == "proceed"]

"""Packages that the settings need, and whether they are installed."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from flyball.config.alerts import AppriseChannel
from flyball.config.rules import Browse
from flyball.doctor.finding import Finding, bad, ok
from flyball.doctor.scene import Scene

if TYPE_CHECKING:
    from flyball.config import Settings

PACKAGES: Final = {
    "apprise": ("apprise",),
    "browser": ("playwright",),
    "fleet": ("psycopg", "dbos"),
    "opentelemetry": ("opentelemetry.sdk",),
    "rules": ("common_expression_language", "cronsim", "watchfiles"),
    "telegram": ("telegram",),
}
"""Of each extra: what is imported of it."""


def check(scene: Scene) -> Iterator[Finding]:
    """Only what is asked for."""
    yield from judge(wanted(scene.fallback), is_installed)


def wanted(settings: "Settings") -> dict[str, str]:
    """The extras that these settings need, each with what needs it."""
    alerts = settings.alerts.alerts
    deeds = [action.deed for rule in settings.rules for action in rule.actions]
    needs = {
        "fleet": "store" if settings.store else "",
        "rules": "rules" if settings.rules else "",
        "browser": "rules with `browser`" if any(isinstance(deed, Browse) for deed in deeds) else "",
        "apprise": "alerts.channels" if any(isinstance(one, AppriseChannel) for one in alerts.channels) else "",
        "telegram": "telegram" if settings.telegram.plan() is not None else "",
        "opentelemetry": "traces.exporter" if settings.traces.exporter else "",
    }
    return {extra: why for extra, why in needs.items() if why}


def judge(needs: dict[str, str], installed: Callable[[str], bool]) -> Iterator[Finding]:
    """Whether they are there."""
    for extra, why in needs.items():
        missing = [package for package in PACKAGES[extra] if not installed(package)]
        if missing:
            text = f"`{why}` needs the extra {extra}, of which {', '.join(missing)} is not installed"
            yield bad(text, f"Install it: `pip install 'flyball-governor[{extra}]'`.")
        else:
            yield ok(f"`{why}` needs the extra {extra}, which is installed")
    if not needs:
        yield ok("the settings need no extra")


def is_installed(package: str) -> bool:
    """Whether there is such a package."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # that of which it is a part
        return False

"""Packages that the settings need, and whether they are installed."""

from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple

from flyball.config.alerts import AppriseChannel
from flyball.config.rules import Browse, Cron, FileChange
from flyball.doctor.finding import Finding, bad, ok
from flyball.doctor.scene import Scene

if TYPE_CHECKING:
    from flyball.config import Settings


class Need(NamedTuple):
    """A package that is needed: as it is imported, the extra that brings it, and what of the settings needs it."""

    package: str
    extra: str
    by: str


DATABASE: Final = (Need("psycopg", "fleet", "store"), Need("dbos", "fleet", "store"))
CONDITION: Final = Need("cel", "rules", "rules with `when`")
TIMES: Final = Need("cronsim", "rules", "rules with `cron`")
FILES: Final = Need("watchfiles", "rules", "rules with `file`")
BROWSER: Final = Need("playwright", "browser", "rules with `browser`")
APPRISE: Final = Need("apprise", "apprise", "alerts.channels of the type apprise")
BOT: Final = Need("telegram", "telegram", "telegram")
TRACES: Final = Need("opentelemetry.sdk", "opentelemetry", "traces.exporter")
ALL: Final = (*DATABASE, CONDITION, TIMES, FILES, BROWSER, APPRISE, BOT, TRACES)


def check(scene: Scene) -> Iterator[Finding]:
    """Only what is asked for."""
    yield from judge(wanted(scene.fallback), is_installed)


def wanted(settings: "Settings") -> list[Need]:
    """What these settings need."""
    rules, channels = settings.rules, settings.alerts.alerts.channels
    triggers = [trigger for rule in rules for trigger in rule.triggers]
    needs = {
        CONDITION: any(rule.when for rule in rules),
        TIMES: any(isinstance(trigger, Cron) for trigger in triggers),
        FILES: any(isinstance(trigger, FileChange) for trigger in triggers),
        BROWSER: any(isinstance(action.deed, Browse) for rule in rules for action in rule.actions),
        APPRISE: any(isinstance(channel, AppriseChannel) for channel in channels),
        BOT: settings.telegram.plan() is not None,
        TRACES: bool(settings.traces.exporter),
    }
    return [*(DATABASE if settings.store else ()), *(need for need, wanted in needs.items() if wanted)]


def judge(needs: Sequence[Need], installed: Callable[[str], bool]) -> Iterator[Finding]:
    """Whether they are there."""
    missing = [need for need in needs if not installed(need.package)]
    for need in missing:
        text = f"{need.by}: the package {need.package} is needed, and not installed"
        yield bad(text, f"Install it: `pip install 'flyball-governor[{need.extra}]'`.")
    if not missing:
        there = ", ".join(dict.fromkeys(need.extra for need in needs))
        yield ok(f"what the settings need is installed: {there}" if there else "the settings need no extra")


def is_installed(package: str) -> bool:
    """Whether there is such a package."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # that of which it is a part
        return False

"""Quiet hours: whether it is one, and when they are over. And who is told what: the rules. Functions of settings and of
an instant."""

from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from zoneinfo import ZoneInfo

from flyball.config.alerts import SEVERITIES, AlertRule, Alerts, Quiet
from flyball.control.alerts.notices import KINDS, Notice
from flyball.core.time import SECOND, Instant


def quiet_until(quiet: Quiet | None, now: Instant) -> Instant:
    """When the quiet hours end that it is now; 0 if it is none. They are hours of the clock on the wall: where that is
    set back or ahead, they are longer or shorter by as much."""
    if quiet is None:
        return 0
    zone = _zone(quiet.timezone)
    here = datetime.fromtimestamp(now / SECOND, UTC).astimezone(zone)
    minute = here.hour * 60 + here.minute
    over_midnight = quiet.end < quiet.start
    inside = minute >= quiet.start or minute < quiet.end if over_midnight else quiet.start <= minute < quiet.end
    if not inside:
        return 0
    day = here.date() + timedelta(days=1 if over_midnight and minute >= quiet.start else 0)
    end = datetime(day.year, day.month, day.day, quiet.end // 60, quiet.end % 60, tzinfo=zone)
    # An hour that the clock skips is taken for the instant it would have been: later than now in any case.
    return max(round(end.timestamp()) * SECOND, now + SECOND)


def is_held_back(quiet: Quiet | None, severity: str, now: Instant) -> bool:
    """Whether a message so severe has to wait for the end of the quiet hours."""
    if quiet is None or SEVERITIES.index(severity) >= SEVERITIES.index(quiet.passes):
        return False
    return quiet_until(quiet, now) > 0


def channels_for(notice: Notice, settings: Alerts) -> tuple[str, ...]:
    """Who is to be told, by the names of the channels."""
    everyone = tuple(channel.name for channel in settings.channels)
    if notice.kind == "channel_dead":  # whatever the rules say: they may send it to that very channel
        return tuple(name for name in everyone if name != notice.ref)
    if notice.kind == "test":
        return tuple(name for name in everyone if not notice.ref or name == notice.ref)
    rules = settings.rules or (AlertRule(),)
    wanted = {name for rule in rules if _fits(rule, notice) for name in rule.channels or everyone}
    return tuple(name for name in everyone if name in wanted)


def _fits(rule: AlertRule, notice: Notice) -> bool:
    if rule.kinds:
        if notice.kind not in rule.kinds:
            return False
    elif KINDS[notice.kind].named:
        return False
    # A kind that has to be named is wanted by whoever names it, however harmless it is.
    wanted = SEVERITIES.index(notice.severity) >= SEVERITIES.index(rule.severity)
    if not wanted and not (rule.kinds and KINDS[notice.kind].named):
        return False
    if rule.units and not any(fnmatchcase(notice.unit, pattern) for pattern in rule.units):
        return False
    return all(notice.labels.get(name) == value for name, value in rule.labels.items())


@lru_cache(maxsize=8)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)

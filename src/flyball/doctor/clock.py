"""The clock: whether it is near the journal's last entry, and whether anybody keeps it right."""

import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from flyball.core.time import SECOND, Span, format_span, span
from flyball.doctor.finding import Finding, bad, ok, warning
from flyball.doctor.scene import Scene

TIMEDATECTL_MAX: Final = 5.0
"""Seconds for it to answer."""
MADE: Final = 1_735_689_600
"""The year 2025: flyball is younger than any clock that says less."""
CONFIRM: Final = (
    "Set it right. If it is right: `flyball up` will hold the fleet, and `flyball resume` confirms the clock."
)


def check(scene: Scene) -> Iterator[Finding]:
    """By the settings in force. Of a fleet the database's time counts, and not that of this machine."""
    safety, health = scene.fallback.safety, scene.store.health
    now = health.now if health is not None else round(scene.clock() * SECOND)
    yield from judge(
        now,
        scene.store.last_at,
        back_max=span(safety.clock_back_seconds),
        ahead_max=span(safety.clock_ahead_days * 86_400),
    )
    if health is not None:
        yield judge_difference(round(scene.clock() * SECOND) - health.now)
    synchronised = is_synchronised()
    if synchronised is not None:
        yield judge_synchronised(synchronised)


def judge(now: int, last: int | None, *, back_max: Span, ahead_max: Span) -> Iterator[Finding]:
    """Whether the policy `clock` would hold the fleet at the next start."""
    shown = datetime.fromtimestamp(now / SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if now < MADE * SECOND:
        yield bad(f"it is {shown}, says the clock", "Set it right.")
    elif last is None:
        yield ok(f"it is {shown}; the journal has no entry to compare with")
    elif last - now > back_max:
        yield bad(f"it is {shown}: {format_span(last - now)} behind the journal's last entry", CONFIRM)
    elif now - last > ahead_max:
        yield bad(f"it is {shown}: {format_span(now - last)} ahead of the journal's last entry", CONFIRM)
    else:
        where = "behind" if last > now else "after"
        yield ok(f"it is {shown}, {format_span(abs(now - last) // SECOND * SECOND)} {where} the journal's last entry")


def judge_difference(difference: Span) -> Finding:
    """Between this machine and the database."""
    text = (
        f"this machine is {format_span(abs(difference) // 1000 * 1000)} from the database's time, which is what counts"
    )
    if abs(difference) > 60 * SECOND:
        return warning(text, "Set this machine's clock right: its logs say other times than the journal.")
    return ok(text)


def judge_synchronised(synchronised: bool) -> Finding:
    """Whether somebody keeps it right."""
    if synchronised:
        return ok("the clock is kept right over the network (NTP)")
    remedy = "Have it kept right: `timedatectl set-ntp true`, or chrony."
    return warning("nobody keeps the clock right: it is not synchronised (NTP)", remedy)


def is_synchronised() -> bool | None:
    """What timedatectl says; None: there is none, or it does not know."""
    program = shutil.which("timedatectl")
    if program is None:
        return None
    try:
        asked = subprocess.run(  # noqa: S603 - found on PATH, without anything from outside
            [program, "show", "--property=NTPSynchronized", "--value"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEDATECTL_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return {"yes": True, "no": False}.get(asked.stdout.strip()) if not asked.returncode else None

"""From settings to a plan. `python -m flyball.config.planning [FILE]` does it for a process that does not want to read
settings itself: it writes the plan to its output, or what is wrong with the settings."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from flyball.config.plan import HostPlan, HttpPlan, Plan, RuleLimits, decode
from flyball.config.units import Unit
from flyball.core.policy import AnyPolicy
from flyball.core.time import span
from flyball.errors import FlyballError, SettingsError

READ_MAX: Final = 60.0
"""Seconds for reading settings. It takes one, with a thousand units on a busy machine."""

REFUSED: Final = 3
"""The exit code when the settings are wrong."""


class _Refusal(msgspec.Struct):
    """Why there is no plan."""

    text: str
    remedy: str
    problems: list[str] | None = None


def read_plan(config: Path | None, env: Mapping[str, str]) -> tuple[Plan, Sequence[str]]:
    """The plan of these settings, and what there is to warn of. FlyballError if nothing can be run with them."""
    # Whoever only hands plans over needs no settings.
    from flyball.config.build import rule_policies, unit_policies  # noqa: PLC0415 - see above
    from flyball.config.layers import load  # noqa: PLC0415 - see above

    read_at = time.time_ns()
    settings = load(config, env=env)
    if settings.lacking:
        raise SettingsError(list(settings.lacking))
    if not settings.units and not settings.rules:
        where = settings.source or "the settings (no file was found)"
        raise FlyballError(
            f"{where}: there are no units to run, and no rules",
            remedy="Name some under `units:` or `rules:`; see `flyball schema`.",
        )
    # Each set of policies once: most units stand under the same.
    sets: dict[tuple[AnyPolicy, ...], tuple[AnyPolicy, ...]] = {}
    own = {unit.name: sets.setdefault(own, own) for unit in settings.units for own in (unit_policies(settings, unit),)}
    own |= rule_policies(settings, settings.rules)
    plan = Plan(
        units=_sharing(settings.units),
        groups=settings.groups,
        rules=settings.rules,
        limits=RuleLimits(
            running_max=settings.rule.max_running,
            queued_max=settings.rule.max_queued,
            listen=settings.rule.listen,
            auto_reload=settings.rule.auto_reload,
        ),
        http=HttpPlan(listen=settings.http.listen, hosts=_hosts(settings.http.hosts, settings.alerts.url)),
        alerts=settings.alerts.alerts,
        sources=settings.sources,
        read_at=read_at,
        policies=settings.policies(),
        own=own,
        jitter=settings.restart_policy.jitter,
        quarantined_at=settings.quarantine.max_failures_before_quarantine,
        journal_max=settings.journal.max_entries,
        log_format=settings.logs.format,
        traces=settings.traces.exporter,
        source=settings.source,
        telegram=settings.telegram.plan(),
        withheld=settings.withheld,
        store=settings.store,
        host=HostPlan(
            name=settings.host.name,
            labels=settings.host.labels,
            lease=span(settings.host.lease_seconds),
            units_max=settings.host.units_max,
        ),
    )
    return plan, settings.warnings()


def _hosts(given: Sequence[str], url: str) -> tuple[str, ...]:
    """Names of the page. Links in alerts lead to it, so the name that they use is one of them."""
    try:
        linked = urlsplit(url).hostname or ""
    except ValueError:
        linked = ""
    return tuple(dict.fromkeys((*given, *([linked] if linked else []))))


def _sharing(units: Sequence[Unit]) -> tuple[Unit, ...]:
    """The same units, of words that are there once: a thousand of them mostly have the same. What is shared stays so
    in the memory of who gets the plan."""
    words: dict[str, str] = {}
    nothing: dict[str, str] = {}
    return tuple(
        replace(
            unit,
            name=words.setdefault(unit.name, unit.name),
            command=tuple(words.setdefault(word, word) for word in unit.command),
            labels=unit.labels or nothing,
            env=unit.env or nothing,
        )
        for unit in units
    )


def ask_for_plan(config: Path | None, env: Mapping[str, str]) -> Plan:
    """The same, read by a process of its own. Blocks."""
    argv = [sys.executable, "-P", "-m", "flyball.config.planning", *([str(config)] if config is not None else [])]
    try:
        asked = subprocess.run(  # noqa: S603 - it is ourselves
            argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=READ_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FlyballError(f"the settings cannot be read: {error}", remedy="Try again.") from None
    if not asked.returncode:
        return decode(asked.stdout)
    if asked.returncode != REFUSED:
        last = asked.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise FlyballError(f"the settings cannot be read: {' '.join(last)}", remedy="Try `flyball check`.")
    refusal = msgspec.json.decode(asked.stdout, type=_Refusal)
    if refusal.problems is not None:
        raise SettingsError(refusal.problems)
    raise FlyballError(refusal.text, remedy=refusal.remedy)


def main(arguments: Sequence[str]) -> int:
    """Write the plan, or why there is none; the exit code."""
    code, data = 0, b""
    try:
        plan, _ = read_plan(Path(arguments[0]) if arguments else None, os.environ)
        data = plan.encode()
    except FlyballError as error:
        problems = error.problems if isinstance(error, SettingsError) else None
        code, data = REFUSED, msgspec.json.encode(_Refusal(str(error), error.remedy, problems))
    sys.stdout.buffer.write(data)
    sys.stdout.flush()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

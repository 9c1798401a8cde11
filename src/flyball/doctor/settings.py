"""The settings: whether they can be read, what contradicts itself in them, and what they name and is not there."""

from collections.abc import Iterator, Sequence

from flyball.config import DEFAULT
from flyball.control.text import counted
from flyball.doctor.finding import Finding, bad, ok, warning
from flyball.doctor.scene import Scene


def check(scene: Scene) -> Iterator[Finding]:
    """All that is wrong with them, each with its place."""
    settings = scene.settings
    if settings is None:
        yield from judge_problems(scene.problems)
        return
    values = [value for value in settings.effective() if value.origin != DEFAULT]
    yield from judge(
        settings.source,
        given=len(values),
        units=len(settings.units),
        rules=len(settings.rules),
        lacking=settings.lacking,
        warnings=settings.warnings(),
    )


def judge_problems(problems: Sequence[str]) -> Iterator[Finding]:
    """What is wrong."""
    for problem in problems:
        yield bad(problem, "Put it right; `flyball check` says whether it is.")


def judge(
    source: str, *, given: int, units: int, rules: int, lacking: Sequence[str], warnings: Sequence[str]
) -> Iterator[Finding]:
    """What is allowed, and can hardly be meant; and what units and rules take from outside that is not there."""
    if not source:
        text = f"there is no settings file here: defaults, and {counted(given, 'value')} from the environment"
        yield ok(f"{text}; `flyball init` makes one")
    elif not units and not rules:
        remedy = "Name some under `units:` or `rules:`. `flyball run` needs none."
        yield warning(f"{source} names no units and no rules: `flyball up` has nothing to run", remedy)
    else:
        counts = ", ".join((counted(given, "value") + " given", counted(units, "unit"), counted(rules, "rule")))
        yield ok(f"{source}: {counts}")
    for line in lacking:
        yield bad(line, "Give it that: without it `flyball up` starts nothing.")
    for line in warnings:
        if line not in lacking:
            yield warning(line, "Change it if it is not meant.")

"""What `flyball replay` prints: the sides beside each other, why, the first cases, a chart; or all of it as JSON."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import click

from flyball.cli.show import print_json as show_json
from flyball.cli.show import width
from flyball.control.chart import EIGHTHS
from flyball.control.text import clock_time, table
from flyball.core.amounts import amounts_text
from flyball.core.time import SECOND, Instant, format_span
from flyball.replay.history import Window
from flyball.replay.side import SLICES, Case, Side

CASES_SHOWN: Final = 10
"""Cases in the table: to see what it is about. --json has more."""
REASONS_SHOWN: Final = 12
NAME_MAX: Final = 24
"""Characters of a column's heading."""


class Differing(NamedTuple):
    """How the decisions of a journal came out under the present settings."""

    number: int
    """So many differ,"""
    weighed: int
    """of so many."""
    first: tuple[int, Instant, str] | None
    """The first that does: its number, when, and of which unit."""


class Compared(NamedTuple):
    """A history and its sides: as it was recorded, under the present settings, and under others."""

    kind: str
    """`runs`, `journal` or `export`."""
    name: str
    total: int
    broken: int
    sides: Sequence[Side]
    notes: Sequence[str]
    rated: int = 0
    """Runs that say how far they got."""
    idle: int = 0
    """Their steps after the last gain."""
    window: Window | None = None
    differing: Differing | None = None


# For scripts.


def print_json(compared: Compared) -> None:
    """Everything, as one object."""
    recorded, present, *others = compared.sides
    differing = compared.differing
    show_json(
        {
            "of": compared.kind,
            "name": compared.name,
            "count": compared.total,
            "broken_lines": compared.broken,
            "agrees": None if differing is None else differing.number == 0,
            "decisions": None if differing is None else differing.weighed,
            "differing": None if differing is None else differing.number,
            "first_difference": _place(differing),
            "rated_runs": compared.rated,
            "steps_after_last_gain": compared.idle,
            "recorded": _side_data(recorded, compared),
            "present": _side_data(present, compared),
            "other": _side_data(others[0], compared) if others else None,
            "notes": list(compared.notes),
        }
    )


def _place(differing: Differing | None) -> dict[str, Any] | None:
    if differing is None or differing.first is None:
        return None
    seq, at, unit = differing.first
    return {"seq": seq, "at": at / SECOND, "unit": unit}


def _side_data(side: Side, compared: Compared) -> dict[str, Any]:
    return {
        "settings": side.name,
        "starts": side.starts,
        "starts_refused": side.starts_refused,
        "starts_put_off": side.starts_put_off,
        "steps": side.steps,
        "spent": dict(side.spent),
        "nudged": side.nudged,
        "calls_refused": side.calls_refused,
        "ended": side.ended,
        "held": side.held,
        "let_go": side.let_go,
        "saved_starts": side.saved_starts,
        "saved_steps": side.saved_steps,
        "saved": dict(side.saved),
        "fires": side.fires,
        "lost_wins": side.lost if compared.rated else None,
        "lost_percent": _percent(side.lost, side.fires) if compared.rated else None,
        "saved_percent": _percent(side.saved_steps, compared.idle) if compared.rated else None,
        "reasons": [
            {"policy": policy, "code": code, "verb": verb, "count": count}
            for (policy, code, verb), count in side.reasons.most_common()
        ],
        "cases": [_case_data(case) for case in side.cases],
    }


def _case_data(case: Case) -> dict[str, Any]:
    return {**case._asdict(), "at": None if case.at is None else case.at / SECOND}


def _percent(part: int, whole: int) -> float | None:
    return round(100 * part / whole, 4) if whole else None


# For people.


def print_text(compared: Compared, *, chart: bool) -> None:
    """The sides beside each other."""
    click.echo(_heading(compared))
    for note in compared.notes:
        click.echo(f"  {note}")
    if compared.broken:
        click.echo(f"  {compared.broken} broken lines were left out.")
    click.echo("")
    head = ("", *(_short(side.name) for side in compared.sides))
    for line in table(
        head, [row for row in _rows(compared) if any(cell not in ("", "0") for cell in row[1:])], width()
    ):
        click.echo(line)
    _print_reasons(compared)
    _print_cases(compared.sides[-1])
    if chart and compared.total:
        click.echo("")
        for line in _chart(compared):
            click.echo(line)


def _heading(compared: Compared) -> str:
    if compared.kind == "runs":
        return f"{compared.total:,} recorded runs of {compared.name}"
    heading = f"{compared.total:,} entries of {compared.name}"
    if compared.window is not None and compared.total:
        heading += f", {format_span(compared.window.until - compared.window.since)} of them counted"
    differing = compared.differing
    if differing is None or not differing.weighed:
        return heading
    if not differing.number:
        return f"{heading}\nUnder the present settings all {differing.weighed:,} decisions agree, bit for bit."
    where = ""
    if differing.first is not None:
        seq, at, unit = differing.first
        where = f"; the first is entry {seq} ({unit or 'the fleet'}, {clock_time(at / SECOND, at / SECOND)})"
    return (
        f"{heading}\nUnder the present settings {differing.number:,} of {differing.weighed:,} decisions differ{where}: "
        "it was recorded under others."
    )


def _rows(compared: Compared) -> "list[tuple[str, ...]]":
    runs = compared.kind == "runs"

    def row(label: str, cell: Callable[[Side], str]) -> tuple[str, ...]:
        return (label, *(cell(side) for side in compared.sides))

    def saved(cell: Callable[[Side], str]) -> Callable[[Side], str]:
        """Nothing is saved by what was recorded."""
        return lambda side: "" if side is compared.sides[0] else cell(side)

    rows = [
        row("runs" if runs else "starts", lambda side: f"{side.starts:,}"),
        row("starts refused", lambda side: f"{side.starts_refused:,}"),
        row("starts put off", lambda side: f"{side.starts_put_off:,}"),
        row("steps", lambda side: f"{side.steps:,}"),
        row("spent", lambda side: amounts_text(side.spent) if side.spent else ""),
        row("told that they repeat themselves", lambda side: f"{side.nudged:,}"),
        row("calls refused", lambda side: f"{side.calls_refused:,}"),
        row("runs ended", lambda side: f"{side.ended:,}"),
        row("of these with steps left", lambda side: f"{side.fires:,}"),
        row("holds", lambda side: f"{side.held:,}"),
        row("let go that was not", lambda side: f"{side.let_go:,}"),
        row("saved: starts", saved(lambda side: f"{side.saved_starts:,}")),
        row("saved: steps", saved(lambda side: f"{side.saved_steps:,}")),
        row("saved: money", saved(lambda side: amounts_text(side.saved) if side.saved else "")),
    ]
    if compared.rated:
        rows += [
            row("  of the steps after the last gain", saved(lambda side: _share(side.saved_steps, compared.idle))),
            row("lost wins", saved(lambda side: f"{side.lost:,} ({_share(side.lost, side.fires, 2)})")),
        ]
    return rows


def _share(part: int, whole: int, digits: int = 1) -> str:
    return f"{100 * part / whole:.{digits}f} %" if whole else "0 %"


def _print_reasons(compared: Compared) -> None:
    totals: dict[tuple[str, str, str], int] = {}
    for side in compared.sides:
        for reason, count in side.reasons.items():
            totals[reason] = max(totals.get(reason, 0), count)
    if not totals:
        return
    click.echo("")
    ranked = sorted(totals, key=lambda reason: (-totals[reason], reason))[:REASONS_SHOWN]
    rows = [
        (f"{policy}: {code} ({verb})", *(f"{side.reasons[policy, code, verb]:,}" for side in compared.sides))
        for policy, code, verb in ranked
    ]
    for line in table(("why", *(_short(side.name) for side in compared.sides)), rows, width()):
        click.echo(line)


def _print_cases(side: Side) -> None:
    if not side.cases:
        return
    more = len(side.cases) - CASES_SHOWN
    click.echo(f"\nThe first cases under {side.name}" + (f" ({more} more with --json)" if more > 0 else "") + ":")
    rows = [
        (
            "/".join(filter(None, (case.unit, case.run))) or "the fleet",
            f"step {case.step}" if case.at is None else clock_time(case.at / SECOND, case.at / SECOND),
            case.verb,
            (f"saves {case.saved_steps}; " if case.saved_steps else "")
            + ("loses a win; " if case.lost else "")
            + case.text,
        )
        for case in side.cases[:CASES_SHOWN]
    ]
    for line in table(("run", "when", "verb", "why"), rows, width()):
        click.echo(line)


def _chart(compared: Compared) -> list[str]:
    """A line of blocks for each side, on one scale."""
    runs = compared.kind == "runs"
    last = max((place for side in compared.sides for place, count in enumerate(side.slices) if count), default=0)
    places = last + 1 if runs else SLICES
    wide = max(1, SLICES // places)
    most = max(1, *(count for side in compared.sides for count in side.slices))
    what = "steps made, by their number" if runs else "starts over time"
    lines = [f"{what} (a full block: {most:,})"]
    margin = max(len(_short(side.name)) for side in compared.sides)
    for side in compared.sides:
        cells = (EIGHTHS[-(-8 * count // most)] * wide for count in side.slices[:places])
        lines.append(f"  {_short(side.name):>{margin}} │{''.join(cells)}│")
    end = f"{places}" if runs else _lasted(compared.window)
    lines.append(f"  {'':>{margin}}  {'1' if runs else '0'}{end:>{places * wide - 1}}")
    return lines


def _lasted(window: Window | None) -> str:
    return "" if window is None else format_span(window.until - window.since)


def _short(name: str) -> str:
    """The end of a path tells more than its beginning."""
    return name if len(name) <= NAME_MAX else "…" + name[1 - NAME_MAX :]

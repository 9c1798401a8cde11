"""What `flyball simulate` prints: a table of the starts, the bound on them, a chart; or all of it as JSON."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from flyball.control import chart, picture
from flyball.core.decision import Reason, Verb
from flyball.core.time import FOREVER, Instant, Span, format_span, seconds
from flyball.runtimes.scenarios import SCENARIOS, Bound
from flyball.runtimes.simulation import Fate, Report, Run

if TYPE_CHECKING:
    from rich.table import Table

T = TypeVar("T")

HEAD_MAX: Final = 12
"""Rows shown before and, in a long table, after the gap: the ladder at the beginning, and how it ended."""
TAIL_MAX: Final = 8
PLAIN_WIDTH: Final = 120
"""Characters of a line where the output is not a terminal."""


class Simulated(NamedTuple):
    """One simulation, as it is shown."""

    name: str
    does: str
    kind: str
    settings: str
    """Where they come from."""
    report: Report
    bound: Bound

    @property
    def alone(self) -> Fate | None:
        """The fate of the only unit, if there is but one."""
        fates = list(self.report.fates.values())
        return fates[0] if len(fates) == 1 else None


def print_scenarios(*, as_json: bool) -> None:
    """The scenarios with a line each."""
    if as_json:
        click.echo(json.dumps({name: scenario.does for name, scenario in SCENARIOS.items()}, indent=2))
        return
    click.echo("Scenarios (flyball simulate SCENARIO):\n")
    for name, scenario in SCENARIOS.items():
        click.echo(f"  {name:<17} {scenario.does}  [{scenario.kind}]")
    click.echo("\nOr one of your own: flyball simulate --scenario FILE. Options and examples: flyball simulate --help")


def print_json(simulated: Simulated) -> None:
    """Everything, for a script."""
    report = simulated.report
    ends = [fate.ended_at for fate in report.fates.values() if fate.ended_at is not None]
    begins = [fate.first_start for fate in report.fates.values() if fate.first_start is not None]
    spent: dict[str, int] = {}
    for fate in report.fates.values():
        for meter, amount in fate.spent.items():
            spent[meter] = spent.get(meter, 0) + amount
    click.echo(
        json.dumps(
            {
                "scenario": simulated.name,
                "kind": simulated.kind,
                "settings": simulated.settings,
                "starts": report.starts,
                "held": report.held,
                "held_by": list(report.held_by),
                "spans_seconds": seconds(max(ends) - min(begins)) if ends and begins else None,
                "steps": sum(fate.steps for fate in report.fates.values()),
                "spent_micro": spent,
                "bound": _bound_data(simulated.bound),
                "simulated_seconds": seconds(report.ended_at - report.began),
                "ended_by": report.ended_by or None,
                "events": report.events,
                "boots": report.boots,
                "units": {name: _fate_data(fate) for name, fate in report.fates.items()},
                "runs": [_run_data(name, run, report.began) for name in report.fates for run in report.runs(name)],
            },
            indent=2,
        )
    )


def _bound_data(bound: Bound) -> dict[str, Any]:
    return {
        "starts": bound.starts,
        "uptime_below_seconds": None if bound.below == FOREVER else seconds(bound.below),
        "worst_uptime_seconds": seconds(bound.uptime),
        "worst_changing_error": bound.changing_error,
        "simulated_units": bound.simulated,
    }


def _fate_data(fate: Fate) -> dict[str, Any]:
    return {
        "starts": fate.starts,
        "held": fate.held,
        "held_by": list(fate.held_by),
        "spans_seconds": None if fate.spans is None else seconds(fate.spans),
        "ended": None if fate.ended is None else fate.ended.name.lower(),
        "ended_by": list(fate.ended_by),
        "reasons": [_reason_data(reason) for reason in fate.reasons],
        "steps": fate.steps,
        "spent_micro": fate.spent,
    }


def _run_data(unit: str, run: Run, began: Instant) -> dict[str, Any]:
    return {
        "unit": unit,
        "number": run.number,
        "resumed": run.resumed,
        "at_seconds": seconds(run.started - began),
        "waited_seconds": seconds(run.waited),
        "lived_seconds": None if run.exited is None else seconds(run.exited - run.started),
        "cause": run.cause,
        "error": run.error,
        "verb": None if run.verb is None else run.verb.name.lower(),
        "decided_by": list(run.by),
        "reasons": [_reason_data(reason) for reason in run.reasons],
    }


def _reason_data(reason: Reason) -> dict[str, str]:
    return {"policy": reason.policy, "code": reason.code, "text": reason.text, "remedy": reason.remedy}


def print_text(simulated: Simulated) -> None:
    """A table, how it ended, the bound, and a chart."""
    from rich.console import Console  # noqa: PLC0415 - only where a table is printed

    terminal = Console(highlight=False, soft_wrap=False)
    console = terminal if terminal.is_terminal else Console(highlight=False, width=PLAIN_WIDTH)
    console.print(f"{simulated.name} ({simulated.kind}; {simulated.settings}): {simulated.does}\n", markup=False)
    fate = simulated.alone
    console.print(_units_table(simulated.report) if fate is None else _runs_table(simulated.report, fate.unit))
    for line in _ending(simulated):
        console.print(line, markup=False)
    console.print()
    for line in _bound_text(simulated):
        console.print(line, markup=False)
    starts = drawn(simulated.report)
    if starts.at:
        console.print()
        console.print(chart.draw(starts), markup=False, no_wrap=True)


def write_picture(simulated: Simulated, path: Path) -> None:
    """The chart as PNG."""
    title = f"flyball simulate {simulated.name} ({simulated.kind})"
    picture.write(path, title, [_ending(simulated)[0], _bound_text(simulated)[0]], drawn(simulated.report))


def drawn(report: Report) -> chart.Starts:
    """What the chart shows: the starts of all units, in order; of one unit alone also its waits."""
    runs = sorted(
        (run for name in report.fates for run in report.runs(name)), key=lambda run: (run.started, run.number)
    )
    if not runs:
        return chart.Starts((), (), 0)
    first = runs[0].started
    ends = [fate.ended_at for fate in report.fates.values() if fate.ended_at is not None]
    over = len(ends) == len(report.fates)
    last = max(ends) if over else report.ended_at
    end = f"held by {' and '.join(report.held_by)}" if over and report.held else ""
    waits = [run.waited for run in runs[1:]] if len(report.fates) == 1 else []
    return chart.Starts([run.started - first for run in runs], waits, max(last, runs[-1].started) - first, end)


def _runs_table(report: Report, unit: str) -> "Table":
    table = _table("start", "at", "waited", "lived", "exit", "answer", "because")
    runs = list(report.runs(unit))
    for run in _with_gap(runs):
        if run is None:
            hidden = len(runs) - HEAD_MAX - TAIL_MAX
            table.add_row("…", *[""] * 5, f"… {hidden} more (--json has all)")
            continue
        table.add_row(
            f"{run.number}{' resumed' if run.resumed else ''}",
            format_span(run.started - report.began),
            format_span(run.waited) if run.number > 1 else "",
            "" if run.exited is None else format_span(run.exited - run.started),
            " ".join(filter(None, [run.cause or "still runs", run.error if run.error != run.cause else ""])),
            "" if run.verb is None else run.verb.name.lower(),
            "; ".join(f"{reason.policy}: {reason.text}" for reason in run.reasons if reason.policy in run.by),
        )
    return table


def _units_table(report: Report) -> "Table":
    table = _table("unit", "starts", "first at", "ended", "by", "at", "because")
    fates = list(report.fates.values())
    for fate in _with_gap(fates):
        if fate is None:
            table.add_row("…", *[""] * 5, f"… {len(fates) - HEAD_MAX - TAIL_MAX} more (--json has all)")
            continue
        table.add_row(
            fate.unit,
            str(fate.starts),
            _since(fate.first_start, report.began),
            "goes on" if fate.ended is None else fate.ended.name.lower(),
            ", ".join(fate.ended_by),
            _since(fate.ended_at, report.began),
            "; ".join(reason.text for reason in fate.reasons),
        )
    return table


def _table(*columns: str) -> "Table":
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - only where a table is printed
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        right = column in ("start", "starts", "at", "first at", "waited", "lived")
        table.add_column(column, justify="right" if right else "left", no_wrap=column != "because")
    return table


def _with_gap(rows: Sequence[T]) -> list[T | None]:
    """All rows; or, where they are many, the first and the last with None between them."""
    if len(rows) <= HEAD_MAX + TAIL_MAX + 1:
        return list(rows)
    return [*rows[:HEAD_MAX], None, *rows[-TAIL_MAX:]]


def _since(at: Instant | None, began: Instant) -> str:
    return "" if at is None else format_span(at - began)


def _ending(simulated: Simulated) -> list[str]:
    """How it ended, in a line; then why, and what to do."""
    report, fate = simulated.report, simulated.alone
    lasted = format_span(report.ended_at - report.began)
    cut = report.ended_by in ("starts_max", "events_max")
    limit = f" The simulation was cut off there: {report.ended_by}." if cut else ""
    if fate is None:
        held = sum(other.held for other in report.fates.values())
        by = f", by {' and '.join(report.held_by)}" if held else ""
        count = len(report.fates)
        return [f"{report.starts} starts of {count} units in {lasted}; {held} of {count} held{by}.{limit}"]
    used = _used(fate)
    if fate.ended is None:
        endless = "; nothing ended it" if fate.starts == 1 else ""
        return [f"Not held: {_times(fate.starts)} in {lasted}{used}{endless}.{limit}"]
    verb = {Verb.HOLD: "Held", Verb.STOP: "Stopped", Verb.FINISH: "Told to finish"}.get(fate.ended, "Waits for ever")
    after = _after(fate.spans)
    lines = [f"{verb} by {' and '.join(fate.ended_by)} after {_times(fate.starts)}{used}{after}."]
    for reason in fate.reasons:
        lines += [f"  {reason.text}.", f"  {reason.remedy}"]
    return lines


def _times(starts: int) -> str:
    return f"{starts} start" + ("" if starts == 1 else "s")


def _after(spans: Span | None) -> str:
    return "" if spans is None else f", {format_span(spans)} after the first"


def _used(fate: Fate) -> str:
    parts = [f"{fate.steps} steps"] if fate.steps else []
    for meter, amount in fate.spent.items():
        parts.append(f"{amount / 1_000_000:.2f} {meter.upper()}" if meter == "usd" else f"{amount} {meter}")
    return "".join(f", {part}" for part in parts)


def _bound_text(simulated: Simulated) -> list[str]:
    bound, fate = simulated.bound, simulated.alone
    error = "another error each time" if bound.changing_error else "the same error each time"
    where = f"it lives {format_span(bound.uptime)} and fails with {error}"
    if bound.starts is None:
        return ["No bound on starts with these settings: there is a unit that is never held.", f"  ({where})"]
    uptimes = "any uptime" if bound.below == FOREVER else f"any uptime below {format_span(bound.below)}"
    # A unit that lives so long that it counts as well again is not meant by the bound.
    this = f"; this unit: {fate.starts}" if fate is not None and fate.starts <= bound.starts else ""
    most = _times(bound.starts)
    return [
        f"Bound ({simulated.kind}): what always fails is held after at most {most}, for {uptimes}{this}.",
        f"  (the most that {bound.simulated} simulated units made; {where})",
    ]

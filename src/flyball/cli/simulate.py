"""`flyball simulate`: what will my settings do to a unit that misbehaves? Parsing here, printing in simulate_report."""

import difflib
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import click

from flyball import app
from flyball.cli import simulate_report
from flyball.config import DEFAULT, Settings, load
from flyball.core.panel import Panel
from flyball.core.time import DAY, Span, parse_span
from flyball.runtimes import scenario_file
from flyball.runtimes.scenarios import SCENARIOS, Options, bound_on_starts, with_long_leases
from flyball.runtimes.simulation import EVENTS_MAX, Plan
from flyball.runtimes.simulation import simulate as run_plan

KINDS: Final = ("process", "agent", "rule", "graph", "session")
DAYS_MAX: Final = 3_650
"""Ten years: longer than that, no settings stay as they are."""

EXAMPLES: Final = """\
\b
Examples:
  flyball simulate                                    list the scenarios
  flyball simulate always-fails --uptime 29s          a unit that lives 29 s and fails, each time
  flyball simulate always-fails --changing-error      another error each time
  flyball simulate fails-once-a-day --days 60 --json  for a script
  flyball simulate hangs --kind graph                 under the safeguards of a graph
  flyball simulate flaps --config flyball.yaml        under my settings
  flyball simulate cascade --units 50 --png out.png   as a picture
  flyball simulate --scenario my-fleet.yaml           units of my own
"""


def _span(_: click.Context, __: click.Parameter, given: str | None) -> Span | None:
    if given is None:
        return None
    try:
        length = parse_span(given)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if length > DAYS_MAX * DAY:
        raise click.BadParameter(f"{given!r} is longer than {DAYS_MAX} days")
    return length


def _days(_: click.Context, __: click.Parameter, given: float | None) -> float | None:
    if given is not None and not (math.isfinite(given) and 0 < given <= DAYS_MAX):
        raise click.BadParameter(f"{given:g} is not between 0 and {DAYS_MAX} days")
    return given


class _Job(NamedTuple):
    """What is to be simulated: the plan, and the kind of each unit (of all that are not named: "")."""

    name: str
    does: str
    plan: Plan
    kinds: Mapping[str, str]


@click.command(epilog=EXAMPLES)
@click.argument("name", metavar="[SCENARIO]", required=False)
@click.option(
    "--scenario", "file", type=click.Path(path_type=Path), metavar="FILE", help="A scenario of your own (YAML)."
)
@click.option("--uptime", callback=_span, metavar="TIME", help="How long each run lives: 0s, 1ms, 29s, 10m, 6h.")
@click.option("--changing-error", is_flag=True, help="Another error each time, instead of the same.")
@click.option("--days", type=float, callback=_days, metavar="N", help="How many days are simulated at most.")
@click.option("--units", type=click.IntRange(1, scenario_file.UNITS_MAX), metavar="N", help="How many units there are.")
@click.option("--kind", type=click.Choice(KINDS), help="The kind of unit: which safeguards it stands under.")
@click.option(
    "--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings; not given: as flyball finds them."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, metavar="N", help="For what is random; 0 if not given.")
@click.option("--starts-max", type=click.IntRange(1, EVENTS_MAX), metavar="N", help="End after so many starts.")
@click.option("--png", type=click.Path(path_type=Path), metavar="FILE", help="Write a picture, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table and a chart.")
def simulate(
    *,
    name: str | None,
    file: Path | None,
    uptime: Span | None,
    changing_error: bool,
    days: float | None,
    units: int | None,
    kind: str | None,
    config: Path | None,
    seed: int,
    starts_max: int | None,
    png: Path | None,
    as_json: bool,
) -> None:
    """Show what the settings do to a unit that misbehaves.

    The safeguards are the real ones, and the waits that they ask for are kept, on a clock that does not need to wait.
    Without a SCENARIO, lists them.
    """
    if name is None and file is None:
        simulate_report.print_scenarios(as_json=as_json)
        return
    options = Options(uptime=uptime, changing_error=changing_error, days=days, units=units, seed=seed)
    job = _from_file(name, file, options, kind) if file is not None else _named(name or "", options, kind)
    if starts_max is not None:
        job = job._replace(plan=replace(job.plan, starts_max=starts_max))
    settings = load(config)
    report = run_plan(_panel(settings, job), app.scratch_store(), job.plan)
    bound = bound_on_starts(settings.policies(_main_kind(job)), app.scratch_store)
    simulated = simulate_report.Simulated(job.name, job.does, _main_kind(job), _origin(settings), report, bound)
    if as_json:
        simulate_report.print_json(simulated)
    else:
        simulate_report.print_text(simulated)
    if png is not None:
        simulate_report.write_picture(simulated, png)
        click.echo(f"wrote {png}", err=True)


def _named(name: str, options: Options, kind: str | None) -> _Job:
    scenario = SCENARIOS.get(name)
    if scenario is None:
        near = difflib.get_close_matches(name, SCENARIOS, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(SCENARIOS)}."
        raise click.UsageError(f"no scenario {name!r}; {hint}")
    for option in ("uptime", "changing_error", "units"):
        if getattr(options, option) not in (None, False) and option not in scenario.takes:
            takes = ", ".join(sorted(_flag(taken) for taken in (*scenario.takes, "days")))
            raise click.UsageError(f"{_flag(option)} means nothing to {name}; it takes {takes}")
    return _Job(name, scenario.does, scenario.plan(options), {"": kind or scenario.kind})


def _from_file(name: str | None, file: Path, options: Options, kind: str | None) -> _Job:
    if name is not None:
        raise click.UsageError(f"either a scenario's name ({name}) or --scenario {file}, not both")
    for option in ("uptime", "changing_error", "units"):
        if getattr(options, option) not in (None, False):
            raise click.UsageError(f"{_flag(option)} belongs into the scenario file")
    if kind is not None:
        raise click.UsageError("--kind belongs into the scenario file")
    scenario = scenario_file.read(file)
    plan = scenario.plan()
    if options.days is not None:
        plan = replace(plan, lasts_max=round(options.days * DAY))
    return _Job(file.stem, f"as {file} has it", plan, {"": scenario.kind, **scenario.kinds()})


def _panel(settings: Settings, job: _Job) -> Panel:
    """With long leases: renewing them every minute changes nothing here but how long a person has to wait."""
    units = {unit: with_long_leases(settings.policies(kind)) for unit, kind in job.kinds.items() if unit}
    return Panel(with_long_leases(settings.policies(_main_kind(job))), units)


def _origin(settings: Settings) -> str:
    """Where the settings come from, in words."""
    changed = any(effective.origin != DEFAULT for effective in settings.effective())
    return settings.source or ("settings of the environment" if changed else "default settings")


def _main_kind(job: _Job) -> str:
    return job.kinds[""]


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")

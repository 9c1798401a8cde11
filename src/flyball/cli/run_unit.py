"""`flyball run`, guarded: from its options to a unit, the settings, a store; then the unit is run to its end."""

import asyncio
import os
from collections.abc import Mapping
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, Final

import click

from flyball import app
from flyball.cli.ask import user_name
from flyball.cli.run_report import Report
from flyball.config import load
from flyball.config.build import unit_policies
from flyball.config.money import exact, micro
from flyball.config.units import RestartWhen, Unit
from flyball.governor import Governor
from flyball.runtimes.foreground import Foreground
from flyball.runtimes.guardian import Guard
from flyball.runtimes.sink import Sink
from flyball.runtimes.terminal import Terminal

STDOUT: Final = 1
STDERR: Final = 2


def run_unit(command: tuple[str, ...], given: Mapping[str, Any]) -> int:
    """Run the command until it is over; the exit code."""
    unit = _unit(command, given)
    settings = load(given["config"])
    guard = Guard(os.environ)
    with closing(app.open_store(settings, os.environ)) as store:
        governor = Governor(settings.policies(), store)
        governor.panel.put(unit.name, unit_policies(settings, unit, budget_by="unit"))
        state = app.state_dir(os.environ)
        return asyncio.run(_run(unit, governor, guard, state, tty=given["tty"], as_json=given["as_json"]))


async def _run(unit: Unit, governor: Governor, guard: Guard, state: Path, *, tty: bool, as_json: bool) -> int:
    terminal_if_any = closing(Terminal()) if tty else nullcontext()
    with terminal_if_any as terminal, closing(Sink(STDOUT)) as output, closing(Sink(STDERR)) as errors:
        report = Report(unit.name, errors, terminal, as_json=as_json)
        foreground = Foreground(
            unit, governor, report, user_name(), state=state, guard=guard, sinks=(output, errors), terminal=terminal
        )
        code = report.over(await foreground.run())
        errors.hurry()
        await errors.written()
        return code


def _unit(command: tuple[str, ...], given: Mapping[str, Any]) -> Unit:
    return Unit(
        name=given["name"],
        command=command,
        labels=given["label"],
        cwd=str(given["cwd"].absolute()) if given["cwd"] else "",
        env=given["env"],
        restart=RestartWhen(given["restart"]),
        continue_args=given["continue_args"],
        grace=given["grace"],
        deadline=given["deadline"],
        idle=given["idle"],
        budget=_millionths(given["budget"]),
    )


def _millionths(given: str | None) -> int:
    """An amount of money; 0 if none was given."""
    if given is None:
        return 0
    try:
        amount = micro(exact(given))
    except ValueError as error:
        raise click.BadParameter(f"{given!r} {error}", param_hint="--budget") from None
    if not amount:
        raise click.BadParameter("0 would let nothing run; give an amount above it", param_hint="--budget")
    return amount

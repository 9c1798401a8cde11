"""`flyball drill`: does every safeguard fire, on this machine and with these settings? Parsing and printing."""

import textwrap
import time
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import click

from flyball.cli import FAILED, FINE
from flyball.cli.show import colour_option, coloured, faint, on_terminal, print_json, strong, width
from flyball.config import load
from flyball.drill.exercise import Exercise
from flyball.drill.exercises import ALL
from flyball.drill.numbers import SAID
from flyball.drill.running import Outcome, Row, run

SUGGESTIONS_MAX: Final = 3
"""Names offered for one that is not known."""
COLUMNS: Final = ("safeguard", "how it was provoked", "fired", "after")
WORDS: Final = {Outcome.FIRED: "healthy", Outcome.NOT_FIRED: "failed", Outcome.LEFT_OUT: "stopped"}
"""The colour of each outcome, by a word that has it."""

EXAMPLES: Final = """\
\b
Examples:
  flyball drill                                  every safeguard, in half a minute or so
  flyball drill --list                           which there are
  flyball drill --only quarantine --only budget  these two
  flyball drill --config flyball.yaml --json     for a script, under other settings

\b
Exit codes:
  0   all that were provoked fired
  1   one of them did not
  2   bad usage or settings
"""


def _names(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    known = [exercise.name for exercise in ALL]
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=SUGGESTIONS_MAX)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}."
            raise click.BadParameter(f"no safeguard {name!r}; {hint}")
    return given


def _complete(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    given = context.params.get("only") or ()
    return [one.name for one in ALL if one.name.startswith(begun) and one.name not in given]


@click.command(epilog=EXAMPLES)
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    callback=_names,
    shell_complete=_complete,
    help="This one; may be repeated.",
)
@click.option(
    "--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings; not given: as flyball finds them."
)
@click.option("--list", "lists", is_flag=True, help="Only say which safeguards there are, and how each is provoked.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@colour_option
def drill(only: tuple[str, ...], config: Path | None, lists: bool, as_json: bool) -> int:
    """Provoke every safeguard, and see it fire: on this machine, with your own numbers.

    In scratch folders, with real processes, a real store, a real daemon and a real kill -9. What you run is not
    touched, and nothing is left behind, also after Ctrl-C. Exits 0 only if all fired.
    """
    chosen = [exercise for exercise in ALL if not only or exercise.name in only]
    if lists:
        _list(chosen, as_json=as_json)
        return FINE
    numbers = load(config)
    if not as_json:
        click.echo(faint(f"{numbers.source or 'No settings file: the defaults'}. {SAID}"))
    began = time.monotonic()
    progress = _Progress(len(chosen), shown=not as_json and on_terminal())
    try:
        rows = run(chosen, numbers, progress)
    finally:
        progress.clear()
    took = time.monotonic() - began
    fired = sum(row.outcome is Outcome.FIRED for row in rows)
    missed = sum(row.outcome is Outcome.NOT_FIRED for row in rows)
    if as_json:
        print_json(
            {
                "ok": not missed,
                "fired": fired,
                "not_fired": missed,
                "left_out": len(rows) - fired - missed,
                "seconds": round(took, 3),
                "settings": numbers.source,
                "safeguards": [_data(row) for row in rows],
            }
        )
    else:
        _print(rows)
        left = f", {len(rows) - fired - missed} left out" if fired + missed < len(rows) else ""
        said = f"{fired} of {fired + missed} fired{left}, in {took:.0f} s."
        click.echo(coloured(said, "failed" if missed else "healthy", bold=True))
    return FAILED if missed else FINE


class _Progress:
    """One line that changes, on a terminal."""

    def __init__(self, rows: int, *, shown: bool) -> None:
        self._rows, self._done, self._shown = rows, 0, shown
        self._say("")

    def __call__(self, row: Row) -> None:
        self._done += 1
        self._say(f": {row.exercise.name} {row.outcome}")

    def clear(self) -> None:
        if self._shown:
            click.echo("\r\x1b[K", nl=False)

    def _say(self, text: str) -> None:
        if self._shown:
            line = f"{self._done} of {self._rows}{text}"[: (width() or 80) - 1]
            click.echo(f"\r\x1b[K{faint(line)}", nl=False)


def _list(exercises: Sequence[type[Exercise]], *, as_json: bool) -> None:
    if as_json:
        print_json([{"name": one.name, "policy": _policy(one), "how": one.how} for one in exercises])
        return
    name = max(len(one.name) for one in exercises)
    for one in exercises:
        click.echo(f"{one.name:<{name}}  {one.how}")


def _policy(exercise: Exercise | type[Exercise]) -> str | None:
    return exercise.policy.__name__ if exercise.policy is not None else None


def _data(row: Row) -> dict[str, Any]:
    return {
        "name": row.exercise.name,
        "policy": _policy(row.exercise),
        "how": row.exercise.how,
        "outcome": str(row.outcome),
        "after_seconds": None if row.after is None else round(row.after, 3),
        "seen": row.text,
    }


def _print(rows: Sequence[Row]) -> None:
    """The table. Long sentences are folded to the terminal; of what did not fire it is told what was seen."""
    name = max(len(COLUMNS[0]), *(len(row.exercise.name) for row in rows))
    wide = width()
    how = max(len(COLUMNS[1]), *(len(row.exercise.how) for row in rows))
    if wide is not None:
        how = max(24, min(how, wide - name - 22))
    click.echo(strong(f"{COLUMNS[0]:<{name}}  {COLUMNS[1]:<{how}}  {COLUMNS[2]:<9}  {COLUMNS[3]}"))
    for row in rows:
        first, *more = textwrap.wrap(row.exercise.how, how)
        after = "" if row.after is None else f"{row.after:.2f} s"
        outcome = coloured(f"{row.outcome:<9}", WORDS[row.outcome])
        click.echo(f"{row.exercise.name:<{name}}  {first:<{how}}  {outcome}  {after}".rstrip())
        for line in more:
            click.echo(f"{'':<{name}}  {line}")
        if row.outcome is not Outcome.FIRED:
            for line in textwrap.wrap(row.text, max(40, (wide or 100) - name - 2)):
                click.echo(f"{'':<{name}}  {coloured(line, WORDS[row.outcome])}")

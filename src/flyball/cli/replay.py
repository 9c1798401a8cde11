"""`flyball replay`: what would other settings have made of what happened? Parsing and reading here, printing in
replay_report."""

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, TypeVar

import click
import msgspec

from flyball import app
from flyball.cli import FAILED, FINE, replay_report
from flyball.cli.replay_report import Compared, Differing
from flyball.config import DEFAULT, Settings, definitions, load
from flyball.config.build import KINDS, unit_policies
from flyball.core.event import Step, Stepped
from flyball.core.panel import Panel
from flyball.core.policy import AnyPolicy
from flyball.core.time import SECOND, Instant, parse_span
from flyball.errors import FlyballError
from flyball.policies import Stall
from flyball.replay import export, recorded
from flyball.replay.export import Told, told
from flyball.replay.history import Course, Record, Window
from flyball.replay.journal import NO_STATES
from flyball.replay.lines import Lines
from flyball.replay.recorded import RecordedRun, Runs
from flyball.store import Snapshot, Store

T = TypeVar("T")
Named = list[tuple[str, Settings]]
"""Settings with their names: the present ones, and the others."""
Kept = Mapping[str, Sequence[AnyPolicy]]
"""Units that programs define, with their policies as those keep them in the store."""
NOTHING_KEPT: Final[Kept] = {}

CHUNK_MAX: Final = 5_000
"""Entries in memory at a time."""
QUIET_SECONDS: Final = 2.0
"""Before anything is said about how far it got, and between two such lines; where they stay, on no terminal, longer."""
QUIET_LOG_SECONDS: Final = 10.0

EXAMPLES: Final = """\
\b
Examples:
  flyball replay                                   does my journal come out the same again?
  flyball replay --with strict.yaml                what would strict.yaml have made of it?
  flyball replay --since 7d --with strict.yaml     of the last week
  flyball replay RUNS.jsonl.gz --with strict.yaml  of runs that were recorded elsewhere
  flyball events --since 1d --json > day.jsonl     write a journal out,
  flyball replay day.jsonl --with strict.yaml      and replay it anywhere
  zcat RUNS.jsonl.gz | flyball replay - --json     for a script

\b
Exit codes: 0 it ran, whatever came out; 1 with --check, decisions differ; 2 bad input.
"""


def _since(_: click.Context, __: click.Parameter, given: str | None) -> Instant | None:
    if given is None:
        return None
    try:
        return max(0, round(time.time() * SECOND) - parse_span(given))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(epilog=EXAMPLES)
@click.argument("file", required=False)
@click.option("--since", callback=_since, metavar="TIME", help="Count what is not older than this: 10m, 1h, 7d.")
@click.option("--with", "other", type=click.Path(path_type=Path), metavar="FILE", help="The other settings.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The present ones; not given: as flyball finds them.",
)
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    default="agent",
    help="The kind of recorded runs, and of units that report steps and are not in the settings; agent if not given.",
)
@click.option("--skip-broken", is_flag=True, help="Leave broken lines out, and say how many, instead of ending.")
@click.option("--check", is_flag=True, help="Exit 1 if a decision of the journal differs under the present settings.")
@click.option("--plain", is_flag=True, help="No chart.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables and a chart.")
def replay(
    *,
    file: str | None,
    since: Instant | None,
    other: Path | None,
    config: Path | None,
    kind: str,
    skip_broken: bool,
    check: bool,
    plain: bool,
    as_json: bool,
) -> int:
    """Show what other settings would have made of what happened: who would have been stopped, refused, held or told,
    when, what that would have saved, and what it would have cost.

    FILE has recorded runs or a journal written out by `flyball events --json`, one JSON object a line, plain or
    gzipped; - is stdin. Without FILE it is the journal of this machine. Nothing is changed by it.
    """
    present = load(config)
    settings: Named = [(_name(present), present)]
    if other is not None:
        settings.append((str(other), load(other)))
    if file is None:
        compared = _own_journal(settings, since, kind, named=config is not None)
        if compared is None:
            click.echo("Nothing ran here yet.")
            return FINE
    else:
        with closing(Lines(file)) as lines:
            compared = _file(lines, settings, since, kind, skip=skip_broken)
    if as_json:
        replay_report.print_json(compared)
    else:
        replay_report.print_text(compared, chart=not plain)
    return FAILED if check and compared.differing is not None and compared.differing.number else FINE


def _name(settings: Settings) -> str:
    """Where settings come from, in words."""
    changed = any(effective.origin != DEFAULT for effective in settings.effective())
    return settings.source or ("the environment" if changed else "default settings")


# Files.


def _file(lines: Lines, settings: Named, since: Instant | None, kind: str, *, skip: bool) -> Compared:
    first = next(iter(lines), None)
    if first is None:
        raise FlyballError(f"{lines.name}: there is nothing in it", remedy="Give a file of JSON lines.")
    try:
        keys = msgspec.json.decode(first[1], type=dict[str, msgspec.Raw]).keys()
    except msgspec.MsgspecError as error:
        raise _strange(lines, first[0], str(error)) from None
    if "steps" in keys:
        if since is not None:
            raise click.UsageError("--since is for journals: recorded runs do not say when they were")
        return _runs(lines, settings, kind, skip=skip)
    if {"seq", "data"} <= keys:
        return _exported(lines, settings, since, kind, skip=skip)
    raise _strange(lines, first[0], f"it has the keys {', '.join(keys) or 'of nothing'}")


def _strange(lines: Lines, number: int, problem: str) -> FlyballError:
    return FlyballError(
        f"{lines.name}:{number}: neither a recorded run nor an entry of a journal: {problem}",
        remedy='A recorded run is {"source", "run", "steps": [{"tool", "args", "result", "error", "reward"}]}; '
        "a journal is written out by `flyball events --json`.",
    )


def _runs(lines: Lines, settings: Named, kind: str, *, skip: bool) -> Compared:
    sides = [Runs("recorded", None), *(Runs(name, Panel(own.policies(kind))) for name, own in settings)]
    count = rated = idle = 0
    for run in _told_of(recorded.read(lines, skip=skip), "runs"):
        count += 1
        rated += run.rated
        idle += _idle(run)
        works = run.works()
        for side in sides:
            side.hear(run, works)
    return Compared(
        kind="runs",
        name=lines.name,
        total=count,
        broken=lines.broken,
        sides=[side.side for side in sides],
        rated=rated,
        idle=idle,
        notes=[f"Each run is judged by itself, as a unit of kind {kind}."],
    )


def _idle(run: RecordedRun) -> int:
    """Steps after the last gain: what could have been saved at best."""
    return len(run.steps) - run.last_gain if run.rated else 0


def _exported(lines: Lines, settings: Named, since: Instant | None, kind: str, *, skip: bool) -> Compared:
    def entries() -> Iterator[Told]:
        return export.read(lines, skip=skip)

    first = next(entries(), None)
    notes = []
    if first is not None and first.seq > 1:
        notes = [
            f"It begins with entry {first.seq}: what was known before is not in it, so decisions may differ at first."
        ]
    nothing = [NOTHING_KEPT] * len(settings)
    compared = _journal(entries, NO_STATES, settings, since, kind, kept=nothing, allowances=False)
    return compared._replace(kind="export", name=lines.name, broken=lines.broken, notes=[*notes, *compared.notes])


# Journals.


def _own_journal(settings: Named, since: Instant | None, kind: str, *, named: bool) -> Compared | None:
    if app.is_fresh(settings[0][1], os.environ):
        return None
    with closing(app.open_store(settings[0][1], os.environ)) as store:
        base, last = store.base(), store.read(()).seq
        defined = {
            key.subject: definitions.read(key.subject, data) for key, data in store.states(definitions.NAME).items()
        }
        # As their programs keep them, where it is not said which settings are meant: so the command line judges, too.
        kept = [_under(own, kind, defined) if place or named else defined for place, (_, own) in enumerate(settings)]

        def entries() -> Iterator[Told]:
            return _entries(store, base, last)

        name = app.store_name(settings[0][1], os.environ)
        return _journal(entries, base, settings, since, kind, kept=kept)._replace(name=name)


def _entries(store: Store, base: Snapshot, last: int) -> Iterator[Told]:
    """The entries after the base, up to the last one that was there at first."""
    after = base.seq
    while after < last:
        for entry in store.entries(after=after, limit=min(CHUNK_MAX, last - after)):
            if entry.seq != after + 1:
                raise FlyballError(
                    f"the journal was trimmed while it was read: entry {after + 1} is gone", remedy="Try again."
                )
            after = entry.seq
            yield told(entry)


def _journal(
    entries: Callable[[], Iterable[Told]],
    base: Snapshot,
    settings: Named,
    since: Instant | None,
    kind: str,
    *,
    kept: Sequence[Kept],
    allowances: bool = True,
) -> Compared:
    """Twice through it: who reports steps, and from when to when; then under each of the settings."""
    agents: set[str] = set()
    first, last, count = math.inf, 0, 0
    for entry in _told_of(entries(), "entries read"):
        first, last, count = min(first, entry.at), entry.at, count + 1
        if isinstance(entry.event, Step | Stepped):
            agents.add(entry.event.unit)
    window = Window(since if since is not None else int(first) if count else 0, last)
    record = Record("recorded", window)
    courses = [
        Course(name, _panel(own, agents, kind, defined), base, window, allowances=allowances)
        for (name, own), defined in zip(settings, kept, strict=True)
    ]
    for entry in _told_of(entries(), "entries"):
        record.hear(entry)
        for course in courses:
            course.hear(entry)
    present = courses[0]
    place = None if present.first is None else (present.first.seq, present.first.at, present.first.event.unit)
    return Compared(
        kind="journal",
        name="",
        total=count,
        broken=0,
        sides=[record.side, *(course.side for course in courses)],
        window=window,
        differing=Differing(present.differing, present.weighed, place),
        notes=[],
    )


def _panel(settings: Settings, agents: set[str], kind: str, kept: Kept) -> Panel:
    named = {
        unit.name: definitions.with_labelled(unit_policies(settings, unit), kept.get(unit.name, ()))
        for unit in settings.units
    }
    stepping = settings.policies(kind)
    return Panel(settings.policies(), {**dict.fromkeys(agents, stepping), **kept, **named})


def _under(settings: Settings, kind: str, kept: Kept) -> Kept:
    """Units that programs define, under other settings: these say what holds for every unit of its kind; what a program
    says of its own unit beyond that (its budget, its deadline) stays."""

    def changed(policies: Sequence[AnyPolicy]) -> Sequence[AnyPolicy]:
        usual = settings.policies(kind if any(isinstance(policy, Stall) for policy in policies) else "process")
        said = {(policy.name, policy.by) for policy in usual}
        return (*usual, *(policy for policy in policies if (policy.name, policy.by) not in said))

    return {unit: changed(policies) for unit, policies in kept.items()}


# How far it got.


def _told_of(items: Iterable[T], what: str) -> Iterator[T]:
    """The items; when they take long, with a line on stderr now and then."""
    spoken = time.monotonic()
    shown = sys.stderr.isatty()
    quiet = QUIET_SECONDS if shown else QUIET_LOG_SECONDS
    count = 0
    for count, item in enumerate(items, 1):
        yield item
        if time.monotonic() - spoken > quiet:
            spoken = time.monotonic()
            click.echo(f"\r… {count:,} {what}" if shown else f"… {count:,} {what}", err=True, nl=not shown)
    if shown and count:
        click.echo("\r\033[K", err=True, nl=False)

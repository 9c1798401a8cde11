"""The settings' sections `units` and `groups`: what may be said of a unit, and how it becomes a `Unit`.

Lengths of time are given as `10s`, `5m`, `1h30m`, or as a number of seconds; amounts of memory as `512M`.
"""

import re
import shlex
import signal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from flyball.config.components import clash
from flyball.config.money import micro
from flyball.config.section import SECONDS_MAX, CountFromZero, Money, Section, contradiction
from flyball.config.units import (
    LOG_BYTES_MAX,
    LOG_FILES_MAX,
    Group,
    OnSupervisorDeath,
    Probe,
    RestartWhen,
    Strategy,
    Unit,
)
from flyball.core.name import IN_WORDS, NAME, is_name
from flyball.core.preflight import find_circle
from flyball.core.time import SECOND, Span, format_span, parse_span, span

UNITS_MAX: Final = 10_000
"""Units of one file. Each is a driver and a process: more do not fit on one machine."""
WORDS_MAX: Final = 1_000
"""Words of a command, variables, labels, names in a list: far below what the kernel takes."""
TEXT_MAX: Final = 32_768
"""Characters of one word. The kernel takes 131,072 bytes."""
MEMORY_MAX: Final = 2**50
"""A pebibyte: what is above it is a slip of the keyboard."""
PRIORITY_MAX: Final = 100
"""Enough to put some in between later."""
ONLY_OF_SESSIONS: Final = ("steps", "resumes", "priority")
SIZES: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
BY_NAME: Final = {"default": {}, "propertyNames": {"pattern": f"^{NAME.pattern}$"}}
_SIZE: Final = re.compile(r"(\d{1,15})\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


def words_of(given: object) -> object:
    """A command as a list, or as one line in the manner of a shell."""
    if isinstance(given, str):
        try:
            return tuple(shlex.split(given))
        except ValueError as error:
            raise ValueError(f"should be a command: {error}") from None
    if isinstance(given, list | tuple):
        return tuple(str(word) if isinstance(word, int) and not isinstance(word, bool) else word for word in given)
    return given


def _length(given: object) -> Span:
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise ValueError("should be a length of time such as 10s, 5m or 1h30m, or a number of seconds")
    if isinstance(given, str):
        try:
            length = _parsed(given)
        except ValueError:
            raise ValueError("should be a length of time such as 500ms, 10s, 5m or 1h30m") from None
    else:
        # Not a number, or beyond all bounds: neither is a whole number of microseconds.
        length = span(given) if 0 <= given <= SECONDS_MAX else -1
    if not 0 <= length <= SECONDS_MAX * SECOND:
        raise ValueError("should be a length of time from 0 to ten years")
    return length


_parsed: Final = lru_cache(maxsize=1_000)(parse_span)
"""Of ten thousand rules most have one of a few lengths."""


def _bytes(given: object) -> int:
    if isinstance(given, int) and not isinstance(given, bool):
        size = given
    elif isinstance(given, str) and (found := _SIZE.fullmatch(given.strip())):
        size = int(found[1]) * SIZES[found[2].upper()]
    else:
        raise ValueError("should be an amount of memory such as 512M or 2G, or a number of bytes")
    if not 0 <= size <= MEMORY_MAX:
        raise ValueError("should be from 0 to 1024T")
    return size


def _signal(given: object) -> int:
    name = given.upper() if isinstance(given, str) else given
    if isinstance(name, str):
        found = getattr(signal.Signals, name if name.startswith("SIG") else f"SIG{name}", None)
        if found is not None:
            return int(found)
    elif isinstance(name, int) and not isinstance(name, bool) and name in set(signal.Signals):
        return name
    raise ValueError("should be the name of a signal such as SIGTERM or SIGINT")


def _variables(given: object) -> object:
    """Values may be numbers; they are text to a process. The value itself is never repeated."""
    if not isinstance(given, Mapping):
        return given
    texts = {}
    for name, value in given.items():
        if "\0" in str(value) or isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"should have text for {name} (in quotes, if it looks like something else)")
        texts[name] = str(value)
    return texts


Word = Annotated[str, Field(max_length=TEXT_MAX, pattern=r"^[^\x00]*$", json_schema_extra={"$comment": "text"})]
Words = Annotated[
    tuple[Word, ...],
    BeforeValidator(words_of),
    Field(strict=False, max_length=WORDS_MAX),
    WithJsonSchema(
        {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": ["string", "integer"]}}],
            "$comment": "a command line, or a list of its words",
        }
    ),
]
LENGTH_WORDS: Final = "a length of time such as 10s, 5m or 1h30m, or a number of seconds"
Length = Annotated[
    int,
    BeforeValidator(_length),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": SECONDS_MAX},
                {"type": "string", "pattern": r"^\s*\d"},
            ],
            "$comment": LENGTH_WORDS,
        }
    ),
]
Bytes = Annotated[
    int,
    BeforeValidator(_bytes),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^\s*\d"}],
            "$comment": "an amount such as 512M or 2G, or a number of bytes",
        }
    ),
]
SignalName = Annotated[
    int,
    BeforeValidator(_signal),
    WithJsonSchema({"type": ["string", "integer"], "$comment": "a signal such as SIGTERM or SIGINT"}),
]
Names = Annotated[tuple[Word, ...], Field(strict=False, max_length=WORDS_MAX)]
Variables = Annotated[
    dict[str, str],
    BeforeValidator(_variables),
    Field(max_length=WORDS_MAX),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {"type": ["string", "number"]},
            "$comment": "variables, each with its text",
        }
    ),
]


class ProbeSection(Section):
    """How to find out whether a unit is alive, from outside."""

    command: Words = ()
    """A command that exits with 0."""
    http: Word = ""
    """A URL that answers with a status below 400."""
    tcp: Word = ""
    """host:port that accepts a connection."""
    every: Length = 10 * SECOND
    """How often."""
    timeout: Length = 5 * SECOND
    """How long one may take."""
    failures_max: Annotated[int, Field(ge=1, le=1000)] = 3
    """So many failing ones in a row: hung."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if sum(map(bool, (self.command, self.http, self.tcp))) != 1:
            raise contradiction((), "give one of command, http and tcp")
        if self.http and not re.match(r"https?://[^/\s]+", self.http):
            raise contradiction("http", "should be a URL such as http://127.0.0.1:8080/health")
        if self.tcp and not re.fullmatch(r"\S+:\d{1,5}", self.tcp):
            raise contradiction("tcp", "should be a host and a port, such as 127.0.0.1:5432")
        for key in ("every", "timeout"):
            if not getattr(self, key):
                raise contradiction(key, "0 is no time; give one such as 5s")
        return self

    def probe(self) -> Probe:
        """The same as a value."""
        return Probe(**dict(self))


class UnitSection(Section):
    """Something to run, and how."""

    command: Words = ()
    """What to run: a list of words, or one line, which is taken apart as a shell does; no shell runs it."""
    kind: Literal["process", "agent", "session"] = "process"
    """An agent reports its steps: loops and stalls are looked for. A session is a piece of work that keeps checkpoints,
    may pause, and is resumed until it is done."""
    labels: Annotated[dict[str, Word], Field(max_length=WORDS_MAX)] = {}
    """Labels such as provider or user: safeguards may count by them."""
    cwd: Word = ""
    """The folder to run in; a relative one is beside this file. Not given: where flyball was started."""
    env: Variables = {}
    """Variables on top of flyball's own. ${NAME} stands for a variable of flyball's. Values are never shown."""
    env_file: Word = ""
    """A file with NAME=VALUE lines; a relative one is beside this file. `env` wins over it."""
    user: Word = ""
    """The user to run as."""
    group: Word = ""
    """The user group to run as."""
    nice: Annotated[int, Field(ge=-20, le=19)] = 0
    """Its niceness."""
    memory_max: Bytes = 0
    """Address space of each of its processes; 0: no limit."""
    files_max: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """Open files of each of its processes; 0: no limit."""
    restart: Literal["on-failure", "always", "never"] = "on-failure"
    """After which exits it is started again by itself."""
    continue_args: Words = ()
    """Added to the command after a failure, and when a session is resumed, so that it goes on where it was."""
    stop_signal: SignalName = int(signal.SIGTERM)
    """What asks it to end."""
    grace: Length = 10 * SECOND
    """How long it has to end before it is killed."""
    deadline: Length = 0
    """How long one run may last; 0: for ever, of a session `graph.timeout_seconds`."""
    idle: Length = 0
    """How long it may give no sign of life (output, notification, step, beat_file); 0: for ever."""
    budget: Money = Decimal(0)
    """What one run may report as spent, or a session in all of its runs; 0: no budget, of a session the settings'."""
    steps: CountFromZero = 0
    """How many steps a session may make in all of its runs; 0: `graph.recursion_limit`."""
    resumes: CountFromZero | None = None
    """How often a session may be resumed; 0: never. Not given: `daemon.sessionRecovery.maxResumeAttempts`."""
    priority: Annotated[int, Field(ge=0, le=PRIORITY_MAX)] = 0
    """Of sessions that are to be resumed at the same time, those with a higher one come first."""
    watchdog: Length = 0
    """It has to say WATCHDOG=1 on its notify socket this often; 0: it need not."""
    ready: Literal["started", "notify", "probe"] = "started"
    """When it counts as up: as soon as it is started, when it says READY=1 on its notify socket, or when its probe
    succeeds for the first time."""
    probe: ProbeSection | None = None
    """How to find out whether it is alive, from outside."""
    beat_file: Word = ""
    """A file that it touches to show that it is alive; judged by `idle`."""
    after: Names = ()
    """Units that have to be up before this one is started."""
    on_supervisor_death: Literal["end", "keep"] = "end"
    """What becomes of it when flyball is killed: it ends too, or lives on and is adopted by the next flyball."""
    log_bytes_max: Annotated[Bytes, Field(ge=1024)] = LOG_BYTES_MAX
    """Bytes of one file of its output."""
    log_files_max: Annotated[int, Field(ge=1, le=1000)] = LOG_FILES_MAX
    """Files of its output that are kept."""
    host: Word = ""
    """The only host of a fleet that may run it; not given: any. Units that stand after one another or in one group run
    on one host."""
    host_labels: Annotated[dict[str, Word], Field(max_length=WORDS_MAX)] = {}
    """What a host must have (`host.labels`) to run it."""

    @model_validator(mode="after")
    def _has_a_command(self) -> Self:
        if not self.command or not self.command[0]:
            raise contradiction((), "has no command; give one, such as `command: [python3, agent.py]`")
        if self.beat_file and not self.idle:
            raise contradiction("beat_file", "is judged by `idle`, which is not given")
        if self.ready == "probe" and self.probe is None:
            raise contradiction("ready", "it has no `probe` to be ready by")
        return self

    @model_validator(mode="after")
    def _is_a_session(self) -> Self:
        if self.kind == "session" and self.restart == "always":
            text = "a session that is done stays so; give on-failure or never, or make it a process"
            raise contradiction("restart", text)
        for key in () if self.kind == "session" else ONLY_OF_SESSIONS:
            if key in self.model_fields_set:
                raise contradiction(key, "is for sessions only: give `kind: session`, or leave it out")
        return self

    def unit(self, name: str) -> Unit:
        """The same as a value."""
        fields = {key: value for key, value in self if key != "env_file"}
        fields |= {
            "restart": RestartWhen(self.restart),
            "on_supervisor_death": OnSupervisorDeath(self.on_supervisor_death),
            "budget": micro(self.budget),
            "probe": self.probe.probe() if self.probe else None,
        }
        return Unit(name=name, **fields)


class GroupSection(Section):
    """Units that are restarted together."""

    strategy: Literal["one-for-one", "all-for-one", "rest-for-one"] = "one-for-one"
    """Who is restarted when one of them fails: it alone, all, or it and those that stand after it."""
    units: Names = ()
    """The units, in order."""


def _as_units(sections: Mapping[str, UnitSection]) -> tuple[Unit, ...]:
    return tuple(section.unit(name) for name, section in sections.items())


def _as_groups(sections: Mapping[str, GroupSection]) -> tuple[Group, ...]:
    return tuple(Group(name, Strategy(section.strategy), section.units) for name, section in sections.items())


LENGTHS: Final = ("grace", "deadline", "idle", "watchdog", "every", "timeout")
HIDDEN: Final = "(not shown)"


def _units_shown(units: Sequence[Unit]) -> dict[str, Any]:
    """As they are printed: without the values of variables."""
    return {unit.name: _unit_shown(unit) for unit in units}


def _unit_shown(unit: Unit) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for key in UnitSection.model_fields:
        if key == "env_file":
            continue
        value = getattr(unit, key)
        shown[key] = [*value] if isinstance(value, tuple) else format_span(value) if key in LENGTHS else value
    shown["env"] = dict.fromkeys(unit.env, HIDDEN)
    shown["labels"] = dict(unit.labels)
    shown["stop_signal"] = signal.Signals(unit.stop_signal).name
    shown["budget"] = str(Decimal(unit.budget) / 1_000_000)
    if unit.probe is not None:
        probe = {key: getattr(unit.probe, key) for key in ProbeSection.model_fields}
        shown["probe"] = {
            key: [*value] if isinstance(value, tuple) else format_span(value) if key in LENGTHS else value
            for key, value in probe.items()
        }
    return shown


def _groups_shown(groups: Sequence[Group]) -> dict[str, Any]:
    return {group.name: {"strategy": group.strategy.value, "units": [*group.units]} for group in groups}


if TYPE_CHECKING:
    UnitsGiven = tuple[Unit, ...]
    GroupsGiven = tuple[Group, ...]
else:
    # In a file they are sections by name; in the program they are values that know their names.
    UnitsGiven = Annotated[
        dict[str, UnitSection],
        Field(max_length=UNITS_MAX, json_schema_extra=BY_NAME),
        AfterValidator(_as_units),
        PlainSerializer(_units_shown),
    ]
    GroupsGiven = Annotated[
        dict[str, GroupSection],
        Field(max_length=UNITS_MAX, json_schema_extra=BY_NAME),
        AfterValidator(_as_groups),
        PlainSerializer(_groups_shown),
    ]


def fit_together(units: Sequence[Unit], groups: Sequence[Group]) -> tuple[Unit, ...]:
    """The units, each with the group that it belongs to. Raises what is wrong with the names that they give."""
    after = {unit.name: unit.after for unit in units}
    for section, names in (("units", after), ("groups", [group.name for group in groups])):
        for name in names:
            if not is_name(name):
                raise contradiction((section, name), f"a name has {IN_WORDS}")
    for name, others in after.items():
        for place, other in enumerate(others):
            if other not in after:
                raise contradiction(("units", name, "after", place), f"there is no unit {other!r}")
    if circle := find_circle(after):
        raise contradiction(
            ("units", circle[0], "after"), f"they wait for each other: {' after '.join([*circle, circle[0]])}"
        )
    team = _teams(groups, after)
    if odds := clash(units, groups):
        raise contradiction(("units", odds.second, odds.key), odds.text)
    return tuple(replace(unit, team=team.get(unit.name, "")) for unit in units)


def _teams(groups: Sequence[Group], known: Collection[str]) -> dict[str, str]:
    team: dict[str, str] = {}
    for group in groups:
        for place, name in enumerate(group.units):
            where = ("groups", group.name, "units", place)
            if name not in known:
                raise contradiction(where, f"there is no unit {name!r}")
            if name in team:
                raise contradiction(where, f"{name!r} is in the group {team[name]!r} already")
            team[name] = group.name
    return team

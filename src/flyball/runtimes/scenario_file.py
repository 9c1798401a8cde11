"""A scenario of one's own, from YAML: units with their lives, what the supervisor suffers and what people order.

Unknown and wrong keys are errors that say where and what is allowed. Nothing is guessed.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_type_hints

import msgspec
import yaml

from flyball.config.money import exact, micro
from flyball.core.decision import Verb
from flyball.core.event import Cause, Held, Released, Work
from flyball.core.time import FOREVER, Span, parse_span
from flyball.errors import SettingsError
from flyball.runtimes.simulation import STARTS_MAX, Crash, Life, Lives, Plan, Unit

BYTES_MAX: Final = 1_000_000
"""A scenario is written by hand: a larger file is not one."""
UNITS_MAX: Final = 1_000
"""Units of one scenario, copies included."""

NESTED_MAX: Final = 32
"""Levels of lists and mappings within each other: a scenario has ten."""

Kind = Literal["process", "agent", "rule", "graph", "session"]


class Length:
    """A length of time, as a person writes it: 29s, 1h30m, or a number of seconds."""

    def __init__(self, given: object) -> None:
        if isinstance(given, bool) or not isinstance(given, str | int | float):
            raise ValueError("should be a length of time such as 500ms, 29s, 10m, 6h, 1d or 1h30m")
        self.span: Span = parse_span(str(given))


class Money:
    """US dollars, as a person writes them."""

    def __init__(self, given: object) -> None:
        self.micro: int = micro(exact(given))


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every part of the file: a key that is not known is an error."""


class StepPart(_Part, frozen=True, kw_only=True):
    """One step, made in turn with the others. `{n}` in a text is the number of the step."""

    pattern: str = ""
    call: str = ""
    result: str = ""
    world: str = ""
    error: bool = False
    polling: bool = False
    cost: Money = Money(0)
    """The worst case, reserved before the step."""
    used: Money | None = None
    """What it really costs; not given: the worst case."""
    gauges: dict[str, float] = {}

    def work(self) -> Work:
        reserved = {"usd": self.cost.micro} if self.cost.micro else {}
        used = reserved if self.used is None else {"usd": self.used.micro}
        return Work(
            pattern=self.pattern,
            call=self.call,
            result=self.result,
            world=self.world,
            error=self.error,
            polling=self.polling,
            reserved=reserved,
            used=used,
            gauges=self.gauges,
        )


class RunPart(_Part, frozen=True, kw_only=True):
    """One run: how long it lives, and how it ends."""

    uptime: Length = Length(0)
    hangs: bool = False
    cause: Literal["done", "stopped", "error", "timeout", "starved"] = "error"
    error: str = "Error"
    steps: Annotated[tuple[StepPart, ...], msgspec.Meta(max_length=1_000)] = ()
    pace: Length = Length(1)

    def life(self) -> Life:
        return Life(
            uptime=FOREVER if self.hangs else self.uptime.span,
            cause=Cause(self.cause),
            error=self.error,
            steps=tuple(step.work() for step in self.steps),
            pace=self.pace.span,
        )


class UnitPart(_Part, frozen=True, kw_only=True):
    """A unit, or several that are alike."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    runs: Annotated[tuple[RunPart, ...], msgspec.Meta(min_length=1, max_length=1_000)]
    """How its successive runs go. After the last one: `then`."""
    then: Literal["last", "again"] = "last"
    """The last of its runs repeats, or all of them from the first."""
    kind: Kind | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=UNITS_MAX)] = 1
    labels: dict[str, str] = {}
    starts_at: Length = Length(0)
    every: Length = Length(0)
    resumes_after: Length = Length(0)
    released_after: Length = Length(0)
    releases_max: Annotated[int, msgspec.Meta(ge=0)] = 0

    def units(self) -> Iterator[Unit]:
        for number in range(self.count):
            yield Unit(
                name=self.name if self.count == 1 else f"{self.name}-{number + 1}",
                lives=_lives(tuple(run.life() for run in self.runs), again=self.then == "again"),
                labels=self.labels,
                starts_at=self.starts_at.span,
                every=self.every.span,
                resumes_after=self.resumes_after.span,
                released_after=self.released_after.span,
                releases_max=self.releases_max,
            )


class CrashPart(_Part, frozen=True, kw_only=True):
    """The supervisor is killed, and boots again after `down`."""

    at: Length
    down: Length = Length(10)


class OrderPart(_Part, frozen=True, kw_only=True):
    """What a person orders; without a unit, for all."""

    at: Length
    order: Literal["release", "hold", "stop", "finish"]
    unit: str = ""

    def event(self) -> Held | Released:
        scope = "unit" if self.unit else "fleet"
        if self.order == "release":
            return Released(unit=self.unit, scope=scope, by="a person")
        return Held(unit=self.unit, scope=scope, verb=Verb[self.order.upper()], by="a person")


class ScenarioFile(_Part, frozen=True, kw_only=True):
    """The whole file."""

    units: Annotated[tuple[UnitPart, ...], msgspec.Meta(min_length=1, max_length=UNITS_MAX)]
    kind: Kind = "process"
    """Of the units that do not say otherwise."""
    lasts: Length = Length("30d")
    starts_max: Annotated[int, msgspec.Meta(ge=1)] = STARTS_MAX
    crashes: tuple[CrashPart, ...] = ()
    people: tuple[OrderPart, ...] = ()

    def plan(self) -> Plan:
        return Plan(
            units=[unit for part in self.units for unit in part.units()],
            crashes=tuple(Crash(crash.at.span, crash.down.span) for crash in self.crashes),
            orders=tuple((person.at.span, person.event()) for person in self.people),
            lasts_max=self.lasts.span,
            starts_max=self.starts_max,
        )

    def kinds(self) -> Mapping[str, str]:
        """The kind of each unit."""
        return {unit.name: part.kind or self.kind for part in self.units for unit in part.units()}


def _lives(lives: tuple[Life, ...], *, again: bool) -> Lives:
    return lambda n, _: lives[n % len(lives)] if again else lives[min(n, len(lives) - 1)]


_OPENING: Final = (
    yaml.FlowSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.BlockMappingStartToken,
)
_CLOSING: Final = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken)

_PARTS: Final[Mapping[str, type[_Part]]] = {
    "": ScenarioFile,
    "units": UnitPart,
    "runs": RunPart,
    "steps": StepPart,
    "crashes": CrashPart,
    "people": OrderPart,
}
"""What is found in the list of each name."""


def read(path: Path) -> ScenarioFile:
    """The scenario in a file. SettingsError says what is wrong with it, where, and what is allowed."""
    try:
        data = path.read_bytes()
        if len(data) > BYTES_MAX:
            raise SettingsError([f"{path}: {len(data)} bytes; a scenario has at most {BYTES_MAX}"])
        text = data.decode()
    except OSError as error:
        raise SettingsError([f"{path}: {error.strerror or error}"]) from None
    except UnicodeDecodeError as error:
        raise SettingsError([f"{path}: it is not UTF-8 text: {error.reason} at byte {error.start}"]) from None
    return parse(text, str(path))


def parse(text: str, name: str) -> ScenarioFile:
    """The scenario in a text; `name` stands in the messages."""
    try:
        _refuse_traps(text, name)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_doubles(root, name)
        given = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        raise SettingsError([f"{where}: {error.problem or 'it is not YAML'}"]) from None
    except yaml.YAMLError as error:
        raise SettingsError([f"{name}: {error}"]) from None
    if not isinstance(given, dict):
        raise SettingsError([f"{name}:1:1: a scenario is a mapping with `units`; see examples/scenarios"])
    try:
        scenario = msgspec.convert(given, ScenarioFile, dec_hook=_custom)
    except msgspec.ValidationError as error:
        raise SettingsError([_explained(str(error), root, name)]) from None
    _check(scenario, name)
    return scenario


def _custom(kind: type, given: object) -> Any:
    return kind(given)


def _check(scenario: ScenarioFile, name: str) -> None:
    """What one part alone does not show."""
    units = [unit.name for part in scenario.units for unit in part.units()]
    problems = [f"{name}: two units are called {unit!r}" for unit in sorted({u for u in units if units.count(u) > 1})]
    if len(units) > UNITS_MAX:
        problems.append(f"{name}: {len(units)} units; at most {UNITS_MAX} are simulated together")
    for person in scenario.people:
        if person.unit and person.unit not in units:
            problems.append(f"{name}: people: there is no unit {person.unit!r}; there are {', '.join(units[:10])}")
    for part in scenario.units:
        if part.every.span and part.resumes_after.span:
            problems.append(f"{name}: {part.name}: it is started by a trigger (`every`) or resumed (`resumes_after`)")
        problems += [
            f"{name}: {part.name}: a run that makes steps needs a `pace` above 0"
            for run in part.runs
            if run.steps and run.pace.span == 0
        ]
    if problems:
        raise SettingsError(problems)


def _refuse_traps(text: str, name: str) -> None:
    """A few aliases of aliases make a small file endless, and deep nesting makes reading it slow. No scenario needs
    either; `count` and `then` say the same thing better."""
    depth = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        where = f"{name}:{token.start_mark.line + 1}:{token.start_mark.column + 1}"
        if isinstance(token, yaml.AliasToken):
            raise SettingsError([f"{where}: aliases are not allowed in a scenario"])
        if depth > NESTED_MAX:
            raise SettingsError([f"{where}: it is nested too deeply to be a scenario"])


def _refuse_doubles(node: yaml.Node | None, name: str) -> None:
    """YAML lets a key be given twice and forgets the first. Here that is an error."""
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if key.value in seen:
                mark = key.start_mark
                raise SettingsError([f"{name}:{mark.line + 1}:{mark.column + 1}: {key.value!r} is given twice"])
            seen.add(key.value)
            _refuse_doubles(value, name)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _refuse_doubles(value, name)


def _explained(text: str, root: yaml.Node | None, name: str) -> str:
    """What msgspec says, with the place in the file and, for an unknown key, what is allowed there."""
    problem, _, path = text.replace("`array`", "a list").replace("`object`", "a mapping").partition(" - at `$")
    parts = re.findall(r"\.(\w+)|\[(\d+)\]", path)
    names = [key for key, _ in parts if key]
    unknown = re.search(r"unknown field `(.*)`", problem)
    missing = re.search(r"missing required field `(.*)`", problem)
    if unknown:
        allowed = ", ".join(_PARTS[names[-1] if names else ""].__struct_fields__)
        problem = f"unknown key {unknown[1]!r}; allowed: {allowed}"
        parts.append((unknown[1], ""))
    elif missing:
        problem = f"{missing[1]!r} is missing"
    elif "Invalid enum value" in problem:
        allowed = ", ".join(_choices(_PARTS[names[-2] if len(names) > 1 else ""], names[-1]))
        problem = problem.replace("Invalid enum value", "there is no") + f"; allowed: {allowed}"
    line, column = _place(root, parts)
    what = "".join(f".{key}" if key else f"[{number}]" for key, number in parts).lstrip(".")
    return f"{name}:{line}:{column}: {what + ': ' if what and not unknown else ''}{problem}"


def _choices(part: type[_Part], key: str) -> Iterator[str]:
    """The words that a key of that part may have."""
    for choice in get_args(get_type_hints(part)[key]):
        yield from [choice] if isinstance(choice, str) else get_args(choice)


def _place(node: yaml.Node | None, parts: list[tuple[str, str]]) -> tuple[int, int]:
    """Line and column of what a path leads to, or of the nearest thing on the way."""
    mark = node.start_mark if node is not None else None
    for key, number in parts:
        if isinstance(node, yaml.MappingNode) and key:
            found = [(k, v) for k, v in node.value if k.value == key]
            if not found:
                break
            mark, node = found[0][0].start_mark, found[0][1]
        elif isinstance(node, yaml.SequenceNode) and number and int(number) < len(node.value):
            node = node.value[int(number)]
            mark = node.start_mark
        else:
            break
    return (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)

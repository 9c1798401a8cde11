"""Who asks, through what, and of whom; what a command is; and how units are found by name. No command is made here."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, Protocol

from flyball.config.components import Component, components
from flyball.config.definitions import Definitions
from flyball.config.rules import Rule
from flyball.config.units import Group, Unit
from flyball.control.past import Past
from flyball.control.problems import Problem
from flyball.control.trail import FORBIDDEN, Trail
from flyball.control.views import Gone, Look
from flyball.errors import FlyballError
from flyball.governor import Governor

SUGGESTIONS_MAX: Final = 3
"""Names offered for one that is not known."""
LISTED_MAX: Final = 10
"""Names listed in an error."""

LOCAL: Final = ("cli", "socket")
"""Channels of whoever is on this machine, as the daemon's own user."""
NUMBER_MAX: Final = 2**53
"""Beyond this a number is no argument of any verb, and neither a database nor another language keeps it exactly. (NaN
is on neither side of it.)"""

Args = Mapping[str, Any]
Poke = Callable[[str, str], None]
"""Told of every order: the unit (all: ""), and the verb. May be called from any thread, and must not block."""


class Right(IntEnum):
    """What somebody may do."""

    LOOK = 0
    OPERATE = 1
    ADMIN = 2
    """Also what costs money, and what concerns the daemon itself."""


class CommandError(FlyballError):
    """A command cannot be done as it was given. `code` is for machines, and the topic of its page."""

    topic = ""

    def __init__(self, code: str, text: str, *, remedy: str = "") -> None:
        super().__init__(text, remedy=remedy)
        self.code = self.topic = code


class Named(Protocol):
    """Settings, or a plan made of them: what names the units and the rules, and says which belong together."""

    @property
    def units(self) -> Sequence[Unit]: ...

    @property
    def rules(self) -> Sequence[Rule]: ...

    @property
    def groups(self) -> Sequence[Group]: ...


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, through what, and what they may do."""

    who: str
    channel: str
    """`cli`, `socket`, `http`, `page`, `link`, `telegram`."""
    right: Right = Right.ADMIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Who asks, through what, and of whom."""

    governor: Governor
    settings: Named
    who: str
    channel: str
    """`cli`, `socket`, …: it is a part of the note of every order."""
    poke: Poke | None = None
    """None: no daemon runs."""
    gone: Gone | None = None
    past: Past = field(default_factory=Past)
    """Kept between commands: then only what is new in the journal is read."""
    right: Right = Right.ADMIN
    says: Callable[[str], str] = lambda _: ""
    """What a unit last said about itself: only a daemon hears that."""
    firings: Callable[[str], Mapping[str, int]] = lambda _: {}
    """What became of all that fired a rule, since the daemon started: how many of each fate."""
    definitions: Definitions = field(default_factory=Definitions)
    """Of units that no settings name."""
    trail: Trail = field(default_factory=Trail)
    """Kept between commands."""
    log_of: Callable[[str], Path | None] = lambda _: None
    """The file that has what a unit printed; none: nobody here knows where that is."""
    problems: Callable[[], Sequence[Problem] | None] = lambda: None
    """All problems, where a board knows them without looking at everybody anew; none: look."""
    host: str = ""
    """What this machine is called among the hosts of the fleet; nothing: there are none, or it is none of them."""
    trouble: str = ""
    """Why the daemon cannot write down what happens; nothing if it can, or if there is none."""

    @property
    def named(self) -> tuple[str, ...]:
        """The units and the rules that the settings name."""
        return (*(unit.name for unit in self.settings.units), *(rule.name for rule in self.settings.rules))

    def together(self) -> tuple[Component, ...]:
        """The units of the settings, by those that run on one host together."""
        return components(self.settings.units, self.settings.groups)

    def asking(self) -> tuple[Component, ...]:
        """Those that ask for something of their host. All others run on any."""
        if not any(unit.host or unit.host_labels for unit in self.settings.units):
            return ()
        return tuple(one for one in self.together() if one.host or one.labels)

    def look(self) -> Look:
        """One look at the store."""
        self.definitions.learn(self.governor, self.named)
        return Look(
            self.governor,
            self.past,
            units=self.named,
            rules=self.settings.rules,
            asking=self.asking,
            gone=self.gone,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of a command."""

    name: str
    kind: type
    help: str
    default: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One verb."""

    name: str
    arguments: tuple[Argument, ...]
    right: Right
    help: str
    run: Callable[[Context, Args], Any]
    writes: bool = False
    """It writes its line of the audit trail itself, together with what it orders."""
    local: bool = False
    """Only for whoever is on this machine and may open the socket: it says who else may come in."""

    def __call__(self, context: Context, given: Args) -> Any:
        """Run it. CommandError if it may not be, or its arguments are wrong; then nothing was done."""
        return self.run(context, self.checked(context, given))

    def checked(self, context: Context, given: Args) -> Args:
        """All its arguments. CommandError if it may not be run, or if they are wrong."""
        if context.right < self.right:
            text = f"{context.who or 'this caller'} may {context.right.name.lower()}, but not `{self.name}`"
            raise CommandError(FORBIDDEN, text, remedy="Ask somebody who may.")
        if self.local and context.channel not in LOCAL:
            text = f"`{self.name}` is only for whoever is on the machine itself"
            raise CommandError(FORBIDDEN, text, remedy="Use the command line there.")
        known = {argument.name: argument for argument in self.arguments}
        for name in given:
            if name not in known:
                takes = f"it takes {', '.join(known)}" if known else "it takes none"
                text = f"`{self.name}` has no argument {name!r}; {takes}"
                raise CommandError("bad_argument", text, remedy="Leave it out, or check its spelling.")
        checked = {name: argument.default for name, argument in known.items()}
        for name, value in given.items():
            kind = known[name].kind
            if value is None:
                continue
            good = kind is object or (
                isinstance(value, list | tuple) and all(isinstance(part, str) for part in value)
                if kind is list
                else isinstance(value, int | float) and not isinstance(value, bool)
                if kind is float
                else type(value) is kind
            )
            if not good or (kind in (int, float) and not -NUMBER_MAX < value < NUMBER_MAX):
                wanted = {list: "a list of texts", float: "a number", int: "a whole number", bool: "true or false"}
                text = f"`{self.name}`: {name} has to be {wanted.get(kind, 'a text')}"
                raise CommandError("bad_argument", text, remedy="Give it as that.")
            checked[name] = value
        return checked


def needs_daemon(context: Context, args: Args) -> Any:  # noqa: ARG001 - the shape of every verb
    """Refused: a daemon answers this itself, and none runs here."""
    raise CommandError("no_daemon", "no daemon runs here", remedy="Start one: `flyball up -d`.")


def bounded(args: Args, name: str, most: int, least: int = 0) -> int:
    """A whole number among the arguments. CommandError if it is outside of its bounds."""
    value: int = args[name]
    if not least <= value <= most:
        text = f"{name} is {value}; allowed: {least} to {most}"
        raise CommandError("bad_argument", text, remedy="Give a number within these bounds.")
    return value


# Names.


def known_unit(look: Look, unit: str) -> str:
    """The unit of that name. CommandError if it is not known. Whom the journal knows is not looked for among all."""
    return unit if unit and look.past.of(unit).since is not None else known_units(look, [unit])[0]


def known_units(look: Look, units: Iterable[str]) -> list[str]:
    """The units, each once. CommandError if one is not known."""
    there = look.units()
    return list(dict.fromkeys(_known(unit, there) for unit in units))


def _known(unit: str, there: Sequence[str]) -> str:
    named = found(unit, there)
    if named is None:
        raise unknown_unit(unit, there)
    return named


def found(unit: str, there: Sequence[str]) -> str | None:
    """Which of them is meant. A thread of a graph may be named without the graph, as its program names it."""
    if unit in there:
        return unit
    threads = [name for name in there if unit and name.endswith(f"@{unit}")]
    if len(threads) > 1:
        text = f"{unit!r} is a thread of {len(threads)} graphs: {', '.join(threads[:LISTED_MAX])}"
        raise CommandError("ambiguous", text, remedy="Give the whole name of the one that is meant.")
    return threads[0] if threads else None


def unknown_unit(
    unit: str, there: Sequence[str], *, remedy: str = "`flyball status` lists all units.", text: str = "no unit {!r}"
) -> CommandError:
    """What to say of a unit that is not known."""
    hint = meant(unit, there, nothing="nothing ran here yet")
    return CommandError("unknown_unit", f"{text.format(unit)}; {hint}", remedy=remedy)


def meant(given: str, there: Sequence[str], *, nothing: str) -> str:
    """What somebody may have meant who gave a name that is not known."""
    near = get_close_matches(given, there, n=SUGGESTIONS_MAX)
    if near:
        return f"did you mean {' or '.join(near)}?"
    if not there:
        return nothing
    more = f" and {len(there) - LISTED_MAX} more" if len(there) > LISTED_MAX else ""
    return f"there are {', '.join(there[:LISTED_MAX])}{more}"

"""The panel: which policies each unit stands under, whom of them an event concerns, and where their states are kept.

One place answers this for the governor, for replay and for every view, so that nothing is looked up under another key.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from flyball.core.event import Event, Exited
from flyball.core.policy import AnyPolicy, Key, State, hears

DOCKETS_MAX: Final = 384
"""Dockets kept ready, about 3 kB each. More than this and all are made anew, which takes a few microseconds each."""

MOULDS_MAX: Final = 64
"""Kinds of dockets of one set: as many as there are combinations of labels, which are a few."""

REFUSED: Final = "refused"
"""The key of the last refusal of such a request of a unit: the same refusal again is not journalled again."""


class Docket(NamedTuple):
    """Those whom an event concerns, with the keys of their states and the states they start from, in one order."""

    policies: Sequence[AnyPolicy]
    keys: Sequence[Key]
    places: Mapping[Key, int]
    """Which of them a key belongs to."""
    initials: Sequence[State]
    resting: Sequence[State | None]
    """What `weigh` takes for those with nothing stored: None, or the initial state where the event can wake them."""
    kind: str
    """The name of the event's kind, as the journal has it."""
    refused: Key | None
    """Where the last refusal of the unit is kept, if the event is a request; `keys` ends with it."""


class _Mould(NamedTuple):
    """What the dockets of all units with one set have in common, for one kind of event with the same labels: only the
    subjects of the keys differ."""

    policies: Sequence[AnyPolicy]
    initials: Sequence[State]
    resting: Sequence[State | None]
    names: Sequence[tuple[str, str]]
    """Of each policy its name and whose state it has."""
    scopes: Sequence[str]
    """All that occur among the latter."""


class _Hearing(NamedTuple):
    """Those of a set who hear one kind of event, with their initial states, and whether any of them is by run."""

    policies: Sequence[tuple[AnyPolicy, State]]
    by_run: bool
    moulds: dict[tuple[object, ...], _Mould]

    def mould(self, event: Event) -> _Mould:
        """The mould for the docket of that event."""
        cause = event.cause if type(event) is Exited else None
        scopes = (*event.labels, "unit" if event.unit else "", "run" if event.run else "", cause)
        mould = self.moulds.get(scopes)
        if mould is None:
            if len(self.moulds) >= MOULDS_MAX:
                self.moulds.clear()
            mould = self.moulds[scopes] = self._moulded(event)
        return mould

    def _moulded(self, event: Event) -> _Mould:
        heard = [(policy, state) for policy, state in self.policies if _subject(policy.by, event) is not None]
        return _Mould(
            [policy for policy, _ in heard],
            [state for _, state in heard],
            [state if policy.wakes(event) else None for policy, state in heard],
            [(policy.name, policy.by) for policy, _ in heard],
            sorted({policy.by for policy, _ in heard}),
        )


class _Set:
    """The policies of a unit, and, per kind of event, those who hear it."""

    __slots__ = ("heard", "policies")

    def __init__(self, policies: tuple[AnyPolicy, ...]) -> None:
        names = [(policy.name, policy.by) for policy in policies]
        for name, by in names:
            if names.count((name, by)) > 1:
                raise ValueError(f"two policies named {name!r} by {by!r}: they would share one state")
        self.policies = policies
        self.heard: dict[type[Event], _Hearing] = {}

    def hearing(self, kind: type[Event]) -> _Hearing:
        hearing = self.heard.get(kind)
        if hearing is None:
            policies = [(policy, policy.initial()) for policy in self.policies if hears(policy.at, kind)]
            by_run = any(policy.by == "run" for policy, _ in policies)
            hearing = self.heard[kind] = _Hearing(policies, by_run, {})
        return hearing


class Panel:
    """All policies of a fleet: one set for everybody, and sets of their own for the units that have one."""

    def __init__(self, policies: Sequence[AnyPolicy], units: Mapping[str, Sequence[AnyPolicy]] | None = None) -> None:
        self._sets: dict[tuple[AnyPolicy, ...], _Set] = {}
        """Units with the same policies share one set."""
        self._default = self._set_of(policies)
        self._units = {unit: self._set_of(own) for unit, own in (units or {}).items()}
        self._dockets: dict[tuple[object, ...], Docket] = {}

    def policies_of(self, unit: str) -> Sequence[AnyPolicy]:
        """The policies that a unit stands under."""
        return self._units.get(unit, self._default).policies

    def standing(self) -> Iterator[tuple[AnyPolicy, str]]:
        """Every policy that anybody stands under, with one of the units that do; "": everybody does."""
        yield from ((policy, "") for policy in self._default.policies)
        for own, unit in {own: unit for unit, own in sorted(self._units.items(), reverse=True)}.items():
            yield from ((policy, unit) for policy in own.policies)

    def put(self, unit: str, policies: Sequence[AnyPolicy]) -> None:
        """Give a unit a set of its own."""
        own = self._set_of(policies)
        if self._units.get(unit) is not own:
            self._units[unit] = own
            self._dockets.clear()

    def drop(self, unit: str) -> None:
        """Forget that a unit has a set of its own: it is over, and nothing is asked of it any more."""
        if self._units.pop(unit, None) is not None:
            self._dockets.clear()

    def replace(self, policies: Sequence[AnyPolicy], units: Mapping[str, Sequence[AnyPolicy]]) -> None:
        """Other policies, for everybody: all of them, or none if they do not fit together."""
        other = Panel(policies, units)
        self._sets, self._default, self._units = other._sets, other._default, other._units
        self._dockets.clear()

    def concerning(self, event: Event) -> Docket:
        """Whom the event concerns: those who hear such events, in whose scope it is."""
        hearing = self._units.get(event.unit, self._default).hearing(type(event))
        labels = tuple(event.labels.items()) if event.labels else ()
        run = event.run if hearing.by_run else ""
        name = (type(event), event.unit, run, labels, event.cause if type(event) is Exited else None)
        docket = self._dockets.get(name)
        if docket is None:
            docket = _docket(hearing, event)
            if len(self._dockets) >= DOCKETS_MAX:
                self._dockets.clear()
            self._dockets[name] = docket
        return docket

    def _set_of(self, policies: Sequence[AnyPolicy]) -> _Set:
        own = tuple(policies)
        known = self._sets.get(own)
        if known is None:
            known = self._sets[own] = _Set(own)
        return known


def _docket(hearing: _Hearing, event: Event) -> Docket:
    policies, initials, resting, names, scopes = hearing.mould(event)
    subjects = {by: _subject(by, event) or "" for by in scopes}
    keys = [Key(name, by, subjects[by]) for name, by in names]
    places = {key: place for place, key in enumerate(keys)}
    kind = type(event).__name__.lower()
    refused = Key(REFUSED, kind, event.unit) if event.asks else None
    if refused is not None:
        keys.append(refused)
    return Docket(policies, keys, places, initials, resting, kind, refused)


def _subject(by: str, event: Event) -> str | None:
    """Whose state an event concerns, for policies with that `by`; None if it does not concern them."""
    if by == "unit":
        return event.unit or None
    if by == "run":
        # The run's own slashes are quoted: run c of unit a/b is not run b/c of unit a.
        run = event.run.replace("%", "%25").replace("/", "%2F")
        return f"{event.unit}/{run}" if run else None
    if by == "fleet":
        return ""
    return event.labels.get(by)

"""The panel: which policies each unit stands under, whom of them an event concerns, and where their states are kept.

One place answers this for the governor, for replay and for every view, so that nothing is looked up under another key.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flyball.core.event import Event
from flyball.core.policy import AnyPolicy, Key, State, hears


class Docket(NamedTuple):
    """Those whom an event concerns, with the keys of their states and the states they start from, in one order."""

    policies: Sequence[AnyPolicy]
    keys: Sequence[Key]
    initials: Sequence[State]


class _Set:
    """The policies of a unit, and, per kind of event, those who hear it: looked up once, asked at every step."""

    __slots__ = ("heard", "policies")

    def __init__(self, policies: Sequence[AnyPolicy]) -> None:
        names = [(policy.name, policy.by) for policy in policies]
        for name, by in names:
            if names.count((name, by)) > 1:
                raise ValueError(f"two policies named {name!r} by {by!r}: they would share one state")
        self.policies = tuple(policies)
        self.heard: dict[type[Event], tuple[tuple[AnyPolicy, str, str, State], ...]] = {}

    def hearing(self, kind: type[Event]) -> tuple[tuple[AnyPolicy, str, str, State], ...]:
        heard = self.heard.get(kind)
        if heard is None:
            heard = self.heard[kind] = tuple(
                (policy, policy.name, policy.by, policy.initial()) for policy in self.policies if hears(policy.at, kind)
            )
        return heard


class Panel:
    """All policies of a fleet: one set for everybody, and sets of their own for the units that have one."""

    def __init__(self, policies: Sequence[AnyPolicy], units: Mapping[str, Sequence[AnyPolicy]] | None = None) -> None:
        self._default = _Set(policies)
        self._units = {unit: _Set(own) for unit, own in (units or {}).items()}

    def policies_of(self, unit: str) -> Sequence[AnyPolicy]:
        """The policies that a unit stands under."""
        return self._units.get(unit, self._default).policies

    def put(self, unit: str, policies: Sequence[AnyPolicy]) -> None:
        """Give a unit a set of its own."""
        self._units[unit] = _Set(policies)

    def concerning(self, event: Event) -> Docket:
        """Whom the event concerns: those who hear such events, in whose scope it is."""
        heard = self._units.get(event.unit, self._default).hearing(type(event))
        unit, run, labels = event.unit, event.run, event.labels
        policies, keys, initials = [], [], []
        for policy, name, by, initial in heard:
            if by == "unit":
                subject = unit
                if not unit:
                    continue
            elif by == "run":
                if not run:
                    continue
                subject = f"{unit}/{run}"
            elif by == "fleet":
                subject = ""
            elif by in labels:
                subject = labels[by]
            else:
                continue
            policies.append(policy)
            keys.append(Key(name, by, subject))
            initials.append(initial)
        return Docket(policies, keys, initials)

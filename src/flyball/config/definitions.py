"""Definitions of units that no settings file names: an agent in a program, a command under `flyball run`.

Only the program that defines such a unit knows which safeguards it stands under. So it keeps them in the store, and
whoever looks at the unit or gives it an order (the command line, a daemon) judges by the very same ones. Safeguards
that are not flyball's own cannot be kept, and are left out.
"""

import dataclasses
import enum
import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from flyball.core.event import Resume, Start, Step
from flyball.core.policy import AnyPolicy, Key
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.policies import ALL
from flyball.store import Draft, Drafter, Snapshot

log = logging.getLogger(__name__)

NAME: Final = "definition"
"""The name of such a record, where policies have theirs."""

ENCODED_MAX: Final = 64
"""Sets of policies whose JSON is remembered: most units of a program stand under the same few."""

SCOPES: Final = ("unit", "run", "fleet")
"""Whose states are not by a label."""

DAMAGED: Final = (msgspec.MsgspecError, TypeError, ValueError, LookupError)
"""What becomes of bytes that are no definition."""

WORK: Final = b'"policy":"Session"'
"""Is in the definition of every piece of work. Nobody takes its limits from it by defining it as something else."""

_KINDS: Final = {kind.__name__: kind for kind in ALL}
_EVENTS: Final = {kind.__name__: kind for kind in (Start, Step, Resume)}


def keep(governor: Governor, *units: str) -> None:
    """Keep the definitions of units as this program has them, where they are not kept already."""
    keeping = _keeping(governor, units)
    if keeping is not None:
        governor.store.transact(*keeping, sync=False)


def keep_soon(governor: Governor, unit: str) -> None:
    """The same without waiting for it, where a request follows: that is written after it, or fails with it."""
    keeping = _keeping(governor, (unit,))
    if keeping is not None:
        governor.store.transact_soon(*keeping, sync=False)


def _keeping(governor: Governor, units: Sequence[str]) -> tuple[list[Key], Drafter] | None:
    now = {Key(NAME, "unit", unit): encode(governor.panel.policies_of(unit)) for unit in units}

    def draft(snapshot: Snapshot) -> Draft | None:
        changed: dict[Key, bytes | None] = {key: data for key, data in now.items() if snapshot.records.get(key) != data}
        return Draft(max(governor.clock.now(), snapshot.at), changed, None) if changed else None

    keys = list(now)
    kept = governor.store.read(keys).records
    for key, data in kept.items():
        if WORK in data and WORK not in now[key]:
            text = f"{key.subject} is a session or a thread of a graph, and has the limits of one"
            raise FlyballError(text, remedy="Give what is no session a name of its own.")
    return (keys, draft) if kept != now else None


class Definitions:
    """What is known of such units in one process. Each is read once, for as long as it stays the same."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}
        self._decoded: dict[bytes, tuple[AnyPolicy, ...]] = {}

    def learn(self, governor: Governor, named: Iterable[str]) -> None:
        """Have the governor judge those units by their definitions. Of units that the settings name, those have the
        last word."""
        settled, panel = set(named), governor.panel
        for key, data in governor.store.states(NAME).items():
            unit = key.subject
            if self._known.get(unit) == data:
                continue
            self._known[unit] = data
            if data not in self._decoded:
                self._decoded[data] = read(unit, data)
            own = self._decoded[data]
            if own:
                panel.put(unit, with_labelled(panel.policies_of(unit), own) if unit in settled else own)


def with_labelled(policies: Sequence[AnyPolicy], own: Sequence[AnyPolicy]) -> tuple[AnyPolicy, ...]:
    """What the settings say of a unit, and what the unit's own program put on its calls, which is by labels."""
    said = {(policy.name, policy.by) for policy in policies}
    more = [policy for policy in own if policy.by not in SCOPES and (policy.name, policy.by) not in said]
    return (*policies, *more)


def encode(policies: Sequence[AnyPolicy]) -> bytes:
    """Policies as JSON: of each its kind, and what is not as by default."""
    return _encoded(tuple(policies))


@lru_cache(maxsize=ENCODED_MAX)
def _encoded(policies: tuple[AnyPolicy, ...]) -> bytes:
    return msgspec.json.encode(
        [_plain(policy) for policy in policies if _KINDS.get(type(policy).__name__) is type(policy)]
    )


def decode(data: bytes) -> tuple[AnyPolicy, ...]:
    """The policies in such JSON. What another version wrote and this one does not know is left out."""
    return tuple(
        _policy(_KINDS[given["policy"]], given) for given in msgspec.json.decode(data) if given["policy"] in _KINDS
    )


def read(unit: str, data: bytes) -> tuple[AnyPolicy, ...]:
    """The same of what the store has for a unit. What is damaged says nothing, and keeps nobody from looking at the
    others."""
    try:
        return decode(data)
    except DAMAGED as error:
        log.warning("the definition of %s cannot be read; it is kept anew when its program runs: %s", unit, error)
        return ()


def _plain(policy: AnyPolicy) -> dict[str, Any]:
    plain: dict[str, Any] = {"policy": type(policy).__name__}
    for field in dataclasses.fields(policy):  # type: ignore[arg-type]  # every policy of ours is a dataclass
        value = getattr(policy, field.name)
        if value != field.default:
            plain[field.name] = value.__name__ if isinstance(value, type) else value
    return plain


def _policy(kind: type[Any], given: dict[str, Any]) -> AnyPolicy:
    fields = {field.name: field.default for field in dataclasses.fields(kind)}
    policy: AnyPolicy = kind(**{name: _value(fields[name], value) for name, value in given.items() if name in fields})
    return policy


def _value(default: object, given: Any) -> Any:
    """A value as its field has it: what that is, its default shows."""
    if isinstance(default, enum.Enum):
        return type(default)(given)
    if isinstance(default, type):
        return _EVENTS[given]
    return tuple(given) if isinstance(default, tuple) else given

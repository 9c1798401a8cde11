"""The queue: the firings that wait or are being run, as the store has them. Bounded, for each rule and for all.

The store is the truth: what is here is what was written there, so that nobody has to read it again. Whoever puts
something in takes room for it first, and makes it known when it is on disk.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final

import msgspec

from flyball.config.rules import Rule
from flyball.core.policy import Key
from flyball.runtimes.rule.firing import Firing

BYTES_MAX: Final = 64 * 1024 * 1024
"""Of all firings that wait. They are in memory, too."""

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(Firing)


def encode(firing: Firing) -> bytes:
    """As the store has it."""
    return _encoder.encode(firing)


class Queue:
    """All firings of all rules."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._by_rule: dict[str, dict[str, Firing]] = {}
        self._sizes: dict[str, int] = {}
        self._asked_for: dict[str, dict[str, Firing]] = {}
        """Of each rule, those that a person asked for."""
        self._newest: dict[tuple[str, str, object], str] = {}
        """Of each rule, trigger and file the one that came last: nothing is looked for among thousands."""
        self._taken: set[str] = set()
        self._counts: Counter[str] = Counter()
        """Of each rule, how many there are: also those that are being written down."""
        self._count = 0
        self._bytes = 0

    def __len__(self) -> int:
        """How many there are, of all rules."""
        return self._count

    def load(self, records: Mapping[Key, bytes]) -> list[Key]:
        """Take over what a store has, in the order in which it came. The keys of what cannot be read."""
        firings: list[tuple[Firing, int]] = []
        damaged: list[Key] = []
        for key, data in records.items():
            try:
                firing = _decoder.decode(data)
            except msgspec.MsgspecError:
                damaged.append(key)
                continue
            firings.append((firing, len(data)))
        for firing, size in sorted(firings, key=lambda found: (found[0].at, found[0].id)):
            self.take_room(firing.rule, size)
            self.put(firing, size)
        return damaged

    def has_room(self, rule: Rule, size: int) -> bool:
        """Whether one more fits."""
        fits = self._count < self.most and self._bytes + size <= BYTES_MAX
        return fits and self._counts[rule.name] < rule.queue_max

    def take_room(self, rule: str, size: int) -> None:
        """One more is being written down."""
        self._counts[rule] += 1
        self._count += 1
        self._bytes += size

    def give_room_back(self, rule: str, size: int) -> None:
        """It is not there after all."""
        self._counts[rule] -= 1
        if not self._counts[rule]:
            del self._counts[rule]
        self._count -= 1
        self._bytes -= size

    def put(self, firing: Firing, size: int) -> None:
        """It was written down. Its room was taken before."""
        self._by_rule.setdefault(firing.rule, {})[firing.id] = firing
        if firing.by_person:
            self._asked_for.setdefault(firing.rule, {})[firing.id] = firing
        self._newest[_about(firing)] = firing.id
        self._sizes[firing.id] = size

    def replace(self, firing: Firing) -> None:
        """The same one, as it was written down now."""
        firings = self._by_rule.get(firing.rule, {})
        if firing.id in firings:
            firings[firing.id] = firing

    def drop(self, firing: Firing) -> None:
        """It is over."""
        firings = self._by_rule.get(firing.rule, {})
        if firings.pop(firing.id, None) is not None:
            self.give_room_back(firing.rule, self._sizes.pop(firing.id))
            self._asked_for.get(firing.rule, {}).pop(firing.id, None)
            if self._newest.get(_about(firing)) == firing.id:
                del self._newest[_about(firing)]
            if not firings:
                del self._by_rule[firing.rule]
                self._asked_for.pop(firing.rule, None)
        self._taken.discard(firing.id)

    def take(self, rule: str) -> Firing | None:
        """The next one of a rule that nobody has taken: what a person asked for comes first, then the oldest."""
        firings = self._by_rule.get(rule, {})
        for id_ in chain(self._asked_for.get(rule, ()), firings):
            if id_ not in self._taken:
                self._taken.add(id_)
                return firings[id_]
        return None

    def claim(self, firing: Firing) -> bool:
        """Take that one; False if somebody has it, or it is over."""
        if firing.id in self._taken or firing.id not in self._sizes:
            return False
        self._taken.add(firing.id)
        return True

    def leave(self, firing: Firing) -> None:
        """It waits again."""
        self._taken.discard(firing.id)

    def waits(self, rule: str, trigger: str, path: object) -> Firing | None:
        """The last one of that trigger, about that file if it is about one, if it waits and was not begun."""
        id_ = self._newest.get((rule, trigger, path))
        if id_ is None or id_ in self._taken:
            return None
        firing = self._by_rule[rule][id_]
        return None if firing.attempt else firing

    def of(self, rule: str) -> list[Firing]:
        """All of a rule, the oldest first."""
        return list(self._by_rule.get(rule, {}).values())

    def number(self, rule: str) -> int:
        """How many there are of a rule."""
        return len(self._by_rule.get(rule, ()))

    def rules(self) -> Iterable[str]:
        """The rules that have any."""
        return list(self._by_rule)


def _about(firing: Firing) -> tuple[str, str, object]:
    path = firing.data.get("path")
    return firing.rule, firing.trigger, path if isinstance(path, str) else None

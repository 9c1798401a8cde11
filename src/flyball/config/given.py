"""What was given, and where: a tree of values that each know the place they came from.

A tree may hold nonsense. Which keys there are, and which values are good, is the business of `settings`: so all that is
wrong can be reported at once.
"""

from typing import Any, Final, NamedTuple

DEPTH_MAX: Final = 16
"""How deep values may lie in each other. Settings need four."""


class Given(NamedTuple):
    """A value (plain, or a mapping or list of such) with the place where it stands and that of its key."""

    value: Any
    at: str
    key_at: str

    def plain(self) -> Any:
        """The value without its places."""
        if isinstance(self.value, dict):
            return {key: inner.plain() for key, inner in self.value.items()}
        if isinstance(self.value, list):
            return [inner.plain() for inner in self.value]
        return self.value

    def find(self, path: tuple[str | int, ...]) -> "Given | None":
        """The value at a path of keys and list places."""
        here = self
        for step in path:
            inside = here.value
            known = inside if isinstance(inside, dict) else range(len(inside)) if isinstance(inside, list) else ()
            if step not in known:
                return None
            here = inside[step]
        return here

    def under(self, over: "Given") -> "Given":
        """This, with the other laid over it: mappings are laid key by key, anything else is replaced."""
        if not isinstance(self.value, dict) or not isinstance(over.value, dict):
            return over
        merged = dict(self.value)
        for key, value in over.value.items():
            merged[key] = merged[key].under(value) if key in merged else value
        return Given(merged, over.at, over.key_at)


NOTHING: Final = Given({}, "", "")

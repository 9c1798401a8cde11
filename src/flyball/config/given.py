"""What was given, and where: a tree of values that each know the place they came from.

A tree may hold nonsense. Which keys there are, and which values are good, is the business of `settings`: so all that is
wrong can be reported at once.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

DEPTH_MAX: Final = 16
"""How deep values may lie in each other. Settings need four."""


class Given(NamedTuple):
    """A value (plain, or a mapping or list of such) with the place where it stands and that of its key."""

    value: Any
    at: str
    key_at: str
    lead: int = -1
    """Of a text: how many columns it begins after its place; -1: it does not stand there letter by letter."""

    def place_in(self, column: int) -> str:
        """The place of a letter of its text, counted from 1; that of the whole where it cannot be told."""
        before, _, start = self.at.rpartition(":")
        if self.lead < 0 or column < 1 or not start.isdigit():
            return self.at
        return f"{before}:{int(start) + self.lead + column - 1}"

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


@dataclass(slots=True)
class Origin:
    """Where settings are read from: the file, if there is one, the folder that its relative paths begin at, all files
    and folders beside it, and rules that stand in another folder, each with that folder."""

    file: Path | None
    folder: Path
    sources: list[Path] = field(default_factory=list)
    folders: dict[str, str] = field(default_factory=dict)
    _own: str = field(init=False)

    def __post_init__(self) -> None:
        self.folder = self.folder.absolute()
        self._own = str(self.folder)

    def folder_of(self, rule: str) -> str:
        """The folder that a rule's relative paths begin at."""
        return self.folders.get(rule) or self._own


def dotted(path: tuple[str | int, ...]) -> str:
    """A path as people write it."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")

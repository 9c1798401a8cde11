"""What a person is told of an error: what to do about it, too."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import flyball
from flyball.control.context import CommandError
from flyball.errors import FlyballError, StoreFull, StoreReadOnly

SOURCE = Path(inspect.getfile(flyball)).parent
MODULES = sorted(SOURCE.rglob("*.py"))


def kinds(path: Path) -> dict[str, type[FlyballError]]:
    """The kinds of errors that a module knows by name."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    found = vars(importlib.import_module(".".join(part for part in parts if part != "__init__")))
    return {name: kind for name, kind in found.items() if isinstance(kind, type) and issubclass(kind, FlyballError)}


def raised(path: Path) -> Iterator[ast.Call]:
    """Every call in a module that may make an error."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if "flyball.errors" in path.read_text()],
    ids=lambda path: path.relative_to(SOURCE).as_posix(),
)
def test_every_error_has_a_remedy(path: Path) -> None:
    """Wherever an error is made, it says what to do, or its kind does."""
    known = kinds(path)
    without = [
        f"{path}:{call.lineno}: {ast.unparse(call)[:80]}"
        for call in raised(path)
        if (kind := known.get(ast.unparse(call.func))) is not None
        and "remedy" in inspect.signature(kind).parameters  # others make their own
        and not kind.remedy
        and not any(keyword.arg == "remedy" for keyword in call.keywords)
    ]
    assert without == []


@pytest.mark.parametrize(
    ("kind", "topic"),
    [(FlyballError, ""), (StoreFull, "store_full"), (StoreReadOnly, "store_read_only"), (CommandError, "")],
)
def test_each_kind_has_its_topic(kind: type[FlyballError], topic: str) -> None:
    """It is made of its name, so that it stays; the code of a command's error is that error's own."""
    assert kind.topic == topic
    assert CommandError("no_daemon", "none").topic == "no_daemon"

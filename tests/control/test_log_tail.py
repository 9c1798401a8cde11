"""`logs`: the end of what a unit printed."""

import os
from pathlib import Path
from typing import Any

import pytest

from flyball.control import log_tail
from flyball.control.commands import answer
from flyball.control.context import CommandError
from flyball.control.log_tail import BLOCK, last_lines
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene


@pytest.fixture
def scene() -> Scene:
    made = Scene(MemoryStore())
    made.start("web")
    return made


def logs(scene: Scene, path: Path, **args: Any) -> Any:
    return answer(scene.context(log_of=lambda _: path), "logs", {"unit": "web", **args})


@pytest.mark.parametrize(
    ("text", "lines", "found"),
    [
        ("", 5, []),
        ("one\n", 5, ["one"]),
        ("one\ntwo\nthree\n", 2, ["two", "three"]),
        ("one\ntwo\nthree", 2, ["two", "three"]),
        ("one\n\n\n", 2, ["", ""]),
        ("one\ntwo\n", 0, []),
        ("a\x0bb\u2028c\r\nd\n", 5, ["a\x0bb\u2028c\r", "d"]),
    ],
    ids=["empty", "fewer", "more", "without an end", "empty lines", "none", "only line ends end lines"],
)
def test_last_lines(scene: Scene, tmp_path: Path, text: str, lines: int, found: list[str]) -> None:
    """The last so many, as they are."""
    path = tmp_path / "web.log"
    path.write_bytes(text.encode())
    assert logs(scene, path, lines=lines)["lines"] == found


def test_older_files(scene: Scene, tmp_path: Path) -> None:
    """Where the file has too few, those before it are read, the newest of them first."""
    path = tmp_path / "web.log"
    path.write_text("five\n")
    (tmp_path / "web.log.1").write_text("three\nfour\n")
    (tmp_path / "web.log.2").write_text("one\ntwo\n")
    assert logs(scene, path, lines=4)["lines"] == ["two", "three", "four", "five"]
    assert logs(scene, path, lines=200)["lines"] == ["one", "two", "three", "four", "five"]


def test_what_is_no_text(scene: Scene, tmp_path: Path) -> None:
    """It is shown as well as it can be."""
    path = tmp_path / "web.log"
    path.write_bytes(b"good\n\xff\xfe\n")
    assert logs(scene, path)["lines"] == ["good", "��"]


@pytest.mark.parametrize("length", [1, 99, BLOCK - 1, BLOCK, BLOCK + 1])
def test_long_lines(tmp_path: Path, length: int) -> None:
    """Also where a line is as long as what is read at a time."""
    path = tmp_path / "web.log"
    lines = [f"{number}" + "x" * length for number in range(9)]
    path.write_text("".join(f"{line}\n" for line in lines))
    assert last_lines(path, 3, 2**30).decode().splitlines() == lines[-3:]


def test_no_more_than_fits(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the lines are, an answer has its bound, and it is the end that is kept."""
    monkeypatch.setattr(log_tail, "BYTES_MAX", BLOCK)
    path = tmp_path / "web.log"
    path.write_bytes(b"x" * 10 * BLOCK + b"\nthe end\n")
    lines = logs(scene, path)["lines"]
    assert lines[-1] == "the end"
    assert sum(map(len, lines)) <= 2 * BLOCK


def test_nothing_was_printed(scene: Scene, tmp_path: Path) -> None:
    """Then there are no lines."""
    assert logs(scene, tmp_path / "web.log")["lines"] == []


def test_wrong(scene: Scene, tmp_path: Path) -> None:
    """Each with what to do."""
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"lines": 2_001}, "allowed: 0 to 2000"),
        ({"unit": "wbe"}, "did you mean web"),
    ]
    for args, says in wrong:
        with pytest.raises(CommandError, match=says):
            logs(scene, tmp_path / "web.log", **args)
    with pytest.raises(CommandError, match="nobody here knows where the logs are"):
        answer(scene.context(), "logs", {"unit": "web"})


def test_a_folder_in_its_place(scene: Scene, tmp_path: Path) -> None:
    """What cannot be read is said, without the path of the state folder."""
    (tmp_path / "web.log").mkdir()
    with pytest.raises(CommandError) as raised:
        logs(scene, tmp_path / "web.log")
    assert os.fspath(tmp_path) not in str(raised.value)

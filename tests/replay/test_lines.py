"""Files of JSON lines: plain, gzipped, broken."""

import gzip
from contextlib import closing
from pathlib import Path

import pytest

from flyball.errors import FlyballError
from flyball.replay import lines as module
from flyball.replay.lines import BadLine, Lines


def numbered(path: Path) -> list[tuple[int, bytes]]:
    with closing(Lines(str(path))) as lines:
        return list(lines)


@pytest.mark.parametrize("zipped", [True, False])
def test_lines_with_their_numbers(tmp_path: Path, zipped: bool) -> None:
    """Empty ones are left out, and counted; whether it is gzipped is seen from what is in it, not from its name."""
    path = tmp_path / "x"
    data = b"1\n\n  \n2\n3"
    path.write_bytes(gzip.compress(data) if zipped else data)
    assert numbered(path) == [(1, b"1\n"), (4, b"2\n"), (5, b"3")]


def test_again(tmp_path: Path) -> None:
    """They can be gone through twice, and what was left out is counted anew."""
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(b"1\n2\n"))
    with closing(Lines(str(path))) as lines:
        for _ in range(2):
            for number, _ in lines:
                lines.leave_out(number, "bad", skip=True)
            assert lines.broken == 2
        with pytest.raises(BadLine, match=r"x:1: bad") as error:
            lines.leave_out(1, "bad", skip=False)
    assert "--skip-broken" in error.value.remedy


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (gzip.compress(b"1\n" * 90_000)[:-9], "the gzip data is broken"),
        (b"\x1f\x8b" + b"nonsense" * 9, "the gzip data is broken"),
    ],
)
def test_a_broken_archive(tmp_path: Path, data: bytes, problem: str) -> None:
    """An error with its place, not a traceback."""
    path = tmp_path / "x.gz"
    path.write_bytes(data)
    with pytest.raises(FlyballError, match=problem):
        numbered(path)


def test_a_line_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not read into memory."""
    monkeypatch.setattr(module, "LINE_MAX", 1000)
    path = tmp_path / "x"
    path.write_bytes(b"1\n" + b"x" * 2000)
    with pytest.raises(FlyballError, match=r"x:2: the line is longer"):
        numbered(path)


@pytest.mark.parametrize(("name", "problem"), [("none", "No such file"), (".", "Is a directory")])
def test_no_file(tmp_path: Path, name: str, problem: str) -> None:
    """What the system says, and what to give."""
    with pytest.raises(FlyballError, match=problem):
        numbered(tmp_path / name)

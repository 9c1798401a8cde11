"""The file of tokens: what is in it, who may read it, and what is refused."""

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from flyball.control.context import CommandError
from flyball.control.web import tokens as module
from flyball.control.web.tokens import FILE, PREFIX, TOKENS_MAX, Tokens, TokensRefused
from flyball.errors import FlyballError


def test_the_first_one(tmp_path: Path) -> None:
    """It is an admin's, long and random, in a file for its owner alone; it is made once."""
    tokens = Tokens(tmp_path / "state")
    assert tokens.all() == []
    assert tokens.make_first()
    [first] = tokens.all()
    assert (first.name, first.role) == ("admin", "admin")
    assert first.token.startswith(PREFIX)
    assert len(first.token) > 45
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600
    assert not tokens.make_first()
    assert tokens.all() == [first]
    assert [path.name for path in tokens.path.parent.iterdir()] == [FILE]


def test_none_is_made_anew_where_all_were_removed(tmp_path: Path) -> None:
    """An empty file is somebody's wish."""
    tokens = Tokens(tmp_path)
    tokens.make_first()
    tokens.remove("admin")
    assert not tokens.make_first()
    assert tokens.all() == []


def test_changes_of_others_count_at_once(tmp_path: Path) -> None:
    """What one process adds or removes, another knows with its next request."""
    daemon, command = Tokens(tmp_path), Tokens(tmp_path)
    made = command.add("phone", "look")
    assert daemon.of(made.token) == made
    assert daemon.has(made)
    command.remove("phone")
    assert daemon.of(made.token) is None
    assert not daemon.has(made)
    again = command.add("phone", "admin")
    assert again.token != made.token
    assert daemon.of(made.token) is None


def test_the_text_is_nowhere_else(tmp_path: Path) -> None:
    """Not where it is printed by mistake."""
    made = Tokens(tmp_path).add("phone", "look")
    assert made.token not in repr(made) + str(made.shown()) + str([made])


def test_many_at_once(tmp_path: Path) -> None:
    """None is lost."""
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda number: Tokens(tmp_path).add(f"t{number}", "look"), range(24)))
    assert {token.token for token in Tokens(tmp_path).all()} == {token.token for token in made}


@pytest.mark.parametrize(
    ("name", "role", "code"),
    [
        ("", "look", "bad_argument"),
        ("a b", "look", "bad_argument"),
        ("../x", "look", "bad_argument"),
        ("x" * 65, "look", "bad_argument"),
        ("-x", "look", "bad_argument"),
        ("x", "root", "bad_argument"),
        ("there", "look", "exists"),
    ],
)
def test_what_cannot_be_added(tmp_path: Path, name: str, role: str, code: str) -> None:
    """It is said why, and the file stays as it was."""
    tokens = Tokens(tmp_path)
    tokens.add("there", "look")
    before = tokens.path.read_bytes()
    with pytest.raises(CommandError) as raised:
        tokens.add(name, role)
    assert raised.value.code == code
    assert raised.value.remedy
    assert tokens.path.read_bytes() == before


def test_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a bound, for adding and for reading."""
    assert TOKENS_MAX >= 100
    monkeypatch.setattr(module, "TOKENS_MAX", 2)
    tokens = Tokens(tmp_path)
    tokens.add("a", "look")
    tokens.add("b", "look")
    with pytest.raises(CommandError, match="already"):
        tokens.add("c", "look")
    monkeypatch.setattr(module, "TOKENS_MAX", 1)
    with pytest.raises(TokensRefused):
        Tokens(tmp_path).all()


@pytest.mark.parametrize("change", ["add", "remove", "first"])
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """It is said what cannot be written, and all is as it was: whoever could come in still can."""
    tokens = Tokens(tmp_path)
    if change != "first":
        tokens.add("phone", "look")
    before = sorted((path.name, path.read_bytes()) for path in tmp_path.iterdir())

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FlyballError, match="cannot be written: No space left") as raised:
        {
            "add": lambda: tokens.add("other", "look"),
            "remove": lambda: tokens.remove("phone"),
            "first": tokens.make_first,
        }[change]()
    assert raised.value.remedy
    assert sorted((path.name, path.read_bytes()) for path in tmp_path.iterdir()) == before


def test_one_that_is_not_there(tmp_path: Path) -> None:
    """Which there are is said."""
    tokens = Tokens(tmp_path)
    tokens.add("phone", "look")
    with pytest.raises(CommandError, match="there are: phone") as raised:
        tokens.remove("fone")
    assert raised.value.code == "not_found"


def written(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


GOOD = {"name": "a", "role": "look", "token": "x" * 40}
CANARY = "very-secret-canary-very-secret-canary"
BAD: Any = [
    ("", "no file of tokens"),
    ("nonsense " + CANARY, "no file of tokens"),
    (json.dumps({"tokens": [{**GOOD, "more": CANARY}]}), "no file of tokens"),
    (json.dumps({"tokens": [{**GOOD, "role": "root"}]}), "there are look, operate, admin"),
    (json.dumps({"tokens": [{**GOOD, "token": "short"}]}), "could be guessed"),
    ("[" * 100_000, "longer than"),
    ("[" * 50_000, "no file of tokens"),
]


@pytest.mark.parametrize(("text", "says"), BAD)
def test_files_that_are_wrong(tmp_path: Path, text: str, says: str) -> None:
    """They are refused with what to do, and nothing that is in them is repeated."""
    written(tmp_path / FILE, text)
    with pytest.raises(TokensRefused, match=says) as raised:
        Tokens(tmp_path).all()
    assert raised.value.remedy
    assert CANARY not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o666, 0o601])
def test_a_file_that_others_can_read(tmp_path: Path, mode: int) -> None:
    """It is refused until a person says that all is well."""
    tokens = Tokens(tmp_path)
    tokens.make_first()
    tokens.path.chmod(mode)
    with pytest.raises(TokensRefused, match=f"{mode:04o}") as raised:
        tokens.all()
    assert f"chmod 600 {tokens.path}" in raised.value.remedy
    tokens.path.chmod(0o600)
    assert len(tokens.all()) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_somebody_else(tmp_path: Path) -> None:
    """Whoever owns it could have written it."""
    tokens = Tokens(tmp_path)
    tokens.make_first()
    os.chown(tokens.path, 12345, -1)
    with pytest.raises(TokensRefused, match="belongs to user 12345"):
        tokens.all()


def test_a_link_to_a_file(tmp_path: Path) -> None:
    """What it points to could be anything."""
    written(tmp_path / "real", json.dumps({"tokens": [GOOD]}))
    (tmp_path / FILE).symlink_to(tmp_path / "real")
    with pytest.raises(TokensRefused, match="no plain file"):
        Tokens(tmp_path).all()

"""The checkpoint file: the command's own, and never trusted."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from flyball.errors import FlyballError
from flyball.runtimes.session.workfile import WorkFile
from flyball.store.checkpoints import BYTES_MAX

NOBODY = 65534


@pytest.fixture
def file(tmp_path: Path) -> WorkFile:
    """One that was given a checkpoint."""
    file = WorkFile(tmp_path / "sessions", "work")
    file.put(b"first")
    return file


def test_put_and_take(file: WorkFile) -> None:
    """What was put is there, for the unit's user alone; what the command makes of it is what is taken, whether it
    writes it anew or has another file take its place."""
    assert file.take() == b"first"
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    file.path.write_bytes(b"second")
    assert file.take() == b"second"
    other = file.path.with_name("other")
    other.write_bytes(bytes(BYTES_MAX))
    other.rename(file.path)
    assert file.take() == bytes(BYTES_MAX)
    file.put(b"")
    assert file.path.read_bytes() == b""


def _linked(path: Path) -> None:
    secret = path.with_name("secret")
    secret.write_text("secret")
    path.unlink()
    path.symlink_to(secret)


def _second_name(path: Path) -> None:
    secret = path.with_name("secret")
    secret.write_text("secret")
    path.unlink()
    path.hardlink_to(secret)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (Path.unlink, "cannot be read: No such file"),
    "empty": (lambda path: path.write_bytes(b""), "is empty"),
    "too large": (lambda path: path.write_bytes(bytes(BYTES_MAX + 1)), f"has {BYTES_MAX + 1} bytes; allowed: 1048576"),
    "a link": (_linked, "is a link"),
    "a second name": (_second_name, "has a second name"),
    "a pipe": (_pipe, "is no plain file"),
    "a folder": (_folder, "is no plain file"),
    "no folder": (lambda path: shutil.rmtree(path.parent), "cannot be read: No such file"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_taken(name: str, file: WorkFile) -> None:
    """Each is refused with the path and why, without waiting for anything; nothing of it is read out, and no file stays
    open."""
    spoil, text = BAD[name]
    spoil(file.path)
    before = os.dup(0)
    os.close(before)
    with pytest.raises(FlyballError, match="the last one that was kept stands") as raised:
        file.take()
    assert text in str(raised.value)
    assert str(file.path) in str(raised.value)
    assert "secret" not in str(raised.value).replace(str(file.path), "")
    after = os.dup(0)
    os.close(after)
    assert after == before, "the lowest free number is the same"


def test_it_is_not_written_through(file: WorkFile) -> None:
    """Where the command left a link, of the file itself or of the one that takes its place, what the link leads to
    stays as it is."""
    _linked(file.path)
    victim = file.path.with_name("victim")
    victim.write_text("as it was")
    file.path.with_name(".checkpoint.new").symlink_to(victim)
    file.put(b"again")
    assert file.take() == b"again"
    assert file.path.with_name("secret").read_text() == "secret"
    assert victim.read_text() == "as it was"


def test_removed(file: WorkFile) -> None:
    """Nothing of it is left, unless the command left something of its own; to remove what is not there is fine."""
    own = file.path.with_name("own")
    own.touch()
    file.remove()
    assert list(file.path.parent.iterdir()) == [own]
    own.unlink()
    file.remove()
    file.remove()
    assert not file.path.parent.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have units of other users")
def test_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit that runs as another user has its file where that user can get, and is its owner; a file of somebody else
    is not taken."""
    tmp_path.chmod(0o755)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    file = WorkFile(tmp_path / "state" / "sessions", "work", uid=NOBODY)
    file.put(b"first")
    assert (file.path.stat().st_uid, file.path.parent.stat().st_uid) == (NOBODY, NOBODY)
    assert not (tmp_path / "state").exists()
    assert all(folder.stat().st_mode & stat.S_IXOTH for folder in (file.path.parent.parent, tmp_path))
    assert file.take() == b"first"
    file.path.unlink()
    file.path.write_text("somebody else's")
    with pytest.raises(FlyballError, match="somebody else's file"):
        file.take()

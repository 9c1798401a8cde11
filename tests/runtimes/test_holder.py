"""Who holds a run: known again as long as it lives, and never mistaken for another."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.runtimes import holder
from tests.cli.running import until


@pytest.fixture(params=["proc", "ps"])
def _by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if request.param == "ps":
        monkeypatch.setattr(holder, "PROC", tmp_path)


@pytest.fixture
def sleeper() -> "Iterator[subprocess.Popen[bytes]]":
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def name_of(pid: int, off: int = 0) -> str:
    started = holder.start_of(pid)
    assert started is not None
    return f"{socket.gethostname()}/{pid}/{started + off}"


@pytest.mark.usefixtures("_by")
def test_lives_ends_and_is_reaped(sleeper: "subprocess.Popen[bytes]") -> None:
    """A process is gone when it has ended, also before anybody has reaped it."""
    name = name_of(sleeper.pid)
    assert not holder.is_gone(name)
    sleeper.kill()
    until(lambda: holder.is_gone(name), "its end")
    sleeper.wait()
    assert holder.is_gone(name)


@pytest.mark.usefixtures("_by")
def test_recycled_number(sleeper: "subprocess.Popen[bytes]") -> None:
    """A process with the same number that started at another time is another."""
    assert holder.is_gone(name_of(sleeper.pid, off=-1000))


@pytest.mark.usefixtures("_by")
def test_me() -> None:
    """This process is the same each time it is asked, and not gone."""
    host, pid, started = holder.me().split("/")
    assert (host, pid) == (socket.gethostname(), str(os.getpid()))
    assert started.isdecimal()
    assert not holder.is_gone(holder.me())


@pytest.mark.usefixtures("_by")
@pytest.mark.parametrize("name", ["", "x", "a/b/c", "a/1/2", "{host}/1", "{host}/x/1", "{host}/1/", "{host}/1/2/unit"])
def test_what_is_not_known_is_not_gone(name: str) -> None:
    """Of another host, or of a name that says too little, nothing is known."""
    assert not holder.is_gone(name.format(host=socket.gethostname()))


@pytest.mark.usefixtures("_by")
def test_number_that_cannot_be() -> None:
    """A number beyond all numbers is nobody's."""
    assert holder.is_gone(f"{socket.gethostname()}/{2**70}/1")


def test_process_of_another_that_cannot_be_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the system hides the processes of others, one that is there is not taken for gone."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "stat").touch()
    monkeypatch.setattr(holder, "PROC", tmp_path)

    def kill(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", kill)
    assert not holder.is_gone(f"{socket.gethostname()}/1/1")


def test_without_ps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where nobody can tell, the lease decides: nothing raises, and this process is not gone."""
    monkeypatch.setattr(holder, "PROC", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not holder.is_gone(holder.me())

"""What a doctor says of what was seen: no machine has to be broken for it."""

import errno
import json
import os
import stat
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from flyball.config import load
from flyball.config.units import Unit
from flyball.core.time import DAY, HOUR, MINUTE, SECOND
from flyball.doctor import (
    browser,
    clock,
    daemon,
    disk,
    extras,
    http,
    interpreter,
    kernel,
    limits,
    secrets,
    store,
    systemd,
    units,
    variables,
)
from flyball.doctor import settings as of_settings
from flyball.doctor import socket as of_socket
from flyball.doctor.finding import Finding, Level
from flyball.doctor.store_seen import Seen
from flyball.errors import FlyballError, StoreTooNew
from flyball.runtimes.process.kernel import Kernel
from flyball.store.postgres.health import Health

GIB = 2**30
NOW = 1_800_000_000 * SECOND
DISK = disk.Disk(path="/var/x", free=50 * GIB, total=100 * GIB, kind="ext4", files_free=10**6, files_total=10**7)
LIMITS = limits.Limits(files=1024, files_most=4096, processes=10_000, pids=32_768)
ADDRESS = http.Address(setting="http.listen", listen="127.0.0.1:8910", what="the page")
FOLDER = of_socket.Owned("/var/x", stat.S_IFDIR | 0o700, 1000)
SOCKET = of_socket.Owned("/var/x/flyball.sock", stat.S_IFSOCK | 0o600, 1000)
HEALTH = Health(
    server=170_002, version=1, standby=False, fsync=True, connections_max=100, may_make=True, may_write=True, now=NOW
)


def levels(found: Iterable[Finding] | Finding) -> list[str]:
    """How good each is. Whatever is not fine says what to do."""
    found = [found] if isinstance(found, Finding) else list(found)
    assert [finding.text for finding in found if finding.level is not Level.OK and not finding.remedy] == []
    return [finding.level.word for finding in found]


@pytest.mark.parametrize(("version", "level"), [((3, 10, 9), "bad"), ((3, 11, 0), "ok"), ((3, 14, 1), "ok")])
def test_python(version: tuple[int, ...], level: str) -> None:
    """An older Python than flyball is made for is bad."""
    assert levels(interpreter.judge(version, "CPython", "/usr/bin/python3")) == [level]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ["ok"]),
        ({"free": 500 * 2**20}, ["warning"]),
        ({"free": 50 * 2**20}, ["bad"]),
        ({"read_only": True}, ["bad"]),
        ({"writable": False}, ["bad", "ok"]),
        ({"files_free": 10}, ["ok", "bad"]),
        ({"files_free": 0, "files_total": 0}, ["ok"]),
        ({"kind": "nfs4"}, ["ok", "bad"]),
        ({"kind": "9p"}, ["ok", "bad"]),
        ({"kind": "fuse.sshfs"}, ["ok", "bad"]),
        ({"kind": "tmpfs"}, ["ok", "warning"]),
        ({"kind": "overlay"}, ["ok"]),
        ({"kind": "overlay", "contained": True}, ["ok", "warning"]),
    ],
)
def test_disk(change: dict[str, object], said: list[str]) -> None:
    """Room, files, rights, and kinds of disks that lose what SQLite writes, or all of it."""
    assert levels(disk.judge(replace(DISK, **change), shared=False)) == said  # type: ignore[arg-type]


def test_disk_of_the_network_where_the_store_is_elsewhere() -> None:
    """Then only locks and sockets are on it."""
    assert levels(disk.judge(replace(DISK, kind="nfs"), shared=True)) == ["ok", "warning"]


def test_kind_of_disk(tmp_path: Path) -> None:
    """The innermost mount counts, of two at one place the later; a name may have a blank in it."""
    table = tmp_path / "mountinfo"
    inner = tmp_path / "a b"
    inner.mkdir()
    blank = str(inner).replace(" ", "\\040")
    table.write_text(
        "1 0 8:1 / / rw - ext4 /dev/a rw\n"
        f"2 1 0:2 / {blank} rw shared:1 - tmpfs tmpfs rw\n"
        f"3 1 0:3 / {blank} rw - nfs4 server:/x rw\n"
        "broken\n"
    )
    assert disk.kind_of(inner, table) == "nfs4"
    assert disk.kind_of(tmp_path, table) == "ext4"
    assert disk.kind_of(inner, tmp_path / "none") == ""


@pytest.mark.parametrize(("sqlite", "level"), [("3.51.2", "bad"), ("3.51.3", "ok"), ("3.60.0", "ok")])
def test_library(sqlite: str, level: str) -> None:
    """A SQLite that is known to lose data is bad."""
    assert levels(store.judge_library(sqlite, "1")) == [level]


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (Seen(where="x", there=False), ["ok"]),
        (Seen(where="x", copied=True, version=1, newest=1, entries=3), ["ok"]),
        (Seen(where="x", copied=True, version=1, newest=2), ["warning"]),
        (Seen(where="x", why_not="too large"), ["warning"]),
        (Seen(where="x", error=StoreTooNew("version 9")), ["bad"]),
        (Seen(where="x", copied=True, version=1, newest=1, problems=("a gap",)), ["bad"]),
        (Seen(where="x", copied=True, version=1, newest=1, problems=("p",) * 9), ["bad"] * 6),
        (Seen(where="x", shared=True, copied=True, version=1, newest=1, health=HEALTH), ["ok", "ok"]),
        (Seen(where="x", shared=True, there=False, copied=True, health=HEALTH), ["ok", "ok"]),
        (Seen(where="x", shared=True, there=False, health=replace(HEALTH, may_make=False)), ["ok", "bad", "ok"]),
        (Seen(where="x", copied=True, version=1, newest=1, health=replace(HEALTH, standby=True)), ["ok", "bad", "ok"]),
        (
            Seen(where="x", copied=True, version=1, newest=1, health=replace(HEALTH, may_write=False)),
            ["ok", "bad", "ok"],
        ),
        (Seen(where="x", copied=True, version=1, newest=1, health=replace(HEALTH, fsync=False)), ["ok", "bad", "ok"]),
        (Seen(where="x", copied=True, version=1, newest=1, health=replace(HEALTH, server=130_001)), ["bad", "ok"]),
    ],
)
def test_store(seen: Seen, said: list[str]) -> None:
    """What cannot be opened, is damaged, or may not be written is bad; an older version is only told."""
    assert levels(store.judge(seen)) == said


@pytest.mark.parametrize(
    ("last", "level"),
    [
        (None, "ok"),
        (NOW - HOUR, "ok"),
        (NOW + MINUTE, "ok"),
        (NOW + 6 * MINUTE, "bad"),
        (NOW - 31 * DAY, "bad"),
    ],
)
def test_clock(last: int | None, level: str) -> None:
    """What the policy `clock` would hold the fleet for is bad, and nothing else."""
    assert levels(clock.judge(NOW, last, back_max=5 * MINUTE, ahead_max=30 * DAY)) == [level]


def test_a_clock_of_long_ago() -> None:
    """A machine without a battery begins in 1970."""
    assert levels(clock.judge(0, None, back_max=MINUTE, ahead_max=DAY)) == ["bad"]
    assert levels(clock.judge_synchronised(False)) == ["warning"]
    assert levels(clock.judge_difference(-61 * SECOND)) == ["warning"]
    assert levels(clock.judge_difference(SECOND)) == ["ok"]


@pytest.mark.parametrize(
    ("mode", "me", "said"),
    [
        (0o700, 1000, ["ok"]),
        (0o700, 0, ["ok"]),
        (0o750, 1000, ["warning"]),
        (0o770, 1000, ["bad"]),
        (0o700, 1001, ["bad"]),
    ],
)
def test_state_folder(mode: int, me: int, said: list[str]) -> None:
    """It is for its owner alone."""
    assert levels(of_socket.judge_folder(replace(FOLDER, mode=stat.S_IFDIR | mode), me)) == said


def test_socket() -> None:
    """Its mode, what it is, and whether anybody listens."""
    assert levels(of_socket.judge_socket(SOCKET, listened={"pid": 1})) == ["ok"]
    assert levels(of_socket.judge_socket(SOCKET, listened=None)) == ["ok"]
    assert levels(of_socket.judge_socket(SOCKET, listened=FlyballError("silent", remedy="Look."))) == ["bad"]
    assert levels(of_socket.judge_socket(replace(SOCKET, mode=stat.S_IFSOCK | 0o666), listened=None)) == ["warning"]
    assert levels(of_socket.judge_socket(replace(SOCKET, mode=stat.S_IFREG | 0o600), listened=None)) == ["bad"]
    assert levels(of_socket.judge_length(Path("/" + "x" * 150), linux=True)) == ["ok"]
    assert levels(of_socket.judge_length(Path("/" + "x" * 150), linux=False)) == ["bad"]
    assert levels(of_socket.judge_length(Path("/x"), linux=False)) == []


def test_daemon() -> None:
    """None is fine; one of another version, or that does not say which, is told; one that hangs is bad."""
    said = {"pid": 7, "pids": {"a": 8}, "version": "1.0"}
    assert levels(daemon.judge(None, "1.0")) == ["ok"]
    assert levels(daemon.judge(said, "1.0")) == ["ok"]
    assert levels(daemon.judge(said, "1.1")) == ["warning"]
    assert levels(daemon.judge({"pid": 7, "pids": {}}, "1.1")) == ["warning"]
    assert levels(daemon.judge(FlyballError("silent", remedy="Look."), "1.0")) == ["bad"]


def test_settings() -> None:
    """Problems and what is not there are bad, the rest is told."""
    assert levels(of_settings.judge_problems(["a:1:1: x", "a:2:1: y"])) == ["bad", "bad"]
    judge = of_settings.judge
    assert levels(judge("", given=0, units=0, rules=0, lacking=(), warnings=())) == ["ok"]
    assert levels(judge("a", given=0, units=0, rules=0, lacking=(), warnings=())) == ["warning"]
    found = judge("a", given=9, units=1, rules=0, lacking=["no X"], warnings=["no X", "never reached"])
    assert levels(found) == ["ok", "bad", "warning"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("FLYBALL_BUDGET_PER_RUN", "did you mean FLYBALL_BUDGET__PER_RUN?"),
        ("FLYBALL_STATEDIR", "did you mean FLYBALL_STATE_DIR?"),
        ("FLYBALL_ZZZ", "nothing reads it"),
    ],
)
def test_variables(name: str, says: str) -> None:
    """A slip in a name is found, and what was meant."""
    found = list(variables.judge([name, "FLYBALL_STATE_DIR"], variables.as_variables()))
    assert levels(found) == ["warning"]
    assert says in found[0].text


def test_variables_that_mean_something() -> None:
    """Every variable that our own source reads or sets is known."""
    assert levels(variables.judge(["FLYBALL_STATE_DIR", "FLYBALL_UNIT", "FLYBALL_STALL__STOP_AT"], ())) == ["ok"]
    assert "FLYBALL_DAEMON__SESSIONRECOVERY__MAXRESUMEATTEMPTS" in variables.as_variables()


def test_units(tmp_path: Path) -> None:
    """A command, a folder, a user that are not there are bad; so is another user, for who is not root."""

    def unit(**given: str) -> Unit:
        return Unit(name="a", command=("prog",), **given)  # type: ignore[arg-type]

    assert levels(units.judge(unit(), lambda _: "/bin/prog", 0)) == []
    assert levels(units.judge(unit(), lambda _: None, 0)) == ["bad"]
    assert levels(units.judge(unit(cwd=str(tmp_path / "none")), lambda _: "/x", 0)) == ["bad"]
    assert levels(units.judge(unit(user="nobody-of-that-name"), lambda _: "/x", 0)) == ["bad"]
    assert levels(units.judge(unit(user="root"), lambda _: "/x", 1000)) == ["bad"]
    assert levels(units.judge(unit(user="root"), lambda _: "/x", 0)) == []


def test_extras() -> None:
    """What the settings need and is not installed is bad, with the line that installs it."""
    found = list(extras.judge(extras.ALL, lambda package: package != "dbos"))
    assert levels(found) == ["bad"]
    assert "flyball-governor[fleet]" in found[0].remedy
    assert levels(extras.judge([], lambda _: False)) == ["ok"]
    assert not extras.is_installed("no_such_package.inner")


def test_packages_of_extras() -> None:
    """They are called as they are imported: where all extras are installed, none is missing."""
    assert levels(extras.judge(extras.ALL, extras.is_installed)) == ["ok"]


@pytest.mark.parametrize(
    ("given", "needs"),
    [
        ({}, []),
        ({"rules": {"r": {"triggers": [{"every": "1h"}], "actions": [{"run": ["x"]}]}}}, []),
        ({"rules": {"r": {"triggers": [{"cron": "0 7 * * *"}], "actions": [{"run": ["x"]}]}}}, ["cronsim"]),
        (
            {"rules": {"r": {"triggers": [{"file": "x"}], "when": "true", "actions": [{"run": ["x"]}]}}},
            ["cel", "watchfiles"],
        ),
        (
            {"rules": {"r": {"triggers": [{"every": "1h"}], "actions": [{"browser": [{"goto": "https://x"}]}]}}},
            ["playwright"],
        ),
        ({"store": "postgresql://x/y"}, ["psycopg", "dbos"]),
        ({"traces": {"exporter": "console"}}, ["opentelemetry.sdk"]),
        ({"alerts": {"channels": {"a": {"type": "apprise", "urls": ["json://x"]}}}}, ["apprise"]),
        ({"telegram": {"token": "1:" + "a" * 35, "users": [{"id": 1, "name": "ann", "role": "look"}]}}, ["telegram"]),
    ],
)
def test_what_settings_need(given: dict[str, object], needs: list[str], tmp_path: Path) -> None:
    """No more than what is used of an extra."""
    file = tmp_path / "flyball.yaml"
    file.write_text(json.dumps(given))
    assert [need.package for need in extras.wanted(load(file, env={}))] == needs


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ["ok"]),
        ({"ours": True}, ["ok"]),
        ({"error": errno.EADDRINUSE, "by": "nginx, pid 7"}, ["bad"]),
        ({"error": errno.EADDRINUSE, "given": False}, ["warning"]),
        ({"error": errno.EACCES, "said": "Permission denied"}, ["bad"]),
        ({"listen": "0.0.0.0:80"}, ["ok", "warning"]),
        ({"listen": "[::1]:80"}, ["ok"]),
        ({"listen": "box.example.org:80"}, ["ok", "warning"]),
    ],
)
def test_addresses(change: dict[str, object], said: list[str]) -> None:
    """One that is taken, may not be opened, or can be reached from elsewhere."""
    assert levels(http.judge(replace(ADDRESS, **change))) == said  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "named", "driven", "used", "level"),
    [
        (None, "", False, False, "ok"),
        ("/usr/bin/chromium", "", True, True, "ok"),
        (None, "", True, True, "bad"),
        (None, "/no", True, True, "bad"),
        ("/usr/bin/chromium", "", False, True, "bad"),
    ],
)
def test_browser(path: str | None, named: str, driven: bool, used: bool, level: str) -> None:
    """Only where a rule uses one does it have to be there, and to be driven."""
    assert levels(browser.judge(path, named=named, driven=driven, used=used)) == [level]


@pytest.mark.parametrize(
    ("lacks", "level"), [({}, "ok"), ({"pidfd": False}, "warning"), ({"subreaper": False}, "warning")]
)
def test_kernel(lacks: dict[str, bool], level: str) -> None:
    """Without what the kernel offers there is less certainty, and that is told."""
    found = Kernel(**{"pidfd": True, "subreaper": True, "proc": True, **lacks})
    assert levels(kernel.judge(found, os.uname())) == [level]


@pytest.mark.parametrize(
    ("change", "units_", "said"),
    [
        ({}, 10, ["ok"]),
        ({}, 1000, ["bad"]),
        ({"files": 65_536}, 1000, ["ok"]),
        ({"files": 65_536, "processes": 100}, 1000, ["ok", "bad"]),
        ({"pids": 500}, 10, ["ok", "warning"]),
        ({"files": limits.NO_LIMIT}, 1000, ["ok"]),
    ],
)
def test_limits(change: dict[str, int], units_: int, said: list[str]) -> None:
    """So many units have to fit into what is allowed."""
    assert levels(limits.judge(replace(LIMITS, **change), units_)) == said


UNIT_FILE = "[Service]\nType=exec\nExecStart=/usr/bin/flyball up --config /x\nKillMode=mixed\nRestart=on-failure\n"


@pytest.mark.parametrize(
    ("text", "users", "lingers", "said"),
    [
        (UNIT_FILE, False, False, ["ok"]),
        (UNIT_FILE, True, True, ["ok"]),
        (UNIT_FILE, True, False, ["warning"]),
        (UNIT_FILE.replace(" up ", " up -d "), False, False, ["warning"]),
        (UNIT_FILE.replace("Type=exec", "Type=notify"), False, False, ["warning"]),
        (UNIT_FILE + "WatchdogSec=30\n", False, False, ["warning"]),
        (UNIT_FILE.replace("KillMode=mixed\n", ""), False, False, ["warning"]),
        (UNIT_FILE.replace("Restart=on-failure\n", ""), False, False, ["warning"]),
    ],
)
def test_systemd(text: str, users: bool, lingers: bool, said: list[str]) -> None:
    """A unit file that does not do what it should is told of."""
    assert levels(systemd.judge("/x", text, users=users, lingers=lingers)) == said


def test_unit_files_that_start_flyball(tmp_path: Path) -> None:
    """They are found by what they start."""
    (tmp_path / "agents.service").write_text(UNIT_FILE)
    (tmp_path / "other.service").write_text("[Service]\nExecStart=/usr/bin/flyballer uptime\n")
    assert [file.name for file in systemd.found(tmp_path)] == ["agents.service"]
    assert systemd.found(tmp_path / "none") == []


@pytest.mark.parametrize(("mode", "said"), [(0o600, []), (0o640, ["warning"]), (0o644, ["warning"]), (0o620, ["bad"])])
def test_secrets(mode: int, said: list[str]) -> None:
    """A file with secrets is for its owner alone."""
    assert levels(secrets.judge(of_socket.Owned("/x", stat.S_IFREG | mode, 0), "named by y")) == said


def test_files_and_secrets_of_settings() -> None:
    """Files that hold secrets are found by their keys; a secret itself by its key, unless it only names a variable."""
    given = {
        "telegram": {"token_file": "bot", "token": "${BOT}"},
        "units": {"a": {"env_file": "/etc/a", "beat_file": "beat"}},
        "alerts": {"channels": {"x": {"password": "p"}}},
        "store": "postgresql://me:word@db/x",
        "rules": {"r": {"triggers": [{"secret": "s"}]}},
    }
    assert dict(secrets.named_files(given, Path("/srv"))) == {
        "telegram.token_file": "/srv/bot",
        "units.a.env_file": "/etc/a",
    }
    assert list(secrets.inline_secrets(given)) == ["alerts.channels.x.password", "store", "rules.r.triggers.0.secret"]

"""A doctor on a real folder, a real file and a real port: it sees what is there, and leaves it as it was."""

import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import flyball
from flyball import doctor
from flyball.core.time import SECOND
from flyball.doctor import CHECKS, OF_SETTINGS, Finding, Level, Scene, examine, http, store_seen, variables
from flyball.scratch import Scratch
from flyball.store.sqlite import SqliteStore
from tests.control.scene import scene_in
from tests.servers.ntfy import NtfyServer
from tests.servers.postgres import PostgresServer


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"FLYBALL_STATE_DIR": str(tmp_path / "state"), "PATH": os.environ["PATH"], "HOME": str(tmp_path)}


def found(env: dict[str, str], folder: Path, *only: str, send: bool = False) -> list[Finding]:
    return list(examine(Scene(env, cwd=folder, send=send), only))


def levels(findings: list[Finding]) -> list[str]:
    return [finding.level.word for finding in findings]


def marks(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """All that is in a folder, and what is in it."""
    return {
        str(path): (path.stat().st_mode, path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def past(folder: Path) -> None:
    """Something happened here."""
    made = scene_in(folder)
    made.quarantine("web")
    made.governor.store.close()


def test_nothing_is_there(env: dict[str, str], tmp_path: Path) -> None:
    """Without settings and without a state folder nothing is bad, and none is made."""
    findings = found(env, tmp_path)
    assert [finding for finding in findings if finding.level is Level.BAD] == []
    assert {finding.check for finding in findings} >= set(CHECKS) - {"units"}
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_looked_at_and_left_as_it_was(env: dict[str, str], tmp_path: Path) -> None:
    """A store is opened as a copy: nothing in the state folder is made, changed or taken away."""
    past(tmp_path / "state")
    before = marks(tmp_path)
    findings = found(env, tmp_path, "store", "clock")
    assert levels(findings) == ["ok"] * 3
    assert "it opens, and is sound" in findings[1].text
    assert marks(tmp_path) == before


def test_a_file_that_somebody_writes(env: dict[str, str], tmp_path: Path) -> None:
    """What is not in the file itself yet is seen, too."""
    made = scene_in(tmp_path / "state")
    made.quarantine("web")
    seq = made.governor.store.read(()).seq
    assert seq > 0
    assert (tmp_path / "state/state.db-wal").stat().st_size > 0
    findings = found(env, tmp_path, "store")
    made.governor.store.close()
    assert f"ends with entry {seq};" in findings[1].text


def test_a_file_that_is_written_all_the_time(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No copy of the files is whole then; SQLite makes one, and no file is made beside the store."""
    made = scene_in(tmp_path / "state")
    made.quarantine("web")
    seq = made.governor.store.read(()).seq
    changes = iter(range(1_000))
    monkeypatch.setattr(store_seen, "_marks", lambda _: next(changes))
    monkeypatch.setattr(store_seen, "REST", 0)
    before = {path.name for path in (tmp_path / "state").iterdir()}
    findings = found(env, tmp_path, "store")
    assert {path.name for path in (tmp_path / "state").iterdir()} == before
    made.governor.store.close()
    assert levels(findings) == ["ok", "ok"]
    assert f"ends with entry {seq};" in findings[1].text


@pytest.mark.parametrize("broken", ["garbage", "newer", "older", "gap", "page"])
def test_a_file_that_is_not_as_it_should_be(broken: str, env: dict[str, str], tmp_path: Path) -> None:
    """Damaged, of a newer version, with a hole in its journal, not even a file of SQLite: bad, and left as it is."""
    past(tmp_path / "state")
    file = tmp_path / "state/state.db"
    if broken == "garbage":
        file.write_bytes(b"no database at all, and long enough to be looked at" * 100)
    elif broken == "page":
        data = bytearray(file.read_bytes())
        data[4096:8192] = b"\xff" * 4096
        file.write_bytes(data)
    else:
        connection = apsw.Connection(str(file))
        if broken == "gap":
            connection.execute("DELETE FROM journal WHERE seq = 3")
        else:
            connection.pragma("user_version", 99 if broken == "newer" else 0)
        connection.close()
    before = marks(tmp_path)
    findings = found(env, tmp_path, "store")
    assert "bad" in levels(findings)
    assert all(finding.remedy for finding in findings[1:])
    assert not any("flyball-doctor-" in finding.text for finding in findings)
    assert marks(tmp_path) == before


def test_a_folder_that_one_may_not_look_into(env: dict[str, str], tmp_path: Path) -> None:
    """It is somebody else's: that is told, and no check fails of it."""
    folder = tmp_path / "state"
    past(folder)
    found(env, tmp_path / "none")  # all that is imported later is there then
    try:
        if os.geteuid() == 0:
            os.seteuid(65534)
        else:
            folder.chmod(0)
        findings = found(env, Path("/"), "socket", "daemon", "disk", "store", "clock", "secrets")
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        folder.chmod(0o700)
    assert [one.text for one in findings if "itself failed" in one.text] == []
    assert "bad" in levels([one for one in findings if one.check == "store"])
    assert "bad" in levels([one for one in findings if one.check in ("socket", "daemon")])


def test_a_wrong_clock(env: dict[str, str], tmp_path: Path) -> None:
    """It is compared with the journal's last entry."""
    past(tmp_path / "state")
    with SqliteStore(tmp_path / "state/state.db") as store:
        at = store.read(()).at / SECOND
    scene = Scene(env, cwd=tmp_path, clock=lambda: at - 3600)
    assert next(examine(scene, ["clock"])).level is Level.BAD
    scene = Scene(env, cwd=tmp_path, clock=lambda: at + 60)
    assert next(examine(scene, ["clock"])).level is Level.OK


def test_broken_settings(env: dict[str, str], tmp_path: Path) -> None:
    """Each problem has its place; what hangs on them is not looked at, and all else is."""
    (tmp_path / "flyball.yaml").write_text("units:\n  a: {comand: x}\nbudget: 3\n")
    findings = found(env, tmp_path)
    assert levels([one for one in findings if one.check == "settings"]) == ["bad", "bad"]
    assert "flyball.yaml:2:7: unknown key 'comand'" in findings[1].text
    skipped = {one.check for one in findings if one.text.startswith("not looked at")}
    assert skipped == OF_SETTINGS
    assert {one.check for one in findings} == set(CHECKS)


def test_settings_that_name_what_is_not_there(env: dict[str, str], tmp_path: Path) -> None:
    """A program, a variable, a file with secrets that others may read."""
    (tmp_path / "secret").write_text("A=1\n")
    (tmp_path / "secret").chmod(0o644)
    (tmp_path / "flyball.yaml").write_text(
        json.dumps(
            {
                "units": {
                    "a": {"command": ["no-such-program"], "env": {"X": "${NOT_SET}"}},
                    "b": {"command": ["sh"], "env_file": "secret"},
                }
            }
        )
    )
    bad = [one for one in found(env, tmp_path, "settings", "units", "secrets") if one.level is not Level.OK]
    assert [(one.check, one.level.word) for one in bad] == [
        ("settings", "bad"),
        ("units", "bad"),
        ("secrets", "warning"),
    ]
    assert "NOT_SET" in bad[0].text
    assert "'no-such-program'" in bad[1].text
    assert "units.b.env_file" in bad[2].text


def test_a_port_that_is_taken(env: dict[str, str], tmp_path: Path) -> None:
    """It says by whom."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        (tmp_path / "flyball.yaml").write_text(json.dumps({"http": {"listen": listen}}))
        findings = found(env, tmp_path, "http")
        assert levels(findings) == ["bad"]
        if Path("/proc/net/tcp").exists():
            assert f"pid {os.getpid()}" in findings[0].text
    assert levels(found(env, tmp_path, "http")) == ["ok"]
    assert http.listener(1) == ""


@pytest.fixture
def phone() -> Iterator[NtfyServer]:
    with NtfyServer() as server:
        yield server


def test_alerts_are_tried_by_a_message(env: dict[str, str], tmp_path: Path, phone: NtfyServer) -> None:
    """A message is really sent, unless that is not wanted; one that does not arrive is bad."""
    channels = {
        "phone": {"type": "ntfy", "url": phone.url, "topic": "t0p1c"},
        "gone": {"type": "ntfy", "url": "http://127.0.0.1:1", "topic": "t0p1c"},
    }
    (tmp_path / "flyball.yaml").write_text(json.dumps({"alerts": {"channels": channels}}))
    assert levels(found(env, tmp_path, "alerts")) == ["ok", "ok"]
    assert phone.published == []
    findings = found(env, tmp_path, "alerts", send=True)
    assert levels(findings) == ["ok", "bad"]
    assert "flyball alerts test gone" in findings[1].remedy
    assert [message["title"] for message in phone.published] == ["flyball: a test"]


def test_a_check_that_fails_itself(env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of ours is one line, and the next check goes on."""

    def fails(_: Scene) -> Iterator[Finding]:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(doctor, "CHECKS", {"python": fails, "variables": variables.check})
    findings = found(env, tmp_path)
    assert levels(findings) == ["bad", "ok"]
    assert "ZeroDivisionError: by nothing" in findings[0].text


def test_every_variable_of_the_source_is_known() -> None:
    """A doctor must not call a variable unknown that flyball itself reads or sets."""
    source = Path(flyball.__file__).parent
    texts = [path.read_text() for path in source.rglob("*.py") if path.parent.name != "doctor"]
    quoted = {name for text in texts for name in re.findall(r"\"(FLYBALL_[A-Z_]+[A-Z])\"", text) if "__" not in name}
    known = variables.OURS | variables.FOR_UNITS | variables.INNER
    assert quoted - known == set()


def test_the_docs_list_all_checks() -> None:
    """Each check has its row, in the order in which they are told."""
    page = Path(__file__).parents[2] / "docs/how-to/doctor.md"
    assert re.findall(r"^\| `([a-z]+)` \|", page.read_text(), re.MULTILINE) == list(CHECKS)


@pytest.mark.slow
def test_a_database(env: dict[str, str], tmp_path: Path, postgres_server: PostgresServer) -> None:
    """It is reached, and nothing is made in it; then its tables are seen; a user without rights is told so."""
    from flyball.store.postgres import PostgresStore
    from tests.store.databases import ask

    dsn = env["FLYBALL_STORE"] = postgres_server.database()
    first = found(env, tmp_path, "store")
    assert levels(first) == ["ok", "bad", "ok"]
    assert "fsync is off" in first[1].text  # so are the servers of tests
    assert ask(dsn, "SELECT to_regnamespace('flyball') IS NULL") == [(True,)]
    PostgresStore(dsn).close()
    seen = found(env, tmp_path, "store", "clock")
    assert levels(seen)[:5] == ["ok", "bad", "ok", "ok", "ok"]
    assert "version 1, the journal ends with entry 0; it opens, and is sound" in seen[2].text
    ask(dsn, "CREATE ROLE looker LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA flyball TO looker")
    ask(dsn, "GRANT SELECT ON ALL TABLES IN SCHEMA flyball TO looker")
    env["FLYBALL_STORE"] = re.sub(r"//[^@]*@", "//looker:x@", dsn)
    looks = [one for one in found(env, tmp_path, "store") if "may not write" in one.text]
    assert levels(looks) == ["bad"]
    env["FLYBALL_STORE"] = dsn
    ask(dsn, "UPDATE flyball.head SET oldest = 99; UPDATE flyball.version SET version = 99")
    assert levels(found(env, tmp_path, "store")) == ["bad"]
    env["FLYBALL_STORE"] = "postgresql://nobody@127.0.0.1:1/none"
    away = found(env, tmp_path, "store")
    assert levels(away) == ["bad"]
    assert "cannot be reached" in away[0].text


@pytest.mark.slow
def test_a_daemon_that_runs(phone: NtfyServer) -> None:
    """It is asked: its version, its socket, its page and its webhooks; and it is the one that sends the message."""
    hook = {"triggers": [{"webhook": "in", "secret": "s3cr3t-long-enough-0123456789"}], "actions": [{"run": ["true"]}]}
    with Scratch("flyball-doctor-test-", NO_PROXY="127.0.0.1") as scratch:
        scratch.write(
            {
                "units": {"a": {"command": ["sleep", "600"]}},
                "http": {"listen": f"127.0.0.1:{free_port()}"},
                "rule": {"listen": f"127.0.0.1:{free_port()}"},
                "rules": {"r": hook},
                "alerts": {"channels": {"phone": {"type": "ntfy", "url": phone.url, "topic": "t0p1c"}}},
            }
        )
        scratch.up()
        before = {path.name for path in scratch.state.rglob("*")}
        done = scratch.run("doctor", "--json")
        said = {(one["check"], one["level"], one["text"]) for one in json.loads(done.stdout)["findings"]}
        texts = {check: [text for of, _, text in said if of == check] for check, _, _ in said}
        assert [one for one in said if one[1] == "bad"] == []
        assert f"it is flyball {flyball.__version__}, as installed" in texts["daemon"][0]
        assert any("a daemon answers there" in text for text in texts["socket"])
        assert [text for text in texts["http"] if "is served by the daemon that runs" in text] == texts["http"]
        assert texts["alerts"] == ["phone (ntfy) took a test message, by the daemon"]
        assert [message["title"] for message in phone.published] == ["flyball: a test"]
        assert {path.name for path in scratch.state.rglob("*")} == before


def free_port() -> int:
    with socket.socket() as trying:
        trying.bind(("127.0.0.1", 0))
        return int(trying.getsockname()[1])

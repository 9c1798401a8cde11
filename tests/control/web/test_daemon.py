"""A real daemon with its page: where it is, who is let in, what the commands say, what is left at the end."""

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.shell_completion import ShellComplete

from flyball.cli import main
from flyball.cli.group import flyball
from flyball.config.planning import read_plan
from flyball.control.context import CommandError
from flyball.control.web.tokens import Tokens
from flyball.errors import SettingsError
from tests.daemon.site import Site, until

SLEEPS = {"web": {"command": "sleep 1000"}}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A place for a daemon with a page."""
    place = Site(tmp_path, FLYBALL_HTTP__LISTEN="127.0.0.1:0")
    place.write(SLEEPS)
    yield place
    place.clean()


def address(site: Site) -> str:
    return str(json.loads((site.state / "http.json").read_text())["address"])


def token(site: Site, name: str = "admin") -> str:
    found = Tokens(site.state).named(name)
    assert found is not None
    return found.token


def asked(site: Site, verb: str, *, method: str = "GET", by: str = "", **args: object) -> httpx.Response:
    headers = {"authorization": f"Bearer {by or token(site)}"}
    url = f"{address(site)}/api/v1/{verb}"
    if method == "GET":
        return httpx.get(url, headers=headers, timeout=20)
    return httpx.post(url, headers=headers, json=args, timeout=20)


@pytest.mark.slow
def test_from_up_to_down(site: Site) -> None:
    """The address is told, the token is not; what is ordered there is done, and on the audit trail; at the end nothing
    of it is left but who may come in."""
    said = site.flyball("up", "-d").stdout
    where = address(site)
    assert where in said
    assert stat.S_IMODE((site.state / "http.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((site.state / "tokens.json").stat().st_mode) == 0o600
    secret = token(site)
    site.all_up("web")
    assert httpx.get(f"{where}/health/ready").json() == {"ready": True}
    assert httpx.get(f"{where}/api/v1/status").status_code == 401
    assert [row["name"] for row in asked(site, "board").json()["units"]] == ["web"]
    assert asked(site, "pause", method="POST", units=["web"], note="by http").status_code == 200
    site.gone()
    assert (
        asked(site, "pause", method="POST", by=site.flyball("token", "add", "eyes").stdout.strip()).status_code == 403
    )
    lines = [(entry["event"], entry["data"]) for entry in asked(site, "events").json()["events"]]
    ordered = [(data["by"], data["channel"], data["verb"]) for event, data in lines if event == "ordered"]
    assert ("admin", "http", "pause") in ordered
    assert ("eyes", "http", "pause") in ordered
    assert [verb for _, channel, verb in ordered if channel == "socket"] == ["token_add"]
    assert asked(site, "down", method="POST").status_code == 200
    until(lambda: not site.ping(), "the end")
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{where}/health", timeout=20)
    assert not (site.state / "http.json").exists()
    for file in [*site.state.iterdir()]:
        if file.name != "tokens.json" and file.is_file():
            assert secret.encode() not in file.read_bytes(), file


@pytest.mark.slow
def test_a_link(site: Site) -> None:
    """`flyball page` prints one that logs in once; a daemon that is started anew knows who is logged in."""
    site.flyball("up", "-d")
    link = site.flyball("page").stdout.strip()
    assert link.startswith(address(site))
    with httpx.Client() as browser:
        assert browser.get(link).status_code == 303
        [(name, value)] = browser.cookies.items()
        assert browser.get(f"{address(site)}/api/v1/me").json()["who"] == "admin"
    assert httpx.get(link).status_code == 401
    said = json.loads(site.flyball("page", "--json").stdout)
    assert said["token"] == "admin"  # noqa: S105 - its name
    wrong = site.flyball("page", "--token", "nobody", code=2)
    assert "no token 'nobody'; there are: admin" in wrong.stderr
    port = address(site).rpartition(":")[2]
    site.down()
    site.env["FLYBALL_HTTP__LISTEN"] = f"127.0.0.1:{port}"
    site.flyball("up", "-d")
    cookie = {"cookie": f"{name}={value}"}
    assert httpx.get(f"{address(site)}/api/v1/me", headers=cookie).status_code == 200
    site.flyball("token", "remove", "admin")
    assert httpx.get(f"{address(site)}/api/v1/me", headers=cookie).status_code == 401
    log = site.log()
    assert link.rpartition("/")[2] not in log
    assert value not in log


@pytest.mark.slow
def test_an_address_that_is_taken(site: Site) -> None:
    """One that was asked for: an error, and nothing is started. The usual one: any other, which is told."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        done = site.flyball("up", "-d", "--http", where, code=2)
        assert f"{where} cannot be opened: something else listens there" in done.stderr
        assert "http.listen" in done.stderr
        assert "Traceback" not in done.stderr
        site.gone()
        assert not (site.state / "http.json").exists()
    del site.env["FLYBALL_HTTP__LISTEN"]
    usual = socket.socket()
    usual.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with usual:
        try:
            usual.bind(("127.0.0.1", 8910))
            usual.listen()
        except OSError:
            pass  # somebody else has it: as good
        site.flyball("up", "-d")
        assert not address(site).endswith(":8910")
        assert httpx.get(f"{address(site)}/health").status_code == 200
        assert "any free port is taken instead" in site.log()


def test_off(site: Site) -> None:
    """No address, no tokens, and `flyball page` says why."""
    del site.env["FLYBALL_HTTP__LISTEN"]
    assert "page" not in site.flyball("up", "-d", "--http", "off").stdout
    assert not {"http.json", "tokens.json"} & {file.name for file in site.state.iterdir()}
    with pytest.raises(CommandError, match="serves no page") as raised:
        site.ask("login_link")
    assert "http.listen" in raised.value.remedy


@pytest.mark.slow
def test_an_address_of_ipv6(site: Site) -> None:
    """It can be given on the command line as it is written anywhere, and holds over a reload."""
    site.flyball("up", "-d", "--http", "[::1]:0")
    assert address(site).startswith("http://[::1]:")
    assert asked(site, "me").status_code == 200
    assert site.ask("reload")["later"] == ""
    site.down()


SETTINGS: Any = [
    ("{}", {}, None),
    ("{listen: off}", {}, "off"),
    ("{listen: 'off'}", {}, "off"),
    ("{listen: 127.0.0.1:80}", {}, "127.0.0.1:80"),
    ("{listen: '[::1]:0'}", {}, "[::1]:0"),
    ("{listen: 127.0.0.1:80}", {"FLYBALL_HTTP__LISTEN": "off"}, "off"),
    ("{listen: off}", {"FLYBALL_HTTP__LISTEN": "127.0.0.1:81"}, "127.0.0.1:81"),
]


@pytest.mark.parametrize(("http", "env", "listen"), SETTINGS)
def test_where_it_is_set(tmp_path: Path, http: str, env: dict[str, str], listen: str | None) -> None:
    """In the file, or by a variable, which wins; nothing said is not the same as the usual address."""
    file = tmp_path / "flyball.yaml"
    file.write_text(f"units: {{web: {{command: sleep 1}}}}\nhttp: {http}\n")
    assert read_plan(file, env)[0].http.listen == listen


@pytest.mark.parametrize("given", ["8910", "localhost", "127.0.0.1:99999", "http://127.0.0.1:80", ":80", "", "a b:80"])
def test_addresses_that_are_none(
    tmp_path: Path, given: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A clear error before anything is started, as an option and as a setting."""
    monkeypatch.setenv("FLYBALL_STATE_DIR", str(tmp_path / "state"))
    assert "should be a host and a port" in run(capsys, "up", "-d", "--http", given, code=2)
    assert not (tmp_path / "state").exists()
    file = tmp_path / "flyball.yaml"
    file.write_text(f"units: {{web: {{command: sleep 1}}}}\nhttp: {{listen: {json.dumps(given)}}}\n")
    with pytest.raises(SettingsError, match=r"flyball\.yaml:2:\d+: http\.listen.*should be a host and a port"):
        read_plan(file, {})


def test_tokens_that_others_can_read(site: Site) -> None:
    """No daemon starts with them; the error says what to do."""
    site.state.mkdir(mode=0o700)
    (site.state / "tokens.json").write_text("{}")
    (site.state / "tokens.json").chmod(0o644)
    done = site.flyball("up", "-d", code=2)
    assert "its mode is 0644" in done.stderr
    assert "chmod 600" in done.stderr
    site.gone()
    (site.state / "tokens.json").chmod(0o600)
    site.flyball("up", "-d")


def run(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    """A command, in this process; what it said."""
    assert main(args) == code
    said = capsys.readouterr()
    return said.err if code else said.out.strip()


def test_tokens_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are listed, shown, made and removed without a daemon as well; a list has no secret in it."""
    monkeypatch.setenv("FLYBALL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    assert "no token yet" in run(capsys, "token")
    made = run(capsys, "token", "add", "phone", "--role", "operate")
    assert run(capsys, "token", "show", "phone") == made
    shown = json.loads(run(capsys, "token", "show", "phone", "--json"))
    assert (shown["name"], shown["role"], shown["token"]) == ("phone", "operate", made)
    for args in ((), ("--json",)):
        said = run(capsys, "token", *args)
        assert "phone" in said
        assert made not in said
    assert "there is a token 'phone' already" in run(capsys, "token", "add", "phone", code=2)
    assert "no token 'fone'; there are: phone" in run(capsys, "token", "show", "fone", code=2)
    assert "is not one of" in run(capsys, "token", "add", "x", "--role", "root", code=2)
    assert "phone is out" in run(capsys, "token", "remove", "phone")
    assert json.loads(run(capsys, "token", "--json")) == {"tokens": []}
    assert "no daemon runs here" in run(capsys, "page", code=2)


def test_changes_without_a_daemon_are_on_the_audit_trail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where there is a store; the token itself is not."""
    monkeypatch.setenv("FLYBALL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flyball.yaml").write_text("units: {web: {command: sleep 1}}")
    run(capsys, "pause", "web")
    made = run(capsys, "token", "add", "phone")
    run(capsys, "token", "remove", "phone")
    entries = [json.loads(line) for line in run(capsys, "events", "--json").splitlines()]
    ordered = [entry["data"] for entry in entries if entry["event"] == "ordered"]
    assert [(one["verb"], one["channel"]) for one in ordered if "token" in one["verb"]] == [
        ("token_add", "cli"),
        ("token_remove", "cli"),
    ]
    assert made not in json.dumps(entries)


def test_names_of_tokens_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a shell asks for them; where they cannot be read, nothing is."""
    monkeypatch.setenv("FLYBALL_STATE_DIR", str(tmp_path))
    for name in ("phone", "pad", "ci"):
        Tokens(tmp_path).add(name, "look")
    for command in ("show", "remove"):
        complete = ShellComplete(flyball, {}, "flyball", "_FLYBALL_COMPLETE")
        assert {item.value for item in complete.get_completions(["token", command], "p")} == {"phone", "pad"}
    Tokens(tmp_path).path.chmod(0o644)
    assert complete.get_completions(["token", "show"], "p") == []


def test_what_is_not_imported() -> None:
    """The server is in the memory of nobody but a daemon that serves."""
    code = "import sys, flyball.cli.status, flyball.cli.token, flyball.daemon; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=True)
    assert not {"starlette", "uvicorn", "httpx", "prometheus_client"} & set(done.stdout.split())

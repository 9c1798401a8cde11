"""What files of other programs start becomes units that could be; what is not understood offers nothing."""

import json
from pathlib import Path

import pytest

from flyball.starting import files, survey
from flyball.starting.agents import AGENTS
from flyball.starting.found import Offer


def offers(folder: Path, name: str, text: str) -> list[Offer]:
    (folder / name).write_text(text)
    return list(files.find(folder))


def test_compose(tmp_path: Path) -> None:
    """Each service, started by Compose."""
    found = offers(tmp_path, "docker-compose.yml", "services:\n  web: {image: x}\n  db: {image: y}\n")
    assert [offer.name for offer in found] == ["web", "db"]
    assert found[0].command == ("docker", "compose", "-f", "docker-compose.yml", "up", "--no-log-prefix", "web")


@pytest.mark.parametrize(
    ("line", "runs"),
    [
        ("gunicorn app:app --bind :80", "exec gunicorn app:app --bind :80"),
        ("PORT=80 python x.py", "PORT=80 python x.py"),
        ("cd x && make", "cd x && make"),
        ("exec ./x", "exec ./x"),
    ],
)
def test_procfile(line: str, runs: str, tmp_path: Path) -> None:
    """A shell runs each line; it makes room for what is one command, so that signals reach that."""
    found = offers(tmp_path, "Procfile", f"# all\nweb: {line}\n\nno line of it\n")
    assert [(offer.name, offer.command) for offer in found] == [("web", ("sh", "-c", runs))]


def test_supervisord(tmp_path: Path) -> None:
    """Programs with their folders; not what needs its expansions."""
    text = (
        "[supervisord]\nnodaemon=true\n[program:cat]\ncommand=/bin/cat -u 'a b' ; so\ndirectory=/srv\n"
        "[program:once]\ncommand=x\nautorestart=false\n[program:odd]\ncommand=/x %(program_name)s\n"
    )
    found = offers(tmp_path, "supervisord.conf", text)
    assert [(offer.name, offer.command, dict(offer.more)) for offer in found] == [
        ("cat", ("/bin/cat", "-u", "a b"), {"restart": "always", "cwd": "/srv"}),
        ("once", ("x",), {}),
    ]


def test_pm2(tmp_path: Path) -> None:
    """Apps with their interpreters and arguments."""
    apps = [
        {"name": "api", "script": "server.js", "args": "--port 80", "cwd": "/srv"},
        {"script": "./worker.py", "interpreter": "python3", "args": ["-v"]},
        {"name": "bin", "script": "./x", "interpreter": "none"},
        {"name": "broken"},
        7,
    ]
    found = offers(tmp_path, "ecosystem.config.json", json.dumps({"apps": apps}))
    assert [(offer.name, offer.command) for offer in found] == [
        ("api", ("node", "server.js", "--port", "80")),
        ("worker", ("python3", "./worker.py", "-v")),
        ("bin", ("./x",)),
    ]


def test_package(tmp_path: Path) -> None:
    """Scripts that go on, by the program that the package is for."""
    (tmp_path / "pnpm-lock.yaml").touch()
    scripts = {"start": "x", "dev:web": "y", "build": "z", "test": "t"}
    found = offers(tmp_path, "package.json", json.dumps({"scripts": scripts}))
    assert [offer.command for offer in found] == [("pnpm", "run", "start"), ("pnpm", "run", "dev:web")]


def test_project(tmp_path: Path) -> None:
    """Scripts of a project in Python."""
    found = offers(tmp_path, "pyproject.toml", '[project.scripts]\ncrawl = "a:main"\nflyball = "b:main"\n')
    assert [offer.command for offer in found] == [("crawl",)]


def test_services_of_the_user(tmp_path: Path) -> None:
    """What the user's systemd starts, except ourselves and what needs its specifiers."""
    folder = tmp_path / ".config/systemd/user"
    folder.mkdir(parents=True)
    (folder / "bot.service").write_text("[Service]\nExecStart=-%h/bin/bot --x\nWorkingDirectory=%h/bot\n")
    (folder / "odd.service").write_text("[Service]\nExecStart=/x %i\n")
    (folder / "flyball.service").write_text("[Service]\nExecStart=/usr/bin/flyball up\n")
    found = list(files.find_services({"HOME": str(tmp_path)}))
    assert [(offer.name, offer.command) for offer in found] == [("bot", (f"{tmp_path}/bin/bot", "--x"))]
    assert found[0].more["cwd"] == f"{tmp_path}/bot"


@pytest.mark.parametrize("name", files.READERS)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe\0",
        b"[",
        b"[]",
        b"{}",
        b"7",
        b'"a": [',
        b'{"services": 7}',
        b'{"apps": 7}',
        b"web:\n",
        b"x" * 2**21,
    ],
)
def test_what_is_no_such_file(name: str, data: bytes, tmp_path: Path) -> None:
    """It offers nothing, and breaks nothing."""
    (tmp_path / name).write_bytes(data)
    assert list(files.find(tmp_path)) == []


def test_what_is_not_a_file(tmp_path: Path) -> None:
    """A folder of that name, or one that may not be read."""
    (tmp_path / "Procfile").mkdir()
    assert list(files.find(tmp_path)) == []
    assert list(files.procfile(tmp_path / "none")) == []


def test_agents_on_path(tmp_path: Path) -> None:
    """Those that are installed, each with what makes it go on."""
    found = survey(tmp_path, {}, lambda name: f"/bin/{name}" if name in ("claude", "codex") else None)
    assert {offer.name: (offer.command[:2], offer.more["continue_args"]) for offer in found.offers} == {
        "claude": (("claude", "-p"), ["--continue"]),
        "codex": (("codex", "exec"), ["resume", "--last"]),
    }
    assert len({agent.program for agent in AGENTS}) == len(AGENTS)


def test_notes(tmp_path: Path) -> None:
    """What is no unit, and worth knowing: a program of pm2, graphs, settings of others, states of earlier."""
    for name in ("ecosystem.config.js", "langgraph.json", "framework.yaml", ".apex/config.yaml", "state/state.db"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = survey(tmp_path, {"FLYBALL_STATE_DIR": str(tmp_path / "state")}, lambda _: None)
    assert len(found.notes) == 4
    assert found.settings == ("framework.yaml",)


def test_two_of_one_name(tmp_path: Path) -> None:
    """Both are offered, under names of their own."""
    (tmp_path / "Procfile").write_text("web: a\n")
    (tmp_path / "compose.yaml").write_text("services: {web: {}}\n")
    assert [offer.name for offer in survey(tmp_path, {}, lambda _: None).offers] == ["web", "web-2"]

"""What pages show besides commands is true, too: settings are accepted, programs run, requests are answered, queries
find what they ask for, JSON is JSON."""

import ast
import importlib
import json
import re
import socket
import sqlite3
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
import yaml

from flyball import app
from flyball.cli import main
from flyball.config import load
from flyball.config.settings import Settings
from tests.docs.given import GIVEN, NOT_RUN, THEN
from tests.docs.pages import Block, blocks, pages
from tests.docs.prepare import prepare
from tests.docs.tables import PAGES, Page
from tests.docs.typist import PATIENCE, ready
from tests.docs.world import SETTINGS, World

ALL: Final = [block for page in pages() for block in blocks(page)]
OTHERS: Final = frozenset({"apiVersion", "scrape_configs", "lasts"})
"""Keys by which files are known that are not settings: of Kubernetes, of Prometheus, and of `flyball simulate`."""
RULE: Final = {"triggers": [{"webhook": "a-hook", "secret": "x" * 16}], "actions": [{"notify": "."}]}
RULE_KEYS: Final = frozenset({"triggers", "when", "actions", "labels", "priority", "restart", "limits"})
VALUES: Final = {
    "ALERTS_URL": "https://x.example/",
    "FLYBALL_DATABASE": "postgresql://flyball:secret@db.example.org/flyball",
    "TELEGRAM_TOKEN": f"12345:{'x' * 35}",
}
"""Of variables that have to look like something."""
MAIL: Final = {"type": "email", "host": "localhost", "security": "none", "sender": "a@example.org"}


def _of(*languages: str) -> list[Any]:
    return [pytest.param(block, id=block.where) for block in ALL if block.language in languages]


# Settings.


def _whole(given: Any) -> dict[str, Any]:
    """A settings file in which that stands where it belongs."""
    if isinstance(given, list):
        return {"rules": {"a-rule": {**RULE, "actions": given}}}
    if given.keys() <= Settings.model_fields.keys():
        return dict(given)
    if given.keys() <= RULE_KEYS:
        return {"rules": {"a-rule": {**RULE, **given}}}
    if given.keys() == {"to"}:
        return {"alerts": {"channels": {"mail": {**MAIL, **given}}}}
    return {"alerts": {"channels": given}}


@pytest.mark.parametrize("block", _of("yaml"))
def test_settings(block: Block, tmp_path: Path) -> None:
    """They are accepted; what is part of a file, where it belongs in it."""
    given = yaml.safe_load(block.text)
    if given is None or (isinstance(given, dict) and OTHERS & given.keys()):
        return
    named = re.findall(r"\$\{(\w+)\}", block.text)
    env = {name: VALUES.get(name, f"{name}-0123456789") for name in named}
    for name in re.findall(r"_file: (\S+)", block.text):
        (tmp_path / name).write_text("https://x.example/0123456789abcdef")
        (tmp_path / name).chmod(0o600)
    file = tmp_path / "flyball.yaml"
    file.write_text(yaml.safe_dump({"units": SETTINGS["units"], **_whole(given)}))
    settings = load(file, env=env)
    assert not settings.lacking


@pytest.mark.parametrize("block", [block for block in ALL if block.language == "yaml" and "lasts:" in block.text])
def test_scenario(block: Block, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file with units of one's own can be simulated as it stands."""
    file = tmp_path / "scenario.yaml"
    file.write_text(block.text)
    assert main(["simulate", "--scenario", str(file)]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("block", _of("json"))
def test_json(block: Block) -> None:
    """It is JSON, as a whole or line by line."""
    try:
        json.loads(block.text)
    except ValueError:
        for line in block.text.splitlines():
            json.loads(line)


# Programs.


def _programs() -> dict[str, list[Block]]:
    """By page. What the reader saves as a file is run by a command of the page."""
    return {page: found for page in pages() if (found := [one for one in blocks(page) if _is_program(one)])}


def _is_program(block: Block) -> bool:
    return block.language == "python" and block.text not in PAGES.get(block.page, Page()).files.values()


def _text(block: Block) -> str:
    """A block that can be run: a clause gets what it belongs to, and what waits a loop to wait in."""
    if block.text.startswith("except "):
        return f"try:\n    pass\n{block.text}"
    if re.search(r"^(async with|async for|await) ", block.text, re.MULTILINE):
        return f"import asyncio\n\nasync def block():\n{textwrap.indent(block.text, '    ')}\nasyncio.run(block())\n"
    return block.text


@pytest.mark.parametrize("page", _programs())
def test_python_compiles(page: str) -> None:
    """Every block, and what it imports of flyball is there."""
    for block in _programs()[page]:
        tree = compile(_text(block), block.where, "exec", ast.PyCF_ONLY_AST)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("flyball"):
                module = importlib.import_module(node.module)
                there = [hasattr(module, name.name) or _is_module(node.module, name.name) for name in node.names]
                assert all(there), (block.where, ast.unparse(node))


def _is_module(package: str, name: str) -> bool:
    try:
        importlib.import_module(f"{package}.{name}")
    except ImportError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in _programs() if page not in NOT_RUN])
def test_python_runs(page: str) -> None:
    """The blocks of a page are one program, which ends by itself; with what the reader has to add before it."""
    program = "\n".join([GIVEN.get(page, ""), *map(_text, _programs()[page]), THEN.get(page, "")])
    with World() as world:
        file = world.folder / "program.py"
        file.write_text(world.here(program))
        done = ready("python").run(str(file), cwd=world.folder, env=world.env, timeout=PATIENCE)
        said = f"{page}\n{done.stdout}\n{done.stderr}\n(tests/docs/given.py has what a reader adds)"
        assert done.returncode == 0, said
        assert not world.left()


def test_no_program_is_spoken_of_in_vain() -> None:
    """What stands before a page's program is for a page that has one."""
    assert [page for page in (*GIVEN, *THEN, *NOT_RUN) if page not in pages()] == []


# Requests, queries and answers.


@pytest.mark.slow
def test_looking_in() -> None:
    """What is sent to the socket as it stands is answered as shown, and the queries find something in the store."""
    with World() as world:
        prepare(world)
        for block in ALL:
            if block.is_requests:
                _send(world, block)
        queries = [block for block in ALL if block.language == "sql" and "postgres" not in block.page]
        assert queries
        with sqlite3.connect(f"file:{world.state / 'state.db'}?mode=ro", uri=True) as connection:
            for block in queries:
                for query in block.text.split(";\n"):
                    assert not query.strip() or connection.execute(query).fetchall(), f"{block.where}: {query}"
        connection.close()
        world.down()


def _status(world: World) -> Any:
    return world.ask("status")


def _session(world: World) -> Any:
    return world.ask("session", unit="research-42")["session"]


SHAPES: Final = {'{\n  "fleet"': _status, '{\n  "id": "research-42"': _session}
"""What the reference shows of `--json`, by how it begins, and how to have it."""
BY_NAME: Final = frozenset({"counts", "labels"})
"""Objects whose keys are names: they differ."""


@pytest.mark.slow
def test_shapes() -> None:
    """What is printed for scripts has the keys that the reference shows, and no others."""
    with World() as world:
        prepare(world)
        for begins, ask in SHAPES.items():
            (block,) = [block for block in ALL if block.language == "json" and block.text.startswith(begins)]
            assert list(_differences(json.loads(block.text), ask(world), block.where)) == []
        world.down()


def _differences(shown: Any, real: Any, where: str) -> Iterator[str]:
    """Keys that one has and the other has not. Of lists, what the first ones are like."""
    if isinstance(shown, dict) and isinstance(real, dict) and where.rpartition(".")[2] not in BY_NAME:
        yield from (f"{where}: {key}" for key in shown.keys() ^ real.keys())
        for key in shown.keys() & real.keys():
            yield from _differences(shown[key], real[key], f"{where}.{key}")
    elif isinstance(shown, list) and isinstance(real, list) and shown and real:
        yield from _differences(shown[0], real[0], f"{where}[0]")


def _send(world: World, block: Block) -> None:
    lines = block.text.splitlines()
    for request, shown in zip(lines, [*lines[1:], ""], strict=True):
        if not request.startswith('{"v":'):
            continue
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(world.state / "flyball.sock"))
            connection.sendall(request.encode() + b"\n")
            with connection.makefile() as answers:
                answer = json.loads(answers.readline())
        right: dict[str, Any] = json.loads(shown) if shown.startswith('{"id":') else {"ok": True}
        where = f"{block.where}: {request}: {answer}"
        assert answer["ok"] is right["ok"], where
        if right.get("data"):
            assert answer["data"].keys() == right["data"].keys(), where
        if right.get("error"):
            assert answer["error"]["code"] == right["error"]["code"], where


@pytest.mark.slow
def test_queries_of_postgres(dsn: str) -> None:
    """They can be asked of the schema that a store makes."""
    app.open_store(Settings(store=dsn), {}).close()
    with psycopg.connect(dsn) as connection:
        for block in ALL:
            if block.language == "sql" and "postgres" in block.page:
                connection.execute(block.text.encode())

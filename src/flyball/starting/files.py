"""Files of other programs that start things: what each of them starts, as units that could be.

A file may be anything: what cannot be read, or is not understood, offers nothing. Nothing here is executed.
"""

import configparser
import json
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from flyball.starting.found import Offer, is_fit

FILE_MAX: Final = 2**20
"""Bytes of a file that is looked into. Longer ones are no such files."""
LASTING: Final = re.compile(r"(start|dev|serve|server|watch|worker|preview)([:_-].*)?")
"""Scripts of a package that go on until they are ended. All others are done once."""
LOCKS: Final = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun", "bun.lockb": "bun"}
"""By which the program is known that runs the scripts of a package; without one of them, npm."""
COMPOUND: Final = re.compile(r"[;&|<>(){}`]|^(exec|cd|export)\b|^\w+=")
"""By which a line is known that is more than one plain command."""
ALWAYS: Final = {"restart": "always"}


def compose(file: Path) -> Iterator[Offer]:
    """Services of Docker Compose: each is started by Compose, and looked after here."""
    services = _mapping(_mapping(_yaml(file)).get("services"))
    for name in services:
        if isinstance(name, str) and name:
            command = ("docker", "compose", "-f", file.name, "up", "--no-log-prefix", name)
            yield Offer(name=name, source=file.name, command=command, more={"stop_signal": "SIGINT", "grace": "30s"})


def procfile(file: Path) -> Iterator[Offer]:
    """Lines of `name: command`, which a shell runs."""
    for line in _text(file).splitlines():
        found = re.fullmatch(r"([A-Za-z0-9_-]+):\s*(\S.*)", line.strip())
        if found:
            # A line of one command becomes that command; in others the shell has more to do than to begin it.
            runs = found[2] if COMPOUND.search(found[2]) else f"exec {found[2]}"
            yield Offer(name=found[1], source=file.name, command=("sh", "-c", runs), more=ALWAYS)


def supervisord(file: Path) -> Iterator[Offer]:
    """Sections [program:name]. What needs its own expansions (%(…)s) is left to people."""
    parser = configparser.RawConfigParser(strict=False, inline_comment_prefixes=(";",))
    try:
        parser.read_string(_text(file))
    except configparser.Error:
        return
    for section in parser.sections():
        kind, _, name = section.partition(":")
        line = parser.get(section, "command", fallback="")
        if kind == "program" and name and "%(" not in line:
            more: dict[str, Any] = {} if parser.get(section, "autorestart", fallback="") == "false" else dict(ALWAYS)
            folder = parser.get(section, "directory", fallback="")
            if folder and "%(" not in folder:
                more["cwd"] = folder
            yield Offer(name=name, source=file.name, command=_words(line), more=more)


def pm2(file: Path) -> Iterator[Offer]:
    """Apps of an ecosystem file."""
    given = _json(file)
    apps = given.get("apps") if isinstance(given, Mapping) else given
    for app in apps if isinstance(apps, list) else ():
        if not isinstance(app, Mapping) or not isinstance(app.get("script"), str):
            continue
        script, arguments = app["script"], app.get("args", ())
        words = _words(arguments) if isinstance(arguments, str) else tuple(map(str, arguments or ()))
        interpreter = app.get("interpreter") or ("node" if script.endswith((".js", ".mjs", ".cjs")) else "")
        command = (
            *((interpreter,) if isinstance(interpreter, str) and interpreter not in ("", "none") else ()),
            script,
        )
        folder = app.get("cwd")
        more = {**ALWAYS, **({"cwd": folder} if isinstance(folder, str) and folder else {})}
        name = app.get("name")
        yield Offer(
            name=name if isinstance(name, str) else Path(script).stem,
            source=file.name,
            command=(*command, *words),
            more=more,
        )


def systemd(file: Path, home: str = "~") -> Iterator[Offer]:
    """A service of the user's own systemd. What needs other specifiers than %h is left to people."""
    said = dict(re.findall(r"^\s*(ExecStart|WorkingDirectory)\s*=\s*(.*?)\s*$", _text(file), re.MULTILINE))
    line = said.get("ExecStart", "").lstrip("@-:+!|").replace("%h", home)
    folder = said.get("WorkingDirectory", "").lstrip("-").replace("%h", home)
    if line and "%" not in line and not re.search(r"\bflyball\b", line):
        more = {"cwd": folder} if folder and "%" not in folder else {}
        yield Offer(name=file.stem, source=str(file), command=_words(line), more={**ALWAYS, **more})


def package(file: Path) -> Iterator[Offer]:
    """Scripts of a package.json that go on until they are ended."""
    scripts = _mapping(_mapping(_json(file)).get("scripts"))
    program = next((program for lock, program in LOCKS.items() if (file.parent / lock).exists()), "npm")
    for name in scripts:
        if isinstance(name, str) and LASTING.fullmatch(name):
            yield Offer(name=name, source=file.name, command=(program, "run", name))


def project(file: Path) -> Iterator[Offer]:
    """Scripts of a pyproject.toml."""
    try:
        given = tomllib.loads(_text(file))
    except tomllib.TOMLDecodeError:
        return
    for name in _mapping(_mapping(given.get("project")).get("scripts")):
        if name != "flyball":
            yield Offer(name=name, source=file.name, command=(name,))


READERS: Final[Mapping[str, Callable[[Path], Iterator[Offer]]]] = {
    "compose.yaml": compose,
    "compose.yml": compose,
    "docker-compose.yaml": compose,
    "docker-compose.yml": compose,
    "Procfile": procfile,
    "supervisord.conf": supervisord,
    "supervisor.conf": supervisord,
    "ecosystem.config.json": pm2,
    "ecosystem.json": pm2,
    "package.json": package,
    "pyproject.toml": project,
}
"""Who reads which file of a folder."""


def find(folder: Path) -> Iterator[Offer]:
    """What the files of a folder start."""
    for name, read in READERS.items():
        if (folder / name).is_file():
            yield from (offer for offer in read(folder / name) if is_fit(offer.command) and _fits(offer.more))


def find_services(env: Mapping[str, str]) -> Iterator[Offer]:
    """What the user's own systemd starts."""
    home = env.get("HOME", "")
    folder = Path(env.get("XDG_CONFIG_HOME") or Path(home, ".config")) / "systemd" / "user"
    try:
        files = sorted(folder.glob("*.service")) if home else []
    except OSError:
        return
    for file in files:
        yield from (offer for offer in systemd(file, home) if is_fit(offer.command) and _fits(offer.more))


def _fits(more: Mapping[str, Any]) -> bool:
    return is_fit([text for text in more.values() if isinstance(text, str)] or ["-"])


def _words(line: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(line))
    except ValueError:
        return ()


def _text(file: Path) -> str:
    """The text of a file; nothing if it is none."""
    try:
        with file.open("rb") as stream:
            data = stream.read(FILE_MAX + 1)
    except OSError:
        return ""
    return "" if len(data) > FILE_MAX else data.decode("utf-8", "replace").replace(os.linesep, "\n")


def _json(file: Path) -> Any:
    try:
        return json.loads(_text(file))
    except (ValueError, RecursionError):
        return {}


def _yaml(file: Path) -> Any:
    try:
        return yaml.safe_load(_text(file))
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, AttributeError):
        return {}


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}

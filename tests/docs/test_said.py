"""What help texts, messages and running text tell people to type is there: the command, and each of its options.

What only looks is typed, too, in the world of the pages: all of it in one, for it changes nothing.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
from pydantic import BaseModel

from flyball.cli import COMMANDS, HELP
from flyball.cli.group import flyball
from flyball.config.settings import Settings
from tests.docs.pages import ROOT, Command, blocks, commands, pages
from tests.docs.prepare import prepare
from tests.docs.world import World

CONTEXT: Final = click.Context(flyball, info_name="flyball")
INLINE: Final = re.compile(r"`(flyball\s[^`]+)`")
OPTION: Final = re.compile(r"(?<![\w'-])--?[a-z][a-z-]*")
OPEN: Final = re.compile(r"[\[\]{}|…]|\b[A-Z]{2,}\b|\\|^flyball -")
"""What is no command yet: something is to be put in."""

LOOKS: Final = re.compile(
    r"flyball (status|top|why|problems|failures|budgets|hosts|sessions|session show|rules|queue(?!.*--clear)|events"
    r"|logs|audit|questions|explain|drill --list|check|config|schema|simulate|completion|alerts(?! test)"
    r"|token(?! (add|remove)))\b"
)
"""Commands that change nothing."""


def _examples() -> list[Command]:
    """Of the help texts."""
    found = []
    for name in ("", *COMMANDS):
        text = flyball.get_command(CONTEXT, name).get_help(CONTEXT) if name else HELP  # type: ignore[union-attr]
        lines = text.partition("Examples:")[2].splitlines()
        examples = [re.split(r"\s{2,}", line.strip())[0] for line in lines]
        found += [Command(name, 0, example) for example in examples if "flyball " in example]
    return found


def _inline(files: Iterator[Path]) -> list[Command]:
    """In running text, or in a message."""
    found = []
    for file in files:
        name = file.relative_to(ROOT).as_posix()
        for match in INLINE.finditer(file.read_text(encoding="utf-8")):
            text = match[1].replace('"', "") if file.suffix == ".py" else match[1]  # a text in several pieces
            found.append(Command(name, 0, " ".join(text.split())))
    return found


def _written_elsewhere() -> set[str]:
    """In units of systemd, images and pods: what follows `flyball`."""
    shown = [
        block.text for page in pages() for block in blocks(page) if block.language in ("dockerfile", "ini", "yaml")
    ]
    shown.append((ROOT / "deploy" / "kubernetes" / "fleet.yaml").read_text())
    lines = [line for text in shown for line in re.findall(r"^(?:ExecStart=|ENTRYPOINT|\s+command:)(.*)", text, re.M)]
    words = [re.sub(r'[\[\]",]', " ", line).split() for line in lines]
    return {shlex.join(found[1:]) for found in words if found and found[0].endswith("flyball")}


SHARES: Final = 3
"""Tests among which what looks is divided: each takes a few seconds, side by side."""
EXAMPLES: Final = _examples()
TEXTS: Final = _inline(ROOT / page for page in pages())
INSIDE: Final = [command for page in pages() for command in commands(page) if " flyball " in command.bare]
"""What is typed by way of something else: in a container, after a `sleep`, with variables before it."""
MESSAGES: Final = _inline((ROOT / "src").rglob("*.py"))


def _wrong(text: str) -> str:
    """The first word of it that there is not; nothing if there are all."""
    given = re.split(r"(?<![\w/])flyball ", text, maxsplit=1)[-1].partition(" -- ")[0]
    words = re.sub(r"'[^']*'|(--continue-args) \S+", r"\1", given).split()
    if not words or OPEN.match(words[0]) or words[0].startswith("-"):
        return ""
    for verb in words[0].split("|"):
        command = flyball.get_command(CONTEXT, verb)
        if command is None:
            return verb
        parts = [command]
        if isinstance(command, click.Group) and len(words) > 1 and re.fullmatch(r"[a-z|]+", words[1]):
            for part in words[1].split("|"):
                if part not in command.commands:
                    return part
                parts.append(command.commands[part])
        known = {"-h", "--help"}
        known |= {name for one in parts for option in one.params for name in (*option.opts, *option.secondary_opts)}
        unknown = [option for option in OPTION.findall(" ".join(words[1:])) if option not in known]
        if unknown:
            return str(unknown[0])
    return ""


@pytest.mark.parametrize("said", ["EXAMPLES", "INSIDE", "TEXTS", "MESSAGES"])
def test_it_is_there(said: str) -> None:
    """Nobody is told to type a command or an option that there is not."""
    found = globals()[said]
    assert len(found) > 3
    wrong = {f"{command.page}: {command.text}": _wrong(command.text) for command in found}
    assert {text: word for text, word in wrong.items() if word} == {}, "there is no such command, or option"


def _whole(command: Command) -> list[str]:
    """Its words, if nothing has to be put in."""
    if OPEN.search(command.text) or not command.text.startswith("flyball "):
        return []
    return shlex.split(command.text.partition(" >")[0])[1:]


def _parse(words: list[str]) -> None:
    """As the command does it, up to where it would begin."""
    command: click.Command = flyball
    context = CONTEXT
    while isinstance(command, click.Group) and words:
        name, *words = words
        found = command.get_command(context, name)
        assert found is not None
        command = found
        if isinstance(command, click.Group) and (not words or words[0].startswith("-")):
            break
    command.make_context(command.name, list(words), parent=context)


def _is_spoken_of(words: list[str]) -> bool:
    """The command is only named: what it takes is not said."""
    try:
        _parse(words)
    except click.MissingParameter:
        return True
    return False


def test_every_command_has_examples() -> None:
    """Of its own: lines that begin as it does."""
    shown = {command.page for command in EXAMPLES if f"flyball {command.page}" in command.text}
    assert shown - {""} == set(COMMANDS)


def test_examples_can_be_parsed() -> None:
    """Of the help texts: with what they give for options and arguments."""
    for words in filter(None, map(_whole, EXAMPLES)):
        try:
            _parse(words)
        except click.UsageError as error:
            pytest.fail(f"flyball {shlex.join(words)}: {error.format_message()}")


@pytest.mark.parametrize("text", sorted(_written_elsewhere()))
def test_what_others_are_told_to_run(text: str) -> None:
    """systemd, a container and a pod are given a command line that there is."""
    _parse(shlex.split(text))


def _looks() -> list[Command]:
    """All that only looks, each once."""
    found = {command.text: command for command in (*EXAMPLES, *TEXTS) if LOOKS.match(command.text) and _whole(command)}
    return [command for command in found.values() if not _is_spoken_of(_whole(command))]


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_what_looks(share: int) -> None:
    """It is typed, and finds something to look at. With --check it may be that something needs a person."""
    with World() as world:
        typist = prepare(world)
        for command in _looks()[share::SHARES]:
            done = typist.type(command)
            allowed = (0, 1) if "--check" in command.text else (0,)
            assert done.code in allowed, f"{command.page}: {command.text}: {done}"
        world.down()
        assert not world.left()


# Other things that are named in running text.


def _spans() -> Iterator[tuple[str, str]]:
    """What stands between backticks outside of blocks, and where."""
    for page in pages():
        text = re.sub(
            r"^ *```.*?^ *```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
        )
        for span in re.findall(r"`([^`]+)`", text):
            yield page, " ".join(span.split())


def test_files_are_there() -> None:
    """Scripts, modules, tests and folders that a page names are where it says; so is what `make` is to make."""
    missing = []
    makefile = (ROOT / "Makefile").read_text()
    for page, span in _spans():
        named = re.findall(r"(?<![\w/.-])((?:bench|deploy|examples|src|tests|tools)/[\w./-]+)", span)
        named += [module.replace(".", "/") for module in re.findall(r"python -m ((?:bench|tools)[\w.]*)", span)]
        missing += [(page, path) for path in named if not (ROOT / path).exists() and not (ROOT / f"{path}.py").exists()]
        targets = re.match(r"make ([a-z-]+)", span)
        if targets and not re.search(rf"(?m)^[^\n#=]*\b{targets[1]}\b[^\n=]*:", makefile):
            missing.append((page, span))
    assert missing == []


def test_variables_are_read() -> None:
    """A variable of flyball that a page names is one of the settings, or the program or its tests read it."""
    read = "\n".join(file.read_text() for folder in ("src", "tests") for file in (ROOT / folder).rglob("*.py"))
    missing = []
    for page in pages():
        for name in set(re.findall(r"\bFLYBALL_[A-Z_]+[A-Z]", (ROOT / page).read_text(encoding="utf-8"))):
            section, _, key = name.removeprefix("FLYBALL_").lower().partition("__")
            if not (_is_setting(f"{section}.{key}" if key else section) or re.search(rf"\b{name}\b", read)):
                missing.append((page, name))
    assert missing == []


def test_settings_are_there() -> None:
    """So is a setting that is named with its section: `http.listen`."""
    sections = [name for name, field in Settings.model_fields.items() if _is_section(field.annotation)]
    named = [(page, span.partition(":")[0]) for page, span in _spans()]
    shape = re.compile(rf"({'|'.join(sections)})\.(?!(py|log|json|yaml)$)[a-z_.]+")
    keys = [(page, key) for page, key in named if shape.fullmatch(key)]
    assert len(keys) > 30
    assert [(page, key) for page, key in keys if not _is_setting(key)] == []


def _is_section(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _is_setting(key: str) -> bool:
    at: object = Settings
    for part in key.split("."):
        if not _is_section(at) or part not in at.model_fields:  # type: ignore[attr-defined]
            return False
        at = at.model_fields[part].annotation  # type: ignore[attr-defined]
    return True

"""Whatever was found, the file that is written is good; and so it is when all that it offers is taken."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from flyball.config import load
from flyball.errors import FlyballError, SettingsError
from flyball.starting import Found, Offer, check, survey, text_of, write
from flyball.starting.agents import AGENTS
from flyball.starting.found import is_fit, named
from flyball.starting.text import OFFERS_MAX

TOPIC = "flyball-0123456789abcdef"
words = some.lists(some.text(max_size=20), min_size=1, max_size=4)
names = some.one_of(
    some.text(max_size=80), some.sampled_from(["y", "null", "1e3", "0x1F", "on", "~", "web", "1_0", "=", "<<"])
)


def taken(text: str) -> str:
    """The file with every offered line in use, as a person would make it: without its first sign."""
    return re.sub(r"^#(?=\S|  )", "", text, flags=re.MULTILINE)


def units_of(text: str, folder: Path) -> list[str]:
    (folder / "flyball.yaml").write_text(taken(text), encoding="utf-8")
    return [unit.name for unit in load(folder / "flyball.yaml", env={}).units]


def test_nothing_was_found(tmp_path: Path) -> None:
    """In an empty folder it is a small file with an example, and good both ways."""
    text = text_of(survey(tmp_path, {}, lambda _: None), topic=TOPIC)
    check(text)
    assert text.startswith("# yaml-language-server: $schema=flyball.schema.json\n")
    assert units_of(text, tmp_path) == ["my-agent"]


def test_every_agent(tmp_path: Path) -> None:
    """All agents that are known, taken as they are offered, are units."""
    text = text_of(survey(tmp_path, {}, lambda name: name), topic=TOPIC)
    assert units_of(text, tmp_path) == [agent.program for agent in AGENTS]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(found=some.lists(some.tuples(names, words, some.text(max_size=200)), max_size=5))
def test_odd_names_and_commands(found: list[tuple[str, list[str], str]], tmp_path: Path) -> None:
    """Names, commands, sources and notes of any letters: the file is good, and what it offers is what was found."""
    offers = [
        Offer(name=name, source=note, command=tuple(command), more={"cwd": command[0]}, note=note)
        for name, command, note in found
        if is_fit(command)
    ]
    made = Found(offers=named(offers), notes=tuple(note for _, _, note in found))
    text = text_of(made, topic=TOPIC)
    check(text)
    expected = [offer.name for offer in made.offers] or ["my-agent"]
    assert units_of(text, tmp_path) == expected


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    services=some.dictionaries(some.text(max_size=10), some.none(), max_size=3),
    lines=some.text(max_size=200),
    apps=some.recursive(
        some.none() | some.integers() | some.text(max_size=5),
        lambda part: (
            some.lists(part, max_size=3)
            | some.dictionaries(
                some.sampled_from(["apps", "script", "args", "name", "cwd", "interpreter"]), part, max_size=4
            )
        ),
        max_leaves=12,
    ),
)
def test_odd_files(services: dict[str, None], lines: str, apps: object, tmp_path: Path) -> None:
    """Files with anything in them."""
    (tmp_path / "compose.yaml").write_text(json.dumps({"services": services}))
    (tmp_path / "Procfile").write_text(lines, encoding="utf-8", errors="surrogatepass")
    (tmp_path / "supervisord.conf").write_text(lines, encoding="utf-8", errors="surrogatepass")
    (tmp_path / "ecosystem.config.json").write_text(json.dumps(apps))
    (tmp_path / "package.json").write_text(json.dumps({"scripts": apps}))
    found = survey(tmp_path, {}, lambda _: None)
    text = text_of(found, topic=TOPIC)
    check(text)
    assert units_of(text, tmp_path) == [offer.name for offer in found.offers[:OFFERS_MAX]] or not found.offers


def test_very_many(tmp_path: Path) -> None:
    """Of very many some are offered, and it says so."""
    (tmp_path / "Procfile").write_text("".join(f"p{number}: x\n" for number in range(100)))
    text = text_of(survey(tmp_path, {}, lambda _: None), topic=TOPIC)
    assert "60 more were found" in text
    assert len(units_of(text, tmp_path)) == OFFERS_MAX


def test_a_text_that_is_not_good_is_not_written(tmp_path: Path) -> None:
    """The last check before anything is written."""
    with pytest.raises(SettingsError):
        write(tmp_path / "flyball.yaml", "units: 7\n", force=False)
    assert list(tmp_path.iterdir()) == []


def test_backups(tmp_path: Path) -> None:
    """A file is replaced only by force, and kept; and so is the one that was kept before."""
    file = tmp_path / "flyball.yaml"
    file.write_text("# mine\n")
    with pytest.raises(FlyballError, match="is there already"):
        write(file, "# new\n", force=False)
    assert file.read_text() == "# mine\n"
    first, second = (write(file, text, force=True) for text in ("# new\n", "# newer\n"))
    assert Path(first.backup).read_text() == "# mine\n"
    assert Path(second.backup).read_text() == "# new\n"
    assert file.read_text() == "# newer\n"


def test_the_schema(tmp_path: Path) -> None:
    """It is made, and made anew; a file of that name that is not ours is left alone."""
    schema = tmp_path / "flyball.schema.json"
    assert write(tmp_path / "flyball.yaml", "", force=False).schema == str(schema)
    assert json.loads(schema.read_text())["title"] == "flyball settings"
    schema.write_text("[]")
    assert write(tmp_path / "flyball.yaml", "", force=True).schema == ""
    assert schema.read_text() == "[]"


def test_nothing_is_left_where_it_cannot_be_written(tmp_path: Path) -> None:
    """A folder that is not there is told in one line."""
    with pytest.raises(FlyballError, match="No such file or directory"):
        write(tmp_path / "none/flyball.yaml", "", force=False)

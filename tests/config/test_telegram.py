"""The section `telegram`: what is taken, what is refused and where it says so, and that its token is never shown."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from flyball.config import load
from flyball.config.plan import decode
from flyball.config.planning import read_plan
from flyball.errors import SettingsError

SECRET = "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"  # noqa: S105 - of nobody
TOKEN = f"110201543:{SECRET}"
ANN = {"id": 5, "role": "operate", "name": "ann"}


def _file(folder: Path, **telegram: Any) -> Path:
    file = folder / "flyball.yaml"
    file.write_text(yaml.safe_dump({"units": {"a": {"command": "sleep 1"}}, "telegram": telegram}))
    return file


def _problems(folder: Path, **telegram: Any) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(_file(folder, **telegram), env={})
    return [problem.partition("flyball.yaml:")[2] for problem in caught.value.problems]


def test_plan(tmp_path: Path) -> None:
    """All that is given is in the plan, and outlives its way to the daemon."""
    given = {"token": TOKEN, "users": [ANN, {"id": 6}], "chats": [-100], "base_url": "https://bots.example.org/"}
    plan, _ = read_plan(_file(tmp_path, **given, stale_seconds=30.0), {})
    bot = decode(plan.encode()).telegram
    assert bot is not None
    assert (bot.token, bot.base_url, bot.chats, bot.stale_after) == (TOKEN, "https://bots.example.org", (-100,), 30.0)
    assert [(user.id, user.role, user.name) for user in bot.users] == [(5, "operate", "ann"), (6, "look", "")]
    assert SECRET not in repr(plan)


def test_none(tmp_path: Path) -> None:
    """Nothing given: no bot."""
    assert read_plan(_file(tmp_path), {})[0].telegram is None


@pytest.mark.parametrize("how", ["variable", "file", "environment"])
def test_token(how: str, tmp_path: Path) -> None:
    """The token comes from a variable, a file, or the environment; it is never shown."""
    (tmp_path / "bot-token").write_text(f"{TOKEN}\n")
    given, env = {"token": "${BOT}"}, {"BOT": TOKEN}
    if how == "file":
        given, env = {"token_file": "bot-token"}, {}
    elif how == "environment":
        given, env = {}, {"FLYBALL_TELEGRAM__TOKEN": TOKEN, "FLYBALL_TELEGRAM__USERS": "[{id: 5}]"}
    file = _file(tmp_path, **given, **({"users": [ANN]} if how != "environment" else {}))
    bot = read_plan(file, env)[0].telegram
    assert bot is not None
    assert bot.token == TOKEN
    shown = {value.key: value.value for value in load(file, env=env).effective()}
    assert shown["telegram.token"] == "(not shown)"
    assert SECRET not in str(shown)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"token": "${BOT}"}, "telegram.token: there is no variable BOT"),
        ({"token_file": "nowhere"}, "nowhere: No such file or directory"),
    ],
)
def test_token_is_not_there(given: dict[str, str], says: str, tmp_path: Path) -> None:
    """A token that is not there is told by `check`, and nothing is run without it."""
    file = _file(tmp_path, **given, users=[ANN])
    assert any(says in warning for warning in load(file, env={}).warnings())
    with pytest.raises(SettingsError, match="telegram"):
        read_plan(file, {})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"token": f"x{SECRET}", "users": [ANN]}, "telegram.token: is no token of a bot"),
        ({"token": TOKEN}, "telegram: nobody is listed under `users`"),
        ({"users": [ANN]}, "telegram.users: there is no `token`"),
        ({"token": TOKEN, "token_file": "x", "users": [ANN]}, "telegram.token_file: there is a `token` too"),
        ({"token": TOKEN, "users": [ANN, {"id": 5}]}, "telegram.users[1].id: 5 is listed twice"),
        ({"token": TOKEN, "users": [ANN, {"id": 7, "name": "ann"}]}, "two users are called 'ann'"),
        ({"token": TOKEN, "users": [{"role": "look"}]}, "telegram.users[0]: a user needs the `id`"),
        ({"token": TOKEN, "users": [{"id": "ann"}]}, 'telegram.users[0].id is "ann"'),
        ({"token": TOKEN, "users": [{"id": 5, "role": "boss"}]}, "allowed: look or operate or admin"),
        ({"token": TOKEN, "users": [{"id": 5, "rights": 1}]}, "unknown key 'rights' in telegram.users[0]"),
        ({"token": TOKEN, "users": [ANN], "chats": [5]}, "telegram.chats[0] is 5"),
        ({"token": TOKEN, "users": [ANN], "base_url": "ftp://x"}, "telegram.base_url: should be a URL"),
        ({"token": TOKEN, "users": [ANN], "base_url": "https://a:b@x.org"}, "telegram.base_url: should be a URL"),
        ({"token": TOKEN, "users": [ANN], "base_url": "http://example.org"}, "should begin with https://"),
        ({"token": TOKEN, "users": [ANN], "stale_seconds": 1.0}, "telegram.stale_seconds is 1.0"),
        ({"token": TOKEN, "user": [ANN]}, "unknown key 'user' in telegram; did you mean 'users'?"),
        ({"token": [TOKEN], "users": [ANN]}, "telegram.token is a list"),
    ],
)
def test_wrong(given: dict[str, Any], says: str, tmp_path: Path) -> None:
    """What is wrong is told with its place; no part of the token is in it."""
    problems = _problems(tmp_path, **given)
    assert any(says in problem for problem in problems), problems
    assert all(problem[0].isdigit() for problem in problems), problems
    assert SECRET not in str(problems)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8081", "http://[::1]:8081", "http://10.0.0.7", "http://botapi:8081"])
def test_server_nearby(url: str, tmp_path: Path) -> None:
    """A server of one's own network may be reached without TLS."""
    bot = read_plan(_file(tmp_path, token=TOKEN, users=[ANN], base_url=url), {})[0].telegram
    assert bot is not None
    assert bot.base_url == url

"""Every code that people or machines can meet has its page, and no page is of none; what pages name is there."""

import ast
import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import click
import pytest

import flyball
from flyball.cli import COMMANDS
from flyball.cli.group import flyball as group
from flyball.config import Settings, json_schema
from flyball.config.alerts import KINDS as ALERTS
from flyball.control.problems import HOST_LOST, HOSTS_DIFFER, NO_HOST, QUESTION, TROUBLE
from flyball.control.shapes import SessionWord, Word
from flyball.control.trail import FORBIDDEN
from flyball.control.web.attempts import OF_ONE_MAX
from flyball.core.decision import Verb
from flyball.core.event import Cause
from flyball.core.time import DAY, MINUTE, SECOND
from flyball.errors import FlyballError
from flyball.explaining import KINDS, NoPage, Page, find, pages
from flyball.policies import (
    ALL,
    Anomaly,
    Breaker,
    Clock,
    Convergence,
    Exclusive,
    Flapping,
    Limit,
    Loop,
    Rate,
    Restart,
    Revision,
    Rounds,
    Stall,
    Storm,
    resume_limit,
)
from flyball.runtimes.rule.triggers import webhooks
from flyball.store.checkpoints import KEPT_MAX
from flyball.store.file import SQLITE_MIN
from tests.test_docs import reason_codes

SOURCE = Path(flyball.__file__).parent
SCHEMA = json_schema()


def of_kind(kind: str) -> set[str]:
    return {page.name for page in pages().values() if kind in page.kinds}


def topics(kind: type[FlyballError]) -> set[str]:
    found = {kind.topic} if kind.__module__.startswith("flyball.") else set()
    return found.union(*(topics(one) for one in kind.__subclasses__()))


def first_arguments(function: str) -> set[str]:
    """What stands first in every call of a function in the source, where that is a text."""
    texts = [text for path in SOURCE.rglob("*.py") if f"{function}(" in (text := path.read_text())]
    calls = [
        node
        for text in texts
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function
    ]
    return {str(call.args[0].value) for call in calls if call.args and isinstance(call.args[0], ast.Constant)}


def test_reasons() -> None:
    """The reasons with a page are those that policies give."""
    assert of_kind("reason") == reason_codes() - {"ended_"}


def test_errors() -> None:
    """The errors with a page are all kinds of errors that there are, with whatever is installed."""
    for module in pkgutil.walk_packages(flyball.__path__, "flyball."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert of_kind("error") == topics(FlyballError) - {""}


def test_answers() -> None:
    """The codes of answers with a page are those in the source, and the two that it does not name there as texts."""
    assert of_kind("answer") == first_arguments("CommandError") | {FORBIDDEN, "too_many_failures"}


def test_links() -> None:
    """So it is with links."""
    assert of_kind("link") == first_arguments("LinkRefused")


def test_webhooks() -> None:
    """And with webhooks."""
    refusals = [value for value in vars(webhooks).values() if isinstance(value, webhooks.Refusal)]
    assert of_kind("webhook") == {refusal.code for refusal in refusals}


def test_words() -> None:
    """Verbs, causes, states, alerts, problems and safeguards are closed sets, and each of them has its page."""
    assert of_kind("verb") == {verb.name.lower() for verb in Verb}
    assert of_kind("cause") == set(Cause)
    assert of_kind("state") == {*Word, *SessionWord}
    assert of_kind("alert") == set(ALERTS)
    assert of_kind("problem") >= {HOST_LOST, HOSTS_DIFFER, NO_HOST, QUESTION, TROUBLE}
    assert of_kind("policy") == {policy.__module__.rsplit(".", 1)[1] for policy in ALL}


def test_exit_codes() -> None:
    """The exit codes of the docs are those with a page."""
    text = (SOURCE.parent.parent / "docs/reference/commands.md").read_text()
    section = text.partition("## Exit codes")[2].partition("\n## ")[0]
    rows = {code for row in re.findall(r"^\| ([0-9, ]+) \|", section, re.MULTILINE) for code in row.split(", ")}
    assert of_kind("exit") == rows | {"3"}


@pytest.mark.parametrize("page", pages().values(), ids=lambda page: page.name)
def test_what_pages_name_is_there(page: Page) -> None:
    """A page is complete; its settings are settings, its commands are commands with options that they have."""
    assert page.kinds
    assert set(page.kinds) <= set(KINDS)
    assert page.line
    assert page.do or page.kinds == ("policy",)
    assert page.why or set(page.kinds) & {"answer", "webhook", "exit"}
    assert [key for key in page.settings if not is_setting(SCHEMA, key)] == []
    said = [*page.commands, *re.findall(r"`(flyball [^`]+)`", f"{page.line} {page.why} {page.do}")]
    assert [command for command in said if command.startswith("flyball ") and not is_command(command)] == []
    if page.policy not in ("", "any"):
        assert "policy" in find({"steps": "limit", "resumes": "limit"}.get(page.policy, page.policy)).kinds


def is_setting(schema: Any, key: str) -> bool:
    part: Any = schema
    for name in key.split("."):
        part = resolved(schema, part)
        inner = part.get("properties", {})
        part = part.get("additionalProperties") if name == "*" else inner.get(name)
        if not isinstance(part, dict):
            return False
    return True


def resolved(schema: Any, part: Any) -> Any:
    for choice in (part, *part.get("anyOf", ())):
        if "$ref" in choice:
            return schema["$defs"][choice["$ref"].rsplit("/", 1)[1]]
        if "properties" in choice or "additionalProperties" in choice:
            return choice
    return part


def is_command(line: str) -> bool:
    words = line.split()[1:]
    if words == ["--version"]:
        return True
    if words[0] not in COMMANDS:
        return False
    command = group.get_command(click.Context(group), words[0])
    assert command is not None
    rest = words[1:]
    if isinstance(command, click.Group) and rest and rest[0] in command.commands:
        command, rest = command.commands[rest[0]], rest[1:]
    options = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    return all(word in options for word in rest if word.startswith("-"))


@pytest.mark.parametrize(
    "spelled", ["store_full", "StoreFull", "store-full", "store full", " STORE_FULL ", "`store_full`"]
)
def test_found_however_it_is_written(spelled: str) -> None:
    """People type what they see: the class, the code, or with other signs between the words."""
    assert find(spelled).name == "store_full"


def test_an_exit_code() -> None:
    """A number is an exit code."""
    assert find("75").kinds == ("exit",)
    assert find("exit 75") == find("75")


@pytest.mark.parametrize(
    ("given", "near"),
    [("quarantin", "quarantine"), ("budget exceded", "budget_exceeded"), ("attempts", "max_resume_attempts_exceeded")],
)
def test_what_is_near(given: str, near: str) -> None:
    """Who mistypes is told what may have been meant."""
    with pytest.raises(NoPage) as raised:
        find(given)
    assert near in str(raised.value)
    assert raised.value.remedy


def test_a_policy_names_its_codes_and_gives_them_its_settings() -> None:
    """The page of a safeguard leads to its codes, and what steers it steers them."""
    assert set(find("limit").codes) == {"max_steps", "max_resume_attempts_exceeded"}
    assert find("max_steps").settings == find("limit").settings
    assert find("idle_timeout").settings != find("deadline").settings


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("already_running", f"{Exclusive().lease // MINUTE} minutes"),
        ("circuit_open", f"{Breaker().failures_max} failures of at least {Breaker().units_min} different units"),
        ("circuit_half_open", f"({Breaker().trials_max} at a time)"),
        ("clock_jumped", f"{Clock().back_max // MINUTE} minutes behind"),
        ("clock_jumped", f"{Clock().ahead_max // DAY} days ahead"),
        (
            "consensus",
            f"above {Convergence().above}, or an agreement of at least {Convergence().agreement_min * 100:g} %",
        ),
        ("flapping", f"{Flapping().exits_max} failing exits within {Flapping().window // SECOND} s"),
        ("going_in_circles", f"at {Stall().nudge_at} the agent is told, at {Stall().refuse_at} the repeated"),
        ("going_in_circles", f"at {Stall().stop_at} it is stopped"),
        ("loop_detected", f"{Loop().repeats_max}th step of the same pattern within {Loop().window // SECOND} s"),
        ("max_resume_attempts_exceeded", f"{resume_limit().most} times"),
        ("max_rounds", f"{Rounds().most} rounds"),
        ("max_steps", f"{Limit().most} steps"),
        ("polled_too_long", f"{Stall().polling_max // MINUTE} minutes"),
        ("rate_limited", f"{Rate().starts_max:,} runs a minute"),
        ("restart_storm_detected", f"More than {Storm().failures_max} failures"),
        ("restarts_in_a_row", f"{Restart().row_max} restarts"),
        ("revised_too_often", f"{Revision().changes_max} changes a day"),
        ("spend_anomaly", f"{Anomaly().factor:g} times"),
        ("starved", f"{Restart().starved_wait // MINUTE} minutes"),
        ("too_many_restarts", f"{Restart().restarts_max} restarts of one unit"),
        ("host_lost", f"({Settings().host.lease_seconds:g} s)"),
        ("budget_near", f"{Settings().alerts.budget_near:.0%}".replace("%", " %")),
        ("store_unsafe", ".".join(map(str, SQLITE_MIN))),
        ("checkpoint_not_found", f"newest {KEPT_MAX}"),
        ("too_many_failures", f"{OF_ONE_MAX} of one address"),
    ],
)
def test_numbers_are_the_defaults(name: str, number: str) -> None:
    """Who changes a default changes what people are told of it."""
    assert number in find(name).why

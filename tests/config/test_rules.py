"""The section `rules`: what it becomes, and what is wrong with it, each with its place."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it ships no types
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flyball.cli import main
from flyball.config import Settings, json_schema, load, rule_settings, rule_texts
from flyball.config.plan import RuleLimits, decode
from flyball.config.planning import read_plan
from flyball.config.rule_settings import ActionSection, RuleSection, TriggerSection
from flyball.config.rule_shown import rule_shown
from flyball.config.rules import (
    Action,
    Approval,
    Attempts,
    Browse,
    BrowserStep,
    Call,
    Command,
    Cron,
    Every,
    FileChange,
    Http,
    Missed,
    Notify,
    OnError,
    Pace,
    Rule,
    Run,
    SetValues,
    StartUnit,
    Startup,
    StopUnit,
    UnitEvent,
    Wait,
    Webhook,
    When,
)
from flyball.core.policy import AnyPolicy
from flyball.core.time import HOUR, MILLISECOND, MINUTE, SECOND
from flyball.errors import SettingsError
from flyball.policies import Deadline, Exclusive, Flapping, Rate, Restart

SECRET = "hush-hush-hush-hush"  # noqa: S105 - nobody's
T = "triggers: [{command: true}]"
A = "actions: [{notify: x}]"


def _load(text: str, folder: Path, **env: str) -> Settings:
    file = folder / "f.yaml"
    file.write_text(text)
    return load(file, env=env)


def _rule(text: str, folder: Path, **env: str) -> Rule:
    *_, rule = _load(f"units: {{u: {{command: x}}}}\nrules: {{r: {{{text}}}}}\n", folder, **env).rules
    return rule


def _problems(text: str, folder: Path, **env: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        _load(text, folder, **env)
    return [problem.removeprefix(f"{folder}/") for problem in caught.value.problems]


def _is_told(marked: str, problem: str, folder: Path) -> None:
    """That this, and nothing else, is told of a text, at the place of its mark."""
    before, text = marked.partition("¦")[0], marked.replace("¦", "")
    place = f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
    (found,) = _problems(text, folder)
    assert found.startswith(f"f.yaml:{place}: ")
    assert problem in found


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("every: 5m", Every(every=5 * MINUTE)),
        ("every: 0.5", Every(every=500 * MILLISECOND)),
        ("cron: '0 7 * * mon-fri'", Cron(expression="0 7 * * mon-fri")),
        (
            "cron: '*/5 * * * *', timezone: Europe/Berlin, missed: all",
            Cron(expression="*/5 * * * *", timezone="Europe/Berlin", missed=Missed.ALL),
        ),
        ("file: /in/*.csv", FileChange(pattern="/in/*.csv")),
        ("file: /in/*.csv, on: [deleted]", FileChange(pattern="/in/*.csv", on=("deleted",))),
        (f"webhook: price, secret: {SECRET}", Webhook(hook="price", secret=SECRET)),
        (
            f"webhook: price, secret: {SECRET}, tolerance: 1m",
            Webhook(hook="price", secret=SECRET, tolerance=MINUTE),
        ),
        ("event: u", UnitEvent(unit="u")),
        ("event: 'u*', on: [failed, held]", UnitEvent(unit="u*", on=(When.FAILED, When.HELD))),
        ("command: true", Command()),
        ("startup: true", Startup()),
    ],
)
def test_triggers(text: str, trigger: object, tmp_path: Path) -> None:
    """What is written becomes the trigger that is meant."""
    assert _rule(f"triggers: [{{{text}}}], {A}", tmp_path).triggers == (trigger,)


@pytest.mark.parametrize(
    ("text", "deed"),
    [
        ("run: [python3, x.py, 5]", Run(command=("python3", "x.py", "5"))),
        ("run: sh -c 'a b'", Run(command=("sh", "-c", "a b"))),
        (
            'run: \'mv {{ trigger.data["a b"] }}.csv "{{ trigger.by }} x"\'',
            Run(command=("mv", '{{ trigger.data["a b"] }}.csv', "{{ trigger.by }} x")),
        ),
        ("run: x, cwd: /srv, env: {A: b, N: 5}", Run(command=("x",), cwd="/srv", env={"A": "b", "N": "5"})),
        ("http: 'http://h/p'", Http(url="http://h/p")),
        (
            "http: {url: 'https://h', method: POST, headers: {X: y}, json: {a: [1, null]}, expect: [200, 409]}",
            Http(url="https://h", method="POST", headers={"X": "y"}, json={"a": [1, None]}, expect=(200, 409)),
        ),
        ("http: {url: '{{ trigger.data.url }}', text: t}", Http(url="{{ trigger.data.url }}", text="t")),
        ("start: u", StartUnit(unit="u")),
        ("start: r", StartUnit(unit="r")),
        ("start: '{{ trigger.data.unit }}'", StartUnit(unit="{{ trigger.data.unit }}")),
        ("stop: u", StopUnit(unit="u")),
        ("notify: hello", Notify(text="hello")),
        ("wait: 5s", Wait(length=5 * SECOND)),
        (
            "set: {last: 5, more: {a: '{{ trigger.by }}'}}",
            SetValues(values={"last": 5, "more": {"a": "{{ trigger.by }}"}}),
        ),
        (
            "browser: [{goto: 'http://h'}, {click: '#a'}, {fill: {selector: '#q', text: t}}, {wait: '#d'}, {wait: 5s},"
            " {wait: 2}, {extract: {selector: h1, as: title}}, {screenshot: /tmp/x.png}]",
            Browse(
                steps=(
                    BrowserStep(verb="goto", target="http://h"),
                    BrowserStep(verb="click", target="#a"),
                    BrowserStep(verb="fill", target="#q", text="t"),
                    BrowserStep(verb="wait", target="#d"),
                    BrowserStep(verb="wait", timeout=5 * SECOND),
                    BrowserStep(verb="wait", timeout=2 * SECOND),
                    BrowserStep(verb="extract", target="h1", name="title"),
                    BrowserStep(verb="screenshot", target="/tmp/x.png"),
                )
            ),
        ),
        ("browser: [{click: a, timeout: 1s}]", Browse(steps=(BrowserStep(verb="click", target="a", timeout=SECOND),))),
    ],
)
def test_deeds(text: str, deed: object, tmp_path: Path) -> None:
    """What is written becomes the deed that is meant, as an action and as what takes one back."""
    # Started by a person alone, with somebody to ask: no circle.
    rule = _rule(f"{T}, actions: [{{{text}, approve: ok?, undo: {{{text}}}}}]", tmp_path)
    assert rule.actions[0].deed == deed
    assert rule.actions[0].undo == deed


def test_defaults(tmp_path: Path) -> None:
    """A trigger and an action are enough: everything else is as a rule has it by itself."""
    assert _rule(f"{T}, {A}", tmp_path) == Rule(
        name="r", triggers=(Command(),), actions=(Action(id="notify", deed=Notify(text="x")),)
    )


def test_everything(tmp_path: Path) -> None:
    """All that can be said of a rule beside its triggers and deeds."""
    rule = _rule(
        f"{T}, when: time.hour > 5, labels: {{provider: shop}}, priority: 7, on_error: rollback, restart: never,"
        " limits: {timeout: 10m, concurrency: 2, rate: 10/1m, queue: 5},"
        " retry: {max_attempts: 2, exponential_base: 3},"
        " actions: [{id: a, notify: x, timeout: 30s, retry: {base_delay_seconds: 5},"
        " approve: {text: 'ok?', timeout: 2h, default: yes}}, {notify: x}, {notify: y}]",
        tmp_path,
    )
    attempts = Attempts(most=2, factor=3.0)
    assert rule == Rule(
        name="r",
        triggers=(Command(),),
        when="time.hour > 5",
        labels={"provider": "shop"},
        priority=7,
        on_error=OnError.ROLLBACK,
        runs_again=False,
        timeout=10 * MINUTE,
        runs_max=2,
        pace=Pace(starts=10, window=MINUTE),
        queue_max=5,
        actions=(
            Action(
                id="a",
                deed=Notify(text="x"),
                timeout=30 * SECOND,
                attempts=Attempts(most=2, first=5 * SECOND, factor=3.0),
                approve=Approval(text="ok?", timeout=2 * HOUR, default=True),
            ),
            Action(id="notify", deed=Notify(text="x"), attempts=attempts, timeout=10 * MINUTE),
            Action(id="notify-2", deed=Notify(text="y"), attempts=attempts, timeout=10 * MINUTE),
        ),
    )


def test_settings_of_all_rules(tmp_path: Path) -> None:
    """What a rule does not say itself is as the settings of all rules have it."""
    settings = _load(
        f"retry: {{max_attempts: 7}}\nrule: {{timeout_seconds: 20}}\nrules: {{r: {{{T}, {A}}}}}\n", tmp_path
    )
    (rule,) = settings.rules
    assert (rule.timeout, rule.actions[0].timeout, rule.actions[0].attempts.most) == (20 * SECOND, 20 * SECOND, 7)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("rules: ¦5", "rules is 5; allowed: names, each with a section with labels,"),
        ("rules: {r: ¦5}", "rules.r is 5; allowed: a section with labels,"),
        ("rules: {r: ¦{ACTIONS}}", "rules.r: has no triggers; give at least one"),
        ("rules: {r: {triggers: ¦[], ACTIONS}}", "rules.r.triggers: has no triggers; give at least one"),
        ("rules: {r: ¦{TRIGGERS}}", "rules.r: has no actions; give at least one"),
        ("rules: {r: {¦triger: [], TRIGGERS, ACTIONS}}", "unknown key 'triger' in rules.r; did you mean 'triggers'?"),
        ("rules: {¦'a b': {TRIGGERS, ACTIONS}}", "rules.a b: a name has at most 64 letters"),
        ("units: {r: {command: x}}\nrules: {¦r: {TRIGGERS, ACTIONS}}", "rules.r: there is a unit of that name"),
        (
            "rules: {r: {TRIGGERS, ACTIONS, labels: {runtime: ¦x}}}",
            "rules.r.labels.runtime: this label is flyball's own",
        ),
        (
            "rules: {r: {TRIGGERS, ACTIONS, priority: ¦101}}",
            "rules.r.priority is 101; allowed: a whole number at least 0",
        ),
        ("rules: {r: {TRIGGERS, ACTIONS, on_error: ¦panic}}", "allowed: stop or continue or rollback"),
        ("rules: {r: {TRIGGERS, ACTIONS, restart: ¦always}}", "allowed: on-failure or never"),
        (
            "rules: {r: {TRIGGERS, ACTIONS, retry: {max_attempts: ¦0}}}",
            "rules.r.retry.max_attempts is 0; allowed: a whole number at least 1",
        ),
        (
            "rules: {r: {TRIGGERS, ACTIONS, retry: {¦attempts: 1}}}",
            "unknown key 'attempts' in rules.r.retry; did you mean 'max_attempts'?",
        ),
        (
            "rules: {r: {TRIGGERS, ACTIONS, limits: {rate: ¦often}}}",
            'rules.r.limits.rate is "often"; it should be so many runs within so long, such as 10/1m',
        ),
        ("rules: {r: {TRIGGERS, ACTIONS, limits: {rate: ¦0/1m}}}", "it should be from 1 to 1000 runs"),
        ("rules: {r: {TRIGGERS, ACTIONS, limits: {rate: ¦5/0s}}}", "it should be so many runs within so long"),
        (
            "rules: {r: {TRIGGERS, ACTIONS, limits: {rate: ¦10}}}",
            "rules.r.limits.rate is 10; it should be so many runs",
        ),
        ("rules: {r: {TRIGGERS, ACTIONS, limits: {timeout: ¦0}}}", "rules.r.limits.timeout: 0 is no time"),
        (
            "rules: {r: {TRIGGERS, ACTIONS, limits: {concurrency: ¦0}}}",
            "rules.r.limits.concurrency is 0; allowed: a whole number at least 1 and at most 100",
        ),
        ("rules: {r: {TRIGGERS, ACTIONS, limits: {queue: ¦0}}}", "rules.r.limits.queue is 0"),
        ("rule: {listen: ¦nowhere}", 'rule.listen is "nowhere"; it should be a host and a port'),
        ("rule: {listen: ¦'h:99999'}", "it should be a host and a port"),
        ("rule: {max_running: ¦0}", "rule.max_running is 0; allowed:"),
        ("rules_dir: ¦5", "rules_dir is 5; allowed: text"),
    ],
)
def test_wrong(text: str, problem: str, tmp_path: Path) -> None:
    """What is wrong with a rule as a whole is told with its place, what was given and what is allowed."""
    _is_told(text.replace("TRIGGERS", T).replace("ACTIONS", A), problem, tmp_path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("¦5", "rules.r.triggers[0] is 5; allowed: a section with every, cron,"),
        ("¦{}", "rules.r.triggers[0]: says nothing of a trigger; give one of every, cron, file,"),
        ("¦{timezone: UTC}", "rules.r.triggers[0]: says nothing of a trigger"),
        ("{¦evry: 5m}", "unknown key 'evry' in rules.r.triggers[0]; did you mean 'every'?"),
        ("{every: 5m, cron: ¦'* * * * *'}", "rules.r.triggers[0].cron: a trigger is one of every, cron,"),
        ("{every: ¦soon}", 'rules.r.triggers[0].every is "soon"; it should be a length of time'),
        ("{every: ¦0}", "rules.r.triggers[0].every: should be at least 10 ms"),
        ("{every: 5m, timezone: ¦UTC}", "rules.r.triggers[0].timezone: goes with cron, not with every"),
        ("{cron: ¦'99 * * * *'}", "rules.r.triggers[0].cron: bad minute; give minute, hour, day of month,"),
        ("{cron: ¦'* * *'}", "rules.r.triggers[0].cron: wrong number of fields; give minute, hour,"),
        ("{cron: ¦'* * * foo *'}", "rules.r.triggers[0].cron: bad month"),
        ("{cron: ¦'0 0 30 2 *'}", "rules.r.triggers[0].cron: bad day-of-month"),
        (
            "{cron: '* * * * *', timezone: ¦Mars/Olympus}",
            "rules.r.triggers[0].timezone: there is no time zone 'Mars/Olympus'",
        ),
        ("{cron: '* * * * *', timezone: ¦../x}", "there is no time zone '../x'"),
        ("{cron: '* * * * *', missed: ¦maybe}", "allowed: skip or once or all"),
        ("{file: ¦''}", "rules.r.triggers[0].file: should be a path such as"),
        ("{file: /x, on: [¦changed]}", 'rules.r.triggers[0].on[0] is "changed"; allowed: created or'),
        ("{file: /x, on: [created, ¦done]}", "rules.r.triggers[0].on[1]: should be one of created, modified, deleted"),
        ("{file: /x, on: ¦[]}", "rules.r.triggers[0].on: is empty; give some of created,"),
        ("¦{webhook: price}", "rules.r.triggers[0]: a webhook needs a `secret` of at least 16 characters"),
        ("{webhook: price, secret: ¦short}", "rules.r.triggers[0].secret: should have at least 16 characters"),
        ("{webhook: ¦'a/b', secret: hush-hush-hush-hush}", "rules.r.triggers[0].webhook: a name has"),
        ("{webhook: a, secret: hush-hush-hush-hush, tolerance: ¦0}", "rules.r.triggers[0].tolerance: 0 is no time"),
        ("{every: 5m, secret: ¦hush-hush-hush-hush}", "rules.r.triggers[0].secret: goes with webhook, not with every"),
        ("{event: ¦'a b'}", "rules.r.triggers[0].event: should be the name of a unit or rule"),
        ("{event: u, on: [¦created]}", "rules.r.triggers[0].on[0]: should be one of started, done,"),
        ("{command: ¦false}", "rules.r.triggers[0].command is false; allowed: true"),
        ("{startup: ¦5}", "rules.r.triggers[0].startup is 5; allowed: true"),
    ],
)
def test_wrong_triggers(text: str, problem: str, tmp_path: Path) -> None:
    """What is wrong with a trigger is told with its place."""
    _is_told(f"rules: {{r: {{triggers: [{text}], {A}}}}}\n", problem, tmp_path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("¦5", "rules.r.actions[0] is 5; allowed: a section with run,"),
        ("¦{}", "rules.r.actions[0]: says nothing of what to do; give one of run, http, call, start,"),
        ("¦{id: a}", "rules.r.actions[0]: says nothing of what to do"),
        ("{¦notfy: x}", "unknown key 'notfy' in rules.r.actions[0]; did you mean 'notify'?"),
        ("{notify: ¦x, run: y}", "rules.r.actions[0].notify: what to do is one of run, http,"),
        ("{notify: ¦''}", "rules.r.actions[0].notify: is empty"),
        ("{notify: x, cwd: ¦/}", "rules.r.actions[0].cwd: goes with run, not with notify"),
        ("{notify: x, with: ¦{a: 1}}", "rules.r.actions[0].with: goes with call, not with notify"),
        ("{call: 'm:f', ¦with_: {a: 1}}", "unknown key 'with_' in rules.r.actions[0]; did you mean 'with' or 'wait'?"),
        ("{notify: x, id: ¦'1st'}", "rules.r.actions[0].id: a name has at most 64 letters"),
        ("{run: ¦[]}", "rules.r.actions[0].run: is empty"),
        ('{run: ¦"sh -c \'x"}', "it should be a command: No closing quotation"),
        ('{run: ¦"sh \'x {{ trigger.by }}"}', "it should be a command: No closing quotation"),
        ("{http: ¦ftp}", "rules.r.actions[0].http.url: should be a URL such as"),
        ("{http: ¦{method: GET}}", "rules.r.actions[0].http: has no `url`"),
        ("{http: {url: 'http://h', method: ¦get}}", "allowed: a method such as GET or POST"),
        (
            "{http: {url: 'http://h', json: ¦{a: 2026-01-01}}}",
            "rules.r.actions[0].http.json is a mapping; it should be what JSON has; put 2026-01-01 in quotes",
        ),
        ("{http: {url: 'http://h', json: 1, text: ¦x}}", "rules.r.actions[0].http.text: is sent instead of `json`"),
        (
            "{http: {url: 'http://h', expect: [¦99]}}",
            "rules.r.actions[0].http.expect[0] is 99; allowed: a whole number at least 100",
        ),
        ("{http: {¦uri: 'http://h'}}", "unknown key 'uri' in rules.r.actions[0].http; did you mean 'url'?"),
        ("{call: ¦module}", "rules.r.actions[0].call: should be a function such as package.module:function"),
        ("{call: 'm:f', with: ¦[1]}", "rules.r.actions[0].with is a list; allowed: names, each with anything"),
        ("{start: ¦nobody}", "rules.r.actions[0].start: there is no unit or rule 'nobody'"),
        ("{stop: ¦wqtcher}", "rules.r.actions[0].stop: there is no unit or rule 'wqtcher'; did you mean 'watcher'?"),
        ("{notify: x, undo: {start: ¦nobody}}", "rules.r.actions[0].undo.start: there is no unit or rule 'nobody'"),
        ("{wait: ¦0}", "rules.r.actions[0].wait: 0 is no time"),
        ("¦{wait: 10m}", "rules.r.actions[0].timeout: 5 min are shorter than its waits, 10 min"),
        ("{wait: 10s, timeout: ¦5s}", "rules.r.actions[0].timeout: 5 s are shorter than its waits, 10 s"),
        ("{browser: [{wait: 10s}], timeout: ¦5s}", "rules.r.actions[0].timeout: 5 s are shorter than its waits, 10 s"),
        ("{notify: x, timeout: ¦0}", "rules.r.actions[0].timeout: 0 is no time"),
        ("{set: {'a b': ¦1}}", "rules.r.actions[0].set.a b: a name has letters, digits and _"),
        ("{set: ¦{}}", "rules.r.actions[0].set: is empty"),
        ("{browser: [¦{}]}", "rules.r.actions[0].browser[0]: says nothing of a step; give one of goto, click,"),
        ("{browser: [{goto: ¦'file:///etc/passwd'}]}", "rules.r.actions[0].browser[0].goto: should be a URL such as"),
        ("{browser: [{goto: ¦shop.example}]}", "rules.r.actions[0].browser[0].goto: should be a URL such as"),
        ("{run: ¦['', x]}", "rules.r.actions[0].run: the first word is the command, and is empty"),
        ("{browser: [{¦clik: a}]}", "unknown key 'clik' in rules.r.actions[0].browser[0]; did you mean 'click'?"),
        ("{browser: [{fill: ¦{text: a}}]}", "rules.r.actions[0].browser[0].fill: has no `selector`"),
        (
            "{browser: [{extract: ¦{selector: a}}]}",
            "rules.r.actions[0].browser[0].extract.as: should be a name of letters",
        ),
        ("{notify: x, approve: ¦{timeout: 1h}}", "rules.r.actions[0].approve: has no `text` to ask"),
        ("{notify: x, approve: {text: a, timeout: ¦0}}", "rules.r.actions[0].approve.timeout: 0 is no time"),
        ("{notify: x, approve: {text: a, default: ¦perhaps}}", "allowed: true or false"),
        ("{notify: x, undo: ¦{}}", "rules.r.actions[0].undo: says nothing of what to do"),
        ("{notify: x, retry: {max_attempts: ¦many}}", 'rules.r.actions[0].retry.max_attempts is "many"; allowed:'),
        ("{id: a, notify: x}, {id: ¦a, wait: 1s}", "rules.r.actions[1].id: 'a' is the name of actions[0] already"),
        ("{id: notify, wait: 1s}, ¦{notify: x}", "rules.r.actions[1]: 'notify' is the name of actions[0] already"),
    ],
)
def test_wrong_actions(text: str, problem: str, tmp_path: Path) -> None:
    """What is wrong with an action is told with its place."""
    _is_told(f"rules: {{r: {{{T}, actions: [{text}]}}}}\nunits: {{watcher: {{command: x}}}}\n", problem, tmp_path)


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        ("    when: time.hour >\n", "4:"),
        ("    when: nobody.name == 'x'\n", "4:11"),
        ("    when: 'true && nobody'\n", "4:20"),
        ("    when: true && nobody\n", "4:19"),
        ('    when: "trigger.body == 1"\n', "4:"),
        ("    when: |\n      true &&\n      nobody\n", "4:11"),
        ("    when: __import__('os')\n", "4:"),
    ],
)
def test_wrong_conditions(lines: str, place: str, tmp_path: Path) -> None:
    """What is wrong in a condition is told with its place: within the line where it stands letter by letter."""
    (found,) = _problems(f"rules:\n  r:\n    {T}\n{lines}    {A}\n", tmp_path)
    assert found.startswith(f"f.yaml:{place}")
    assert ": rules.r.when: " in found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- notify: 'now {{ nobody }}'", "5:25: rules.r.actions[0].notify: unknown name 'nobody'"),
        ('- notify: "{{ trigger.path }}"', "5:"),
        ("- notify: '{{ trigger.by'", "rules.r.actions[0].notify: a template is not closed"),
        ("- run: [x, '{{ 1 + 1 }}']", "rules.r.actions[0].run[1]: {{ 1 + 1 }} is no path"),
        (
            "- run: echo {{ steps.later.code }}\n      - {id: later, run: x}",
            "rules.r.actions[0].run: no earlier action",
        ),
        ("- {run: x, env: {A: '{{ nobody }}'}}", "rules.r.actions[0].env.A: unknown name 'nobody'"),
        ("- http: {url: 'http://h', json: {a: ['{{ nobody }}']}}", "rules.r.actions[0].http.json.a[0]: unknown name"),
        ("- {notify: x, approve: '{{ nobody }}'}", "rules.r.actions[0].approve: unknown name"),
        ("- {run: x, undo: {notify: '{{ steps.nobody }}'}}", "rules.r.actions[0].undo.notify: no earlier action"),
    ],
)
def test_wrong_templates(text: str, problem: str, tmp_path: Path) -> None:
    """What is wrong in a template is told with its place."""
    (found,) = _problems(f"rules:\n  r:\n    {T}\n    actions:\n      {text}\n", tmp_path)
    assert problem in found
    assert found.startswith("f.yaml:5:")


def test_waits_of_all_actions(tmp_path: Path) -> None:
    """Waits that are longer together than a run may last are told at the rule."""
    rule = f"  r:\n    {T}\n    actions: [{{wait: 3m}}, {{wait: 3m}}]\n"
    text = "rules.r.limits.timeout: 5 min are shorter than the waits of its actions, 6 min in all"
    assert _problems(f"rules:\n{rule}", tmp_path) == [f"f.yaml:3:5: {text}"]
    assert _problems(f"rules:\n{rule}    limits:\n      timeout: 5m\n", tmp_path) == [f"f.yaml:6:16: {text}"]


def test_templates_that_are_right(tmp_path: Path) -> None:
    """Results of earlier actions may be used, and by what undoes an action, its own."""
    text = (
        "actions: [{id: get, http: 'http://h'},"
        " {run: 'x {{ steps.get.json.a }}', undo: {run: 'y {{ steps.run.code }}'}}]"
    )
    assert _rule(f"{T}, {text}", tmp_path).actions[1].undo == Run(command=("y", "{{ steps.run.code }}"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("time.hour > 5 && units['a'].failures < 3", "time.hour > nobody"),
        ('units["a"].state == "healthy"', 'units["b"].state == "helthy"'),
        ("values.level < 10", "values.level < 10 +"),
        ("time.hour == 7", "time.hour == '7'"),
    ],
)
def test_alike_is_not_the_same(one: str, other: str, tmp_path: Path) -> None:
    """A condition that is right says nothing for another one that only looks like it."""
    for order in ((one, other), (other, one)):
        rules = [
            f"  {name}:\n    {T}\n    when: {json.dumps(when)}\n    {A}\n"
            for name, when in zip("ab", order, strict=True)
        ]
        (found,) = _problems("rules:\n" + "".join(rules), tmp_path)
        assert f"rules.{'ab'[order.index(other)]}.when" in found


def test_all_at_once(tmp_path: Path) -> None:
    """All that is wrong is told at once, in the order of the file: also of several kinds in one rule."""
    found = _problems(
        "rules:\n"
        "  a: {triggers: [{every: soon}], actions: [{notify: '{{ x }}'}]}\n"
        f"  b: {{{T}, actions: [{{id: q, notify: '{{{{ x }}}}'}}, {{id: q, notify: y}}], labels: {{runtime: r}}}}\n"
        f"  c: {{{T}, {A}, prioriti: 5}}\n",
        tmp_path,
    )
    assert [problem.split(":")[1] for problem in found] == ["2", "3", "3", "3", "4"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            f"  a: {{triggers: [{{webhook: w, secret: {SECRET}}}], {A}}}\n"
            f"  b: {{{T}, {A}}}\n"
            f"  c: {{triggers: [{{command: true}}, {{webhook: w, secret: {SECRET}}}], {A}}}\n",
            "4:45: rules.c.triggers[1].webhook: there is a webhook 'w' already, in rules.a.triggers[0]",
        ),
        (
            f"  a: {{triggers: [{{webhook: w, secret: {SECRET}}}, {{webhook: w, secret: {SECRET}}}], {A}}}\n",
            "rules.a.triggers[1].webhook: there is a webhook 'w' already, in rules.a.triggers[0]",
        ),
        (f"  a: {{{T}, {A}}}\n  a: {{{T}, {A}}}\n", "3:3: the key 'a' is there twice; the first is at"),
    ],
)
def test_twice(text: str, problem: str, tmp_path: Path) -> None:
    """What may be there once is told with both places."""
    (found,) = _problems(f"rules:\n{text}", tmp_path)
    assert problem in found


def test_a_hook_with_two_secrets(tmp_path: Path) -> None:
    """While a secret is changed a rule has its hook twice: with the old one and with the new one."""
    both = ", ".join(f"{{webhook: w, secret: {secret}}}" for secret in (SECRET, SECRET + "x"))
    file = tmp_path / "flyball.yaml"
    file.write_text(f"rules:\n  a: {{triggers: [{both}], {A}}}\n")
    (rule,) = load(file).rules
    assert [trigger.hook for trigger in rule.triggers if isinstance(trigger, Webhook)] == ["w", "w"]


def test_secrets_are_not_repeated(tmp_path: Path) -> None:
    """Secrets appear in no error, whatever is wrong around them, and wherever they came from."""
    for text in (
        f"triggers: [{{webhook: w, secret: [{SECRET}]}}], {A}",
        f"triggers: [{{webhook: w, secrt: {SECRET}}}], {A}",
        f"triggers: [{{webhook: 'a b', secret: {SECRET}}}], {A}",
        "triggers: [{webhook: w, secret: '${SHORT}'}], " + A,
        f"triggers: {{secret: {SECRET}}}, {A}",
        f"{T}, actions: [{{run: x, env: {{A: [{SECRET}]}}}}]",
        f"{T}, actions: [{{run: x, env: {SECRET}}}]",
        f"{T}, actions: [{{http: {{url: 'http://h', headers: {{A: [{SECRET}]}}}}}}]",
        f"{T}, actions: [{{http: {{url: 'http://h', headers: {SECRET}}}}}]",
        "triggers: [{webhook: w, secret: '${LONG}', tolerance: 0}], " + A,
    ):
        said = "\n".join(_problems(f"rules: {{r: {{{text}}}}}", tmp_path, LONG=SECRET, SHORT="hush"))
        assert "hush" not in said, text


def test_secrets_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`flyball config` shows a rule as it would stand in a file, with the names of what is secret, and no values."""
    text = (
        f"triggers: [{{webhook: w, secret: {SECRET}}}],"
        f" actions: [{{run: x, env: {{A: {SECRET}}}}}, {{http: {{url: 'http://h', headers: {{B: {SECRET}}}}}}}]"
    )
    _load(f"rules: {{r: {{{text}}}}}", tmp_path)
    assert main(["config", "--json", "--origin", str(tmp_path / "f.yaml")]) == 0
    output = capsys.readouterr().out
    assert "hush" not in output
    shown = json.loads(output)
    assert shown["rules.r.triggers"]["value"] == [{"webhook": "w", "secret": "(not shown)", "tolerance": "5 min"}]
    assert shown["rules.r.actions"]["origin"].endswith(f"f.yaml:1:{text.index('actions: [') + 9 + 13}")
    assert SECRET not in repr(_rule(text, tmp_path))


def test_what_is_shown_says_the_same(tmp_path: Path) -> None:
    """A rule as it is shown, but for secrets, is the same rule when it is read again."""
    text = (
        "triggers: [{every: 5m}, {cron: '0 7 * * *', missed: skip}, {file: /x, on: [deleted]}, {event: q, on: [held]},"
        " {command: true}, {startup: true}], when: 'true', priority: 3, labels: {a: b}, on_error: continue,"
        " restart: never, limits: {rate: 3/10s, timeout: 90s},"
        " actions: [{run: [x, 'y z'], cwd: /q}, {http: {url: 'http://h', json: [1]}},"
        " {http: {url: 'http://h', text: t}}, {call: 'm:f', with: {a: 1}}, {start: u}, {stop: u},"
        " {notify: n, approve: q, undo: {wait: 1s}}, {wait: 2500ms},"
        " {set: {a: {b: 1}}}, {browser: [{goto: 'http://h'}, {wait: 5s}, {wait: '#a'}, {fill: {selector: a, text: b}},"
        " {extract: {selector: a, as: b}}, {screenshot: /a.png}]}]"
    )
    rule = _rule(text, tmp_path)
    again = _load(
        "units: {u: {command: x}}\n" + yaml.safe_dump({"rules": {"r": json.loads(json.dumps(rule_shown(rule)))}}),
        tmp_path,
    )
    assert again.rules == (rule,)


def test_variables(tmp_path: Path) -> None:
    """${NAME} is filled in where secrets are; what a variable holds is never a template."""
    rule = _rule(
        "triggers: [{webhook: w, secret: 'x${S}'}],"
        " actions: [{run: 'echo ${S}', env: {A: '${S} {{ trigger.id }}', B: '$${S}'}},"
        " {http: {url: 'http://h/${S}', headers: {A: 'Bearer ${T}'}},"
        " undo: {http: {url: 'http://h', headers: {A: '${S}'}}}}]",
        tmp_path,
        S=SECRET,
        T="{{ nobody }}",
    )
    trigger, (run, http) = rule.triggers[0], rule.actions
    assert isinstance(trigger, Webhook)
    assert isinstance(run.deed, Run)
    assert isinstance(http.deed, Http)
    assert isinstance(http.undo, Http)
    assert trigger.secret == f"x{SECRET}"
    assert run.deed.command == ("echo", "${S}")
    assert run.deed.env == {"A": SECRET + " {{ trigger.id }}", "B": "${S}"}
    assert (http.deed.url, http.deed.headers) == ("http://h/${S}", {"A": "Bearer {{{{ nobody }}"})
    assert http.undo.headers == {"A": SECRET}


def test_lacking(tmp_path: Path) -> None:
    """A variable that is not there is told with its place; whoever only looks is not stopped by it, who runs is."""
    text = f"rules:\n  r:\n    triggers: [{{webhook: w, secret: '${{NONE}}'}}]\n    {A}\n"
    settings = _load(text, tmp_path)
    expected = "f.yaml:3:37: rules.r.triggers[0].secret: there is no variable NONE"
    assert [line.removeprefix(f"{tmp_path}/") for line in settings.lacking] == [expected]
    with pytest.raises(SettingsError, match="there is no variable NONE"):
        read_plan(tmp_path / "f.yaml", {})


def test_paths(tmp_path: Path) -> None:
    """Relative paths are beside the file; what begins with a template is not touched."""
    rule = _rule(
        "triggers: [{file: 'in/../*.csv'}], actions: [{run: x, cwd: work}, {run: x, cwd: '{{ trigger.path }}'},"
        " {call: 'm:f'}, {browser: [{screenshot: a.png}], undo: {run: x, cwd: y}}]",
        tmp_path,
    )
    one, two, call, browser = (action.deed for action in rule.actions)
    assert rule.triggers == (FileChange(pattern=f"{tmp_path}/*.csv"),)
    assert isinstance(one, Run)
    assert isinstance(two, Run)
    assert (one.cwd, two.cwd) == (f"{tmp_path}/work", "{{ trigger.path }}")
    assert call == Call(function="m:f", path=str(tmp_path))
    strange = _rule(f"{T}, actions: [{{run: x, cwd: '~nobody-is-called-so/x'}}]", tmp_path).actions[0].deed
    assert strange == Run(command=("x",), cwd=f"{tmp_path}/~nobody-is-called-so/x")
    assert browser == Browse(steps=(BrowserStep(verb="screenshot", target=f"{tmp_path}/a.png"),))
    assert rule.actions[3].undo == Run(command=("x",), cwd=f"{tmp_path}/y")


def test_revision(tmp_path: Path) -> None:
    """The revision is that of triggers, condition and actions: limits and labels do not change it."""
    revisions = [
        _rule(text, tmp_path).revision
        for text in (
            f"{T}, {A}",
            f"{T}, {A}, priority: 5, labels: {{a: b}}, limits: {{queue: 7}}",
            f"{T}, {A}, when: 'true'",
            f"triggers: [{{startup: true}}], {A}",
            f"{T}, actions: [{{notify: y}}]",
        )
    ]
    assert revisions[0] == revisions[1]
    assert len(set(revisions)) == 4


@pytest.mark.parametrize(
    ("module", "text"), [("cronsim", "triggers: [{cron: '* * * * *'}]"), ("cel", f"{T}, when: 'true'")]
)
def test_missing_packages(module: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that needs a package that is not there is refused, with what to install; others are fine."""
    monkeypatch.setitem(sys.modules, module, None)
    rule_settings.cron_fault.cache_clear()
    rule_texts.has_cel.cache_clear()
    try:
        (found,) = _problems(f"rules: {{r: {{{text}, {A}}}}}", tmp_path)
        assert "pip install 'flyball-governor[rules]'" in found
        assert _rule(f"{T}, {A}", tmp_path).name == "r"
    finally:
        rule_settings.cron_fault.cache_clear()
        rule_texts.has_cel.cache_clear()


def test_too_many(tmp_path: Path) -> None:
    """A list that is too long is told with its length, and how long it may be."""
    (found,) = _problems(f"rules:\n  r:\n    triggers: [{'{command: true}, ' * 40}]\n    {A}\n", tmp_path)
    assert found == "f.yaml:3:15: rules.r.triggers: has 40 entries; allowed: at most 32"


KEYS = sorted({*RuleSection.model_fields, *ActionSection.model_fields, *TriggerSection.model_fields, "url", "with"})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**20) | st.sampled_from(["", "5m", "x", "{{", "{{ x }}", "a:b", "u"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rule=VALUES, trigger=VALUES, action=VALUES)
def test_anything(rule: Any, trigger: Any, action: Any, tmp_path: Path) -> None:
    """Whatever stands where a rule, a trigger or an action should, it is read or refused with its place."""
    for text in (
        json.dumps({"rules": {"r": rule}}),
        json.dumps({"rules": {"r": {"triggers": [trigger], "actions": [action]}}}),
        json.dumps({"rules": {"r": {"triggers": [{"command": True}], "actions": [action]}}}),
    ):
        file = tmp_path / "f.yaml"
        file.write_text(text)
        problems = []
        try:
            load(file, env={}).warnings()
        except SettingsError as error:
            problems = error.problems
        assert all(problem.startswith(f"{file}:1:") for problem in problems)


# The plan.


def _own(text: str, folder: Path, settings: str = "") -> dict[tuple[str, str], AnyPolicy]:
    (folder / "f.yaml").write_text(f"{settings}\nrules: {{r: {{{T}, {A}{text}}}}}\n")
    plan, _ = read_plan(folder / "f.yaml", {})
    return {(policy.name, policy.by): policy for policy in plan.own["r"]}


def test_plan(tmp_path: Path) -> None:
    """Settings with rules and without units are a plan, which says the same in another process."""
    (tmp_path / "f.yaml").write_text(
        "rule: {max_running: 3, max_queued: 7, listen: 'localhost:99', auto_reload: false}\n"
        f"rules: {{r: {{triggers: [{{webhook: w, secret: {SECRET}}}], {A}}}, s: {{{T}, {A}}}}}\n"
    )
    plan, warnings = read_plan(tmp_path / "f.yaml", {})
    assert warnings == []
    assert [rule.name for rule in plan.rules] == ["r", "s"]
    assert plan.limits == RuleLimits(running_max=3, queued_max=7, listen="localhost:99", auto_reload=False)
    assert plan.sources == (str(tmp_path / "f.yaml"),)
    there = decode(plan.encode())
    assert there == plan
    assert [rule.revision for rule in there.rules] == [rule.revision for rule in plan.rules]
    assert there.own["r"] is there.own["s"]


def test_policies(tmp_path: Path) -> None:
    """A rule stands under what all rules do, and has its own deadline, runs and rate."""
    policies = _own("", tmp_path)
    assert policies["deadline", "run"] == Deadline(lasts_max=5 * MINUTE)
    assert policies["exclusive", "unit"] == Exclusive()
    assert policies["running", "runtime"] == Exclusive(name="running", by="runtime", runs_max=10)
    assert policies["rate", "runtime"] == Rate(by="runtime")
    assert policies["flapping", "unit"] == Flapping(delay=0, flap_delay=0)
    assert ("rate", "unit") not in policies
    limits = ", limits: {timeout: 1m, concurrency: 3, rate: 5/10s}, restart: never"
    policies = _own(limits, tmp_path, "rule: {max_running: 2, max_runs_per_minute: 9}\nexclusive: {lease_seconds: 60}")
    assert policies["deadline", "run"] == Deadline(lasts_max=MINUTE)
    assert policies["exclusive", "unit"] == Exclusive(runs_max=3, lease=MINUTE)
    assert policies["running", "runtime"] == Exclusive(name="running", by="runtime", runs_max=2, lease=MINUTE)
    assert policies["rate", "runtime"] == Rate(by="runtime", starts_max=9)
    assert policies["rate", "unit"] == Rate(starts_max=5, window=10 * SECOND)
    restart = policies["restart", "unit"]
    assert isinstance(restart, Restart)
    assert not any((restart.on_error, restart.on_timeout, restart.on_starved, restart.always))


def test_deadline_has_time_to_ask(tmp_path: Path) -> None:
    """What a run waits for people is added to its deadline."""
    (tmp_path / "f.yaml").write_text(
        f"rules: {{r: {{{T}, actions:"
        " [{notify: x, approve: {text: q, timeout: 2h}}, {notify: y, approve: q}]}}\n"
    )
    plan, _ = read_plan(tmp_path / "f.yaml", {})
    assert Deadline(lasts_max=3 * HOUR + 5 * MINUTE) in plan.own["r"]


def test_environment_lies_over_rules(tmp_path: Path) -> None:
    """A variable changes one value of a rule; what is wrong in the file is told even where a variable hides it."""
    text = f"rules: {{r: {{{T}, {A}, priority: PRIORITY}}}}"
    settings = _load(text.replace("PRIORITY", "1"), tmp_path, FLYBALL_RULES__R__PRIORITY="9")
    assert settings.rules[0].priority == 9
    (found,) = _problems(text.replace("PRIORITY", "high"), tmp_path, FLYBALL_RULES__R__PRIORITY="9")
    assert 'rules.r.priority is "high"' in found


SCHEMA_CASES: Mapping[str, bool] = {
    f"{T}, {A}": True,
    f"{T}, {A}, retry: , limits: ": True,
    f"triggers: [{{every: 5}}, {{webhook: w, secret: {SECRET}}}, {{startup: }}], {A}": True,
    f"{T}, actions: [{{http: 'http://h', approve: q}}, {{browser: [{{wait: 5}}]}}]": True,
    f"{T}, actions: [{{call: 'm:f', with: {{a: 1}}}}]": True,
    f"{T}, {A}, limits: {{rate: 5/1m, timeout: 5m}}": True,
    f"{T}, {A}, limits: {{rate: often}}": False,
    f"{T}, actions: [{{notify: x, timout: 5s}}]": False,
    f"{T}, actions: [{{notify: 5}}]": False,
    f"triggers: [{{file: x, on: [changed]}}], {A}": False,
    f"triggers: {{every: 5m}}, {A}": False,
}


@pytest.mark.parametrize(("text", "good"), SCHEMA_CASES.items())
def test_schema_and_load_agree(text: str, good: bool, tmp_path: Path) -> None:
    """What editors are told of rules is what `load` does."""
    given: Any = yaml.safe_load(f"rules: {{r: {{{text}}}}}")
    assert jsonschema.Draft202012Validator(json_schema()).is_valid(given) is good
    if good:
        assert _rule(text, tmp_path).name == "r"
    else:
        assert _problems(f"rules: {{r: {{{text}}}}}", tmp_path)


def test_lengths_in_the_schema() -> None:
    """Defaults are in seconds, also of sections that are used twice."""
    kinds = json_schema()["$defs"]
    assert kinds["BrowserStepSection"]["properties"]["timeout"]["default"] == 10
    assert kinds["ApproveSection"]["properties"]["timeout"]["default"] == 3600

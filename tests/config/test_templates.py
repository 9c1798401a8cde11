"""Templates: what they become, what is refused when a rule is loaded, and that nothing but data is ever reached."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flyball.config import templates
from flyball.config.rule_names import STEPS
from flyball.config.rules import (
    Browse,
    BrowserStep,
    Call,
    Deed,
    Every,
    FileChange,
    Http,
    Notify,
    Run,
    SetValues,
    StartUnit,
    StopUnit,
    Wait,
    Webhook,
)
from flyball.config.templates import DEPTH_MAX, FILLED_MAX, PATH_MAX, Path, TemplateError, check, escaped, fill, filled

HOOK = Webhook(hook="price", secret="s" * 16)
BODY = {
    "amount": 20,
    "name": "é",
    "none": None,
    "list": [1, {"a b": 2.5}],
    "yes": True,
    "x-y": "z",
    "braces": "{{ rule }}",
}
NAMES: dict[str, Any] = {
    "trigger": {"kind": "webhook", "body": BODY},
    "time": {"now": datetime(2024, 5, 6, 9, 30, tzinfo=UTC)},
    "steps": {"fetch": {"json": {"count": 3}}, "run-2": {"stdout": "out"}},
}

FILLED = [
    ("plain", "plain"),
    ("", ""),
    ("{{ trigger.kind }}", "webhook"),
    ("{{trigger.kind}}", "webhook"),
    ("{{  trigger . kind  }}", "webhook"),
    ("{{ trigger.body.amount }}", 20),
    ("{{ trigger.body.amount }} ", "20 "),
    ("{{ trigger.body.yes }}", True),
    ("is {{ trigger.body.yes }}", "is true"),
    ("{{ trigger.body.none }}", None),
    ("is {{ trigger.body.none }}", "is null"),
    ("{{ trigger.body.list }}", [1, {"a b": 2.5}]),
    ("{{ trigger.body.list[1] }}", {"a b": 2.5}),
    ("<{{ trigger.body.list }}>", '<[1, {"a b": 2.5}]>'),
    ('{{ trigger.body.list[1]["a b"] }}', 2.5),
    ("{{ trigger['body']['name'] }}{{ trigger.body.x-y }}", "éz"),
    ("{{ steps.run-2.stdout }}", "out"),
    ("{{ steps.fetch.json.count }}", 3),
    ("{{ time.now }}", "2024-05-06T09:30:00+00:00"),
    ("at {{ time.now }}", "at 2024-05-06T09:30:00+00:00"),
    ("{{ trigger.body.braces }}", "{{ rule }}"),
    ("<{{ trigger.body.braces }}>", "<{{ rule }}>"),
    ("{{{{ trigger.kind }}", "{{ trigger.kind }}"),
    ("{{{{{{ trigger.kind }}", "{{webhook"),
    ("}} {", "}} {"),
    ('{"a": {"b": 1}}', '{"a": {"b": 1}}'),
    (["{{ trigger.kind }}", ("{{ trigger.body.amount }}",), 1, None], ["webhook", (20,), 1, None]),
    ({"{{ trigger.kind }}": {"b": "{{ trigger.kind }}"}}, {"{{ trigger.kind }}": {"b": "webhook"}}),
]


@pytest.mark.parametrize(("value", "expected"), FILLED)
def test_fill(value: Any, expected: Any) -> None:
    """A text that is one template alone keeps the type; in others a value is text; what is filled in is no template."""
    found = fill(value, NAMES)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("text", ["{{ trigger.kind }}", "{{{{", "{{", "a {{ b }} {{{ c }}}", "${X}"])
def test_escaped(text: str) -> None:
    """An escaped text stands for itself."""
    assert fill(escaped(text), NAMES) == text


DEEDS: list[tuple[Deed, Deed]] = [
    (
        Run(
            command=("echo", "{{ trigger.body.amount }}"),
            cwd="/{{ trigger.kind }}",
            env={"A": "{{ trigger.body.yes }}"},
        ),
        Run(command=("echo", "20"), cwd="/webhook", env={"A": "true"}),
    ),
    (
        Http(
            url="http://x/{{ trigger.body.amount }}",
            headers={"a": "{{ trigger.body.amount }}"},
            json={"n": ["{{ trigger.body.amount }}"]},
        ),
        Http(url="http://x/20", headers={"a": "20"}, json={"n": [20]}),
    ),
    (Http(url="{{ trigger.body.amount }}", text="{{ trigger.body.list }}"), Http(url="20", text='[1, {"a b": 2.5}]')),
    (
        Call(function="m:f", arguments={"n": "{{ trigger.body.list }}"}),
        Call(function="m:f", arguments={"n": [1, {"a b": 2.5}]}),
    ),
    (StartUnit(unit="{{ trigger.kind }}"), StartUnit(unit="webhook")),
    (StopUnit(unit="a-{{ trigger.body.amount }}"), StopUnit(unit="a-20")),
    (Notify(text="{{ trigger.body.amount }}"), Notify(text="20")),
    (Wait(length=5), Wait(length=5)),
    (SetValues(values={"a": "{{ trigger.body.amount }}"}), SetValues(values={"a": 20})),
    (
        Browse(steps=(BrowserStep(verb="fill", target="#{{ trigger.kind }}", text="{{ trigger.body.amount }}"),)),
        Browse(steps=(BrowserStep(verb="fill", target="#webhook", text="20"),)),
    ),
]


@pytest.mark.parametrize(("deed", "expected"), DEEDS, ids=lambda deed: type(deed).__name__)
def test_filled(deed: Deed, expected: Deed) -> None:
    """All texts of a deed are filled in; what has to be a text stays one, and the deed itself is as it was."""
    before = repr(deed)
    assert filled(deed, NAMES) == expected
    assert repr(deed) == before


def test_fill_text() -> None:
    """A text that has to stay one does."""
    assert templates.fill_text("{{ trigger.body.amount }}", NAMES) == "20"
    assert templates.fill_text("{{ trigger.kind }}", NAMES) == "webhook"


MISSING = {
    "{{ foo }}": "{{ foo }}: foo is not known",
    "{{ trigger.body.nam }}": "{{ trigger.body.nam }}: trigger.body has no 'nam'",
    "a {{ trigger['b c'].d }}": "{{ trigger[\"b c\"].d }}: trigger has no 'b c'",
    "{{ trigger.kind.x }}": "{{ trigger.kind.x }}: trigger.kind is a text; it has no 'x'",
    "{{ trigger.kind[0] }}": "{{ trigger.kind[0] }}: trigger.kind is a text; it has no place [0]",
    "{{ trigger.body[0] }}": "{{ trigger.body[0] }}: trigger.body is a mapping; it has no place [0]",
    "{{ trigger.body.none.x }}": "{{ trigger.body.none.x }}: trigger.body.none is null; it has no 'x'",
    "{{ trigger.body.list[2] }}": "{{ trigger.body.list[2] }}: trigger.body.list has 2 entries, so no [2]",
    "{{ trigger.body.list.append }}": "{{ trigger.body.list.append }}: trigger.body.list is a list; it has no 'append'",
    "{{ trigger.__class__ }}": "{{ trigger.__class__ }}: trigger has no '__class__'",
    "{{ trigger.keys }}": "{{ trigger.keys }}: trigger has no 'keys'",
    "{{ time.now.year }}": "{{ time.now.year }}: time.now is something else; it has no 'year'",
}


@pytest.mark.parametrize(("text", "said"), MISSING.items())
def test_missing(text: str, said: str) -> None:
    """What is not there is an error that names the template and what is missing; values are not repeated."""
    with pytest.raises(TemplateError) as caught:
        fill({"a": [text]}, NAMES)
    assert str(caught.value) == said


NO_PATH = 'is no path: names, ["key"] and [0] can stand there, and nothing is computed'
BROKEN = {
    "{{ }}": ("a template is empty; name a value, such as {{ trigger.kind }}", 3),
    "a {{ trigger.kind": ("a template is not closed: `}}` is missing; `{{{{` stands for `{{` itself", 3),
    "{{ a b }}": (f"{{{{ a b }}}} {NO_PATH}", 6),
    "{{ a.b() }}": (f"{{{{ a.b() }}}} {NO_PATH}", 7),
    "{{ a + 1 }}": (f"{{{{ a + 1 }}}} {NO_PATH}", 6),
    "{{ a | upper }}": (f"{{{{ a | upper }}}} {NO_PATH}", 6),
    "{{ a. }}": (f"{{{{ a. }}}} {NO_PATH}", 5),
    "{{ .a }}": (f"{{{{ .a }}}} {NO_PATH}", 4),
    "{{ [0] }}": (f"{{{{ [0] }}}} {NO_PATH}", 4),
    "{{ a[-1] }}": (f"{{{{ a[-1] }}}} {NO_PATH}", 5),
    "{{ a[b] }}": (f"{{{{ a[b] }}}} {NO_PATH}", 5),
    "{{ 'x' }}": (f"{{{{ 'x' }}}} {NO_PATH}", 4),
    "{{ __import__('os') }}": (f"{{{{ __import__('os') }}}} {NO_PATH}", 14),
    "{% if x %}{{ y": ("a template is not closed: `}}` is missing; `{{{{` stands for `{{` itself", 11),
    "{{ a" + "." * PATH_MAX + " }}": (f"a template is longer than {PATH_MAX} characters", 3),
}


@pytest.mark.parametrize(("text", "problem"), BROKEN.items())
def test_broken(text: str, problem: tuple[str, int]) -> None:
    """What is no template is reported at its place, and is an error if it is filled in all the same."""
    assert check(text, [HOOK], []) == [problem]
    with pytest.raises(TemplateError):
        fill(text, NAMES)


STEPS_BEFORE = [("fetch", "http"), ("run", "run"), ("page", "browser"), ("ask", "call"), ("tell", "notify")]
UNKNOWN = {
    "{{ foo }}": ("unknown name 'foo'; there is firing, rule, steps, time, trigger, units, values", 4),
    "a {{ trigger.path }}": ("trigger.path is only there with file, and this rule has no such trigger", 14),
    "{{ rule.nam }}": ("rule has no 'nam'; did you mean 'name'? there is labels, name, priority", 9),
    "{{ rule['nam'] }}": ("rule has no 'nam'; did you mean 'name'? there is labels, name, priority", 9),
    "{{ rule.name.x }}": ("rule.name is a text; it has no 'x'", 14),
    "{{ rule[0] }}": ("rule is a map; it has no place [0]", 9),
    "{{ steps.later.code }}": (
        "no earlier action is called 'later'; there is ask, fetch, page, run, tell",
        10,
    ),
    "{{ steps.fetch.body }}": ("steps.fetch has no 'body'; there is headers, json, status, text", 16),
    "{{ steps.tell.x }}": ("steps.tell has no 'x'; there is nothing", 15),
    "{{ steps.run.stdout.x }}": ("steps.run.stdout is a text; it has no 'x'", 21),
    "{{ units.a.stat }}": ("units.a has no 'stat'; did you mean 'state'? there is failures, state", 12),
}


@pytest.mark.parametrize(("text", "problem"), UNKNOWN.items())
def test_unknown(text: str, problem: tuple[str, int]) -> None:
    """A name that cannot be there is reported when the rule is loaded."""
    assert check(text, [HOOK, Every(every=1)], STEPS_BEFORE) == [problem]


KNOWN = [
    "plain",
    "{{{{ foo }}",
    "{{ trigger.body.anything[0].at.all }}",
    "{{ trigger.body[0] }}",
    "{{ trigger.headers.x-a }} {{ trigger.data }} {{ trigger.rule }}",
    "{{ rule.labels.provider }} {{ firing.id }} {{ time.now }} {{ units.a.state }} {{ values.x.y }}",
    "{{ steps.fetch.json[0].x }} {{ steps.page.title }} {{ steps.ask.result.x }} {{ steps.run.code }}",
]


@pytest.mark.parametrize("text", KNOWN)
def test_known(text: str) -> None:
    """What may be there is not reported."""
    assert check(text, [HOOK], STEPS_BEFORE) == []


def test_kinds_of_triggers() -> None:
    """A field is known if one of the rule's triggers has it."""
    assert check("{{ trigger.path }} {{ trigger.body }}", [HOOK, FileChange(pattern="/x")], []) == []


@pytest.mark.parametrize("kind", STEPS)
def test_steps(kind: str) -> None:
    """The result of each kind of action is known."""
    assert check("{{ steps.a }}", [], [("a", kind)]) == []


def deep(depth: int) -> Any:
    value: Any = "{{ trigger.kind }}"
    for _ in range(depth):
        value = [value]
    return value


BOUNDS = {
    "one text": ("{{ values.long }}{{ values.long }}", "more than 1024 KiB would be filled in"),
    "many texts": (["{{ values.long }}"] * 2, "more than 1024 KiB would be filled in"),
    "deep": (deep(DEPTH_MAX + 2), "within each other"),
    "deep data": ("{{ values.deep }}", "within each other"),
    "an object": ("{{ values.object }}", "this is nothing that JSON has"),
    "a long number": ("{{ values.number }}", "this number is too long to be written"),
}


@pytest.mark.parametrize(("value", "said"), BOUNDS.values(), ids=BOUNDS)
def test_bounds(value: Any, said: str) -> None:
    """Too much, too deep and what is no data are errors."""
    values = {"long": "x" * (FILLED_MAX // 2 + 1), "deep": deep(100_000), "object": object(), "number": 10**5_000}
    with pytest.raises(TemplateError, match=said):
        fill(value, {**NAMES, "values": values})


def test_within_bounds() -> None:
    """What is just within the bounds is filled in."""
    assert fill("{{ values.x }}", {"values": {"x": "x" * FILLED_MAX}}) == "x" * FILLED_MAX
    assert json.dumps(fill(deep(DEPTH_MAX), NAMES)).count("[") == DEPTH_MAX


def test_mappings_are_looked_into_by_name_alone() -> None:
    """A mapping that is made when it is asked is asked for what is named, and for nothing else."""

    class Lazy(Mapping[str, Any]):
        def __getitem__(self, name: str) -> Any:
            if name != "shop":
                raise KeyError(name)
            return {"state": "healthy"}

        def __contains__(self, name: object) -> bool:
            return name == "shop"

        def __iter__(self) -> Iterator[str]:
            raise AssertionError("all was asked")

        def __len__(self) -> int:
            return 1

    assert fill("{{ units.shop.state }}", {"units": Lazy()}) == "healthy"


# Whatever is written.

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=12,
)
WORDS = st.sampled_from(
    [
        "{{",
        "}}",
        " ",
        ".",
        "a",
        "b",
        "c",
        "[0]",
        '["a"]',
        "['b']",
        "[",
        "]",
        "x-y",
        "{",
        "}",
        "trigger",
        "__class__",
        "(",
    ]
)
TEXTS = st.one_of(st.text(max_size=40), st.lists(WORDS, max_size=12).map("".join))
PATHS = st.lists(st.sampled_from([".a", ".b", "[0]", "[1]", '["c"]']), max_size=4).map(
    lambda steps: "{{ trigger" + "".join(steps) + " }}"
)


@settings(max_examples=400, deadline=None)
@given(st.one_of(TEXTS, PATHS, st.lists(st.one_of(TEXTS, PATHS), max_size=3)), JSON)
def test_fill_bears_everything(value: Any, data: Any) -> None:
    """Any text with any JSON is filled in with JSON, or is a TemplateError."""
    try:
        found = fill(value, {"trigger": data, "a": data})
    except TemplateError:
        return
    json.dumps(found)
    for text in [value] if isinstance(value, str) else value:
        templates.parse(text)


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_check_bears_everything(text: str) -> None:
    """Any text has problems, each within it, or can be taken apart."""
    problems = check(text, [HOOK], [("a", "run")])
    assert all(problem.text and 1 <= problem.column <= len(text) + 1 for problem in problems)
    if not problems:
        for part in templates.parse(text):
            assert isinstance(part, str) or part.steps[0] in (
                "trigger",
                "rule",
                "firing",
                "units",
                "values",
                "time",
                "steps",
            )


@given(TEXTS)
def test_escaped_stands_for_itself(text: str) -> None:
    """Every escaped text becomes what it was."""
    assert fill(escaped(text), {}) == text
    assert not any(isinstance(part, Path) for part in templates.parse(escaped(text)))

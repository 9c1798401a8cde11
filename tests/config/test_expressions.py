"""Conditions: what is refused when a rule is loaded, what is an error when it is evaluated, and that nothing else than
an answer or an error comes of either, whatever the text and the data are."""

import itertools
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flyball.config import expressions
from flyball.config.condition_cost import NESTED_MAX, WEIGHT_MAX, weight_max
from flyball.config.condition_tree import DEPTH_MAX, EACH_MAX, NESTING_MAX, SOURCE_MAX, TOKENS_MAX, tree_of
from flyball.config.expressions import ConditionError, check, compiled
from flyball.config.rule_names import ROOTS, TRIGGERS, kinds_of
from flyball.config.rules import Command, Cron, Every, FileChange, Startup, Trigger, UnitEvent, Webhook

cel = pytest.importorskip("cel")

HOOK = Webhook(hook="price", secret="s" * 16)
TIMER = Every(every=1)
NAMES: dict[str, Any] = {
    "trigger": {"kind": "webhook", "hook": "price", "id": "1", "headers": {"x-a": "b"}}
    | {"body": {"amount": 20, "name": "x", "none": None, "items": [{"price": 1}, {"price": 30}]}},
    "rule": {"name": "watch", "labels": {"provider": "shop"}, "priority": 5},
    "firing": {"id": "f1", "attempt": 1, "joined": 0, "at": "2024-05-06T09:30:00+00:00"},
    "units": {"shop": {"state": "healthy", "failures": 0}},
    "values": {"last": 1.5, "list": [1, 2]},
    "time": {
        "now": datetime(2024, 5, 6, 9, 30, tzinfo=UTC),
        "hour": 9,
        "minute": 30,
        "weekday": "mon",
        "date": "2024-05-06",
        "unix": 1714987800.0,
    },
}
EXAMPLE = 'trigger.kind == "webhook" && trigger.body.amount > 10 && units["shop"].state == "healthy" && time.hour >= 8'


def said(source: str, *triggers: Trigger) -> list[tuple[str, int]]:
    return [(text, column) for text, column in check(source, triggers or (HOOK,))]


RIGHT = {
    EXAMPLE: True,
    "true": True,
    "trigger.body.amount == 20.0": True,
    'trigger["body"]["amount"] in [10, 20]': True,
    "trigger.body.none == null": True,
    "has(trigger.body.amount) && !has(trigger.body.other)": True,
    "trigger.body.items.exists(item, item.price > 10)": True,
    "trigger.body.items.all(item, item.price > 10)": False,
    "size(trigger.body.items.filter(item, item.price > 10)) == 1": True,
    "trigger.body.items.map(item, item.price) == [1, 30]": True,
    'trigger.body.name.matches("^[a-z]+$")': True,
    'trigger.headers["x-a"].startsWith("b")': True,
    'rule.labels.provider == "shop" && rule.priority >= 5 && rule.name != "other"': True,
    'firing.attempt > 1 || firing.joined > 0 || firing.id == ""': False,
    'units.shop.failures < 3 && "shop" in units': True,
    "values.last * 2.0 == 3.0": True,
    'time.weekday in ["sat", "sun"] ? time.hour > 10 : time.hour > 8': True,
    'time.now > timestamp("2024-01-01T00:00:00Z")': True,
    'time.now - timestamp("2024-05-06T09:00:00Z") == duration("30m")': True,
    "time.now.getHours() == time.hour && time.now.getDayOfWeek() == 1": True,
    'time.date == "2024-05-06" && time.unix > 1.0 && time.minute == 30': True,
    "type(trigger.body.amount) == int": True,
    '// a comment\n true\n&& r\'\\d\' != """a\nb"""': True,
}


@pytest.mark.parametrize(("source", "holds"), RIGHT.items())
def test_right(source: str, holds: bool) -> None:
    """What is right is not reported, and is evaluated."""
    assert said(source) == []
    assert compiled(source).holds(NAMES) is holds


WRONG = {
    # Syntax.
    "": ("expected a value, found the end", 1),
    "time.hour >": ("expected a value, found the end", 12),
    "(time.hour > 1": ("expected `)`, found the end", 15),
    "time.hour > 1 time": ("expected the end, found `time`", 15),
    "time.hour > 1 and true": ("expected the end, found `and`; write `&&`", 15),
    "time.hour = 1": ("'=' does not belong into a condition; write `==`", 11),
    "rule.name == 'x": ("a text is not closed", 14),
    "values.if && if": ("'if' is a reserved word", 14),
    "values.a ? values.b ? true : false : true": ("expected `:`, found `?`", 21),
    "[1].all(x.y, true)": ("the first argument of all() is what each entry is called: a simple name", 11),
    "[1].all(true)": ("all() takes the name of each entry and an expression", 5),
    "has(values)": ("has() takes a field, such as has(trigger.body.amount)", 1),
    "true &&\n  time.hour > §": ("'§' does not belong into a condition", 23),
    # Names and fields.
    "foo > 1": ("unknown name 'foo'; there is firing, rule, time, trigger, units, values", 1),
    "tme.hour > 1": ("unknown name 'tme'; did you mean 'time'? there is firing, rule, time, trigger, units, values", 1),
    "True": ("unknown name 'True'; write true", 1),
    "steps.a.code == 0": ("unknown name 'steps'; there is firing, rule, time, trigger, units, values", 1),
    "time.hours > 1": ("time has no 'hours'; did you mean 'hour'? there is date, hour, minute, now, unix, weekday", 6),
    'time["hours"] > 1': (
        "time has no 'hours'; did you mean 'hour'? there is date, hour, minute, now, unix, weekday",
        6,
    ),
    "has(rule.nam)": ("rule has no 'nam'; did you mean 'name'? there is labels, name, priority", 10),
    'trigger.path == ""': ("trigger.path is only there with file, and this rule has no such trigger", 9),
    'units["a"].stat == ""': ("units[\"a\"] has no 'stat'; did you mean 'state'? there is failures, state", 12),
    "[1].all(x, y > x)": ("unknown name 'y'; there is firing, rule, time, trigger, units, values, x", 12),
    # Kinds.
    "time.hour": ("a condition should be true or false; this is an int", 6),
    "[true]": ("a condition should be true or false; this is a list", 1),
    'time.hour == "x"': ("an int and a string are never equal", 11),
    '"x" != time.hour': ("a string and an int are never equal", 5),
    'time.hour > "x"': ("an int and a string cannot be compared by `>`", 11),
    "[1] < [2]": ("a list and a list cannot be compared by `<`", 5),
    '"a" + 1 == "a1"': ("`+` cannot take a string and an int; make it a text: string(...)", 5),
    "time.hour + 1.5 > 2": ("`+` cannot take an int and a double; make them the same: double(...)", 11),
    "time.hour && true": ("`&&` takes what is true or false, not an int", 6),
    "!rule.name": ("`!` takes what is true or false, not a string", 7),
    "-rule.name == 1": ("`-` cannot take a string", 1),
    "rule.name ? true : false": ("`?` takes what is true or false, not a string", 6),
    "time.hour.x == 1": ("an int has no 'x'", 11),
    "time.hour[0] == 1": ("an int has no places or names", 10),
    "[1]['a'] == 1": ("a list has places, not a string: [0] is the first", 5),
    "units[1].failures > 1": ("units has names, not an int", 7),
    "rule.name.all(x, true)": ("all() goes over a list or a map, not over a string", 11),
    "[1].exists(x, x)": ("exists() takes what is true or false, not an int", 15),
    "1 in rule.name": ("`in` looks into a list or a map, not into a string", 3),
    "1 in ['a']": ("an int is never in a list of strings", 3),
    "time.weekday == 'monday'": (
        "this is never 'monday'; did you mean 'mon'? there is fri, mon, sat, sun, thu, tue, wed",
        17,
    ),
    "time.weekday in ['sat', 'sunday']": (
        "this is never 'sunday'; did you mean 'sun'? there is fri, mon, sat, sun, thu, tue, wed",
        25,
    ),
    "size(time.hour) > 1": (
        "size() cannot take an int; it is called so: size(bytes or list or map or string) or "
        "(bytes or list or map or string).size()",
        1,
    ),
    "startsWith(rule.name, 'a')": ("startsWith is called so: (string).startsWith(string)", 1),
    "rule.name.matches('(')": ("no regular expression: unclosed group", 19),
    "time.now > timestamp('today')": ("no timestamp: premature end of input", 22),
    "true &&\n 9223372036854775808 > 1": ("invalid int literal", 10),
}


@pytest.mark.parametrize(("source", "problem"), WRONG.items())
def test_wrong(source: str, problem: tuple[str, int]) -> None:
    """What can never be right is reported when the rule is loaded, at its place."""
    assert said(source) == [problem]


OUTSIDE = [
    '__import__("os").system("true")',
    "__builtins__",
    "trigger.__class__",
    "trigger.body.__class__.__mro__",
    'trigger.body["__class__"]',
    'values.x.__init__.__globals__["os"] == 1',
    "rule.name.__len__() > 1",
    "().__class__",
    "[].__class__.__base__.__subclasses__()",
    'getattr(trigger, "x")',
    'eval("1")',
    'open("/etc/passwd")',
    "exec('x')",
    "globals()",
    "lambda: 1",
    "trigger.body.update(1)",
    "trigger.items()",
    '"{0.__class__}".format(trigger)',
    "[x for x in values.list]",
    "optional.of(1).hasValue()",
    "cel.bind(x, 1, x == 1)",
    "math.greatest(1, 2) > 1",
    "google.protobuf.Timestamp{seconds: 1}",
    "max(1, 2) > 1",
]


@pytest.mark.parametrize("source", OUTSIDE)
def test_nothing_outside(source: str) -> None:
    """An expression that tries to reach anything but data and the functions of CEL's core is refused at load."""
    assert said(source)


def test_objects_are_no_data() -> None:
    """Not even an object among the data can be looked into."""

    class Thing:
        inside = "x"

    for source in ("values.thing.inside == 'x'", "values.thing == 1"):
        with pytest.raises(ConditionError):
            compiled(source).holds({"values": {"thing": Thing()}})


BY_TRIGGER = [
    (TIMER, "every", "at"),
    (Cron(expression="* * * * *"), "cron", "missed"),
    (FileChange(pattern="/x"), "file", "path"),
    (HOOK, "webhook", "body"),
    (UnitEvent(unit="a"), "event", "fingerprint"),
    (Command(), "command", "data"),
    (Startup(), "startup", "at"),
]


@pytest.mark.parametrize(("trigger", "kind", "field"), BY_TRIGGER)
def test_fields_of_triggers(trigger: Trigger, kind: str, field: str) -> None:
    """A field is known if one of the rule's triggers has it; a person and another rule may always fire it."""
    assert kinds_of([trigger]) == tuple(sorted({"command", "rule", kind}))
    assert said(f"trigger.{field} == trigger.{field}", trigger) == []
    assert said("trigger.data.x == 1 || trigger.by == 'me' || trigger.rule == 'a'", trigger) == []
    without = TIMER if kind not in ("every", "startup") else HOOK
    if field != "data":
        (problem,) = said(f"has(trigger.{field})", without)
        assert problem[0].startswith(f"trigger.{field} is only there with")
        assert kind in problem[0]


@pytest.mark.parametrize("kind", TRIGGERS)
def test_kinds_are_known(kind: str) -> None:
    """A condition may name every kind of trigger, also one that its rule does not have; no other word."""
    assert said(f"trigger.kind == '{kind}'") == []
    assert said(f"trigger.kind == '{kind}s'")


SAMPLES = {
    "bool": "true",
    "int": "3",
    "uint": "3u",
    "double": "3.5",
    "string": "'ab'",
    "bytes": "b'ab'",
    "timestamp": "timestamp('2020-01-01T00:00:00Z')",
    "duration": "duration('1h')",
    "list": "[1]",
    "map": "{'a': 1}",
}
QUIRKS = {"[1] + {'a': 1}", "-(true)"}
"""What the package takes though CEL says otherwise."""


def evaluates(source: str) -> bool:
    try:
        cel.compile(source).execute({})
    except (TypeError, RuntimeError):
        return False
    return True


@pytest.mark.parametrize("sign", ["+", "-", "*", "/", "%", "<", "<=", ">", ">="])
def test_kinds_are_those_of_cel(sign: str) -> None:
    """Two kinds are reported if, and only if, CEL does not take them."""
    for one, other in itertools.product(SAMPLES.values(), repeat=2):
        source = f"{one} {sign} {other}"
        reported = said(f"dyn({source}) == 1")
        assert bool(reported) is not (evaluates(source) and source not in QUIRKS), (source, reported)


@pytest.mark.parametrize(
    "source", ["!({})", "-({})", "({}) && true", "({}) ? true : true", "1 in ({})", "({}).all(x, true)"]
)
def test_kinds_of_one(source: str) -> None:
    """One kind is reported where CEL does not take it."""
    for sample in SAMPLES.values():
        filled = source.format(sample)
        reported = said(f"dyn({filled}) == 1")
        assert bool(reported) is not (evaluates(filled) and filled not in QUIRKS), (filled, reported)


def test_functions_are_those_of_cel() -> None:
    """Each function takes what CEL's takes, and gives what it gives; so does every method."""
    from flyball.config.condition_kinds import FUNCTIONS

    right = {"int": "'5'", "uint": "'5'", "double": "'1.5'", "timestamp": "'2020-01-01T00:00:00Z'", "duration": "'1h'"}
    for name, function in FUNCTIONS.items():
        for one, other in itertools.product(SAMPLES, SAMPLES if len(function.takes) > 1 else [""]):
            first = right.get(name, SAMPLES[one]) if one == "string" else SAMPLES[one]
            second = SAMPLES.get(other, "")
            for form in (f"({first}).{name}({second})", f"{name}({first}{', ' if second else ''}{second})"):
                reported = said(f"dyn({form}) == 1")
                assert bool(reported) is not evaluates(form), (form, reported)
                if not reported and name not in ("type", "dyn"):
                    assert cel.evaluate(f"type({form})") in (
                        function.gives,
                        f"google.protobuf.{function.gives.title()}",
                    )


ERRORS = {
    "trigger.body.amout > 10": "trigger.body has no 'amout'",
    'units["x"].state == "healthy"': "units has no 'x'",
    'trigger.body.amount > "a"': "its values do not go together: trigger.body.amount is an int",
    "trigger.body.none > 1": "its values do not go together: trigger.body.none is null",
    "trigger.body.amount": "it should be true or false, and is an int",
    "trigger.body.name.first == 1": "trigger.body.name is a string; it has no 'first'",
    "has(trigger.body.name.first)": "trigger.body.name is a string; it has no 'first'",
    "trigger.body.items.all(item, item.cost > 1)": "there is no 'cost'",
    "values.list[5] == 1": "index out of bounds: 5",
    "size(trigger.body.amount) == 1": "size() cannot take this: trigger.body.amount is an int",
    "int(trigger.body.name) == 1": "Function 'int' error: string parse error: invalid digit found in string",
    "1 / (trigger.body.amount - 20) > 1": "division by zero in CEL expression",
}


@pytest.mark.parametrize(("source", "text"), ERRORS.items())
def test_errors(source: str, text: str) -> None:
    """What depends on data is no problem at load, and an error for people when the data is wrong."""
    assert said(source) == []
    with pytest.raises(ConditionError) as caught:
        compiled(source).holds(NAMES)
    assert str(caught.value) == text


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


DATA = {
    "int64": (2**63 - 1, "values.x > 1", True),
    "beyond int64": (2**63, "values.x > 1", None),
    "far beyond": ([10**400], "size(values.x) == 1", None),
    "below int64": ({"a": -(2**63) - 1}, "values.x.a < 1", None),
    "beyond int64, not read": (2**70, "values.y == 1", True),
    "infinite": (float("inf"), "values.x > 1.0", True),
    "not a number": (float("nan"), "values.x == values.x", False),
    "null": (None, "values.x == null", True),
    "half a letter": ("\ud800", "values.x == 'a'", None),
    "a null byte": ("a\0b", "values.x == 'a\\x00b'", True),
    "deep": (nested(NESTED_MAX - 2), "size(values.x) == 1", True),
    "too deep": (nested(NESTED_MAX), "size(values.x) == 1", None),
    "far too deep": (nested(100_000), "size(values.x) == 1", None),
    "too many": ([0] * (WEIGHT_MAX + 1), "size(values.x) == 1", None),
    "a tuple": ((1, 2), "values.x[1] == 2", True),
}


@pytest.mark.parametrize(("value", "source", "holds"), DATA.values(), ids=DATA)
def test_data(value: Any, source: str, holds: bool | None) -> None:
    """Data of any kind is taken, or is an error of the condition; what a condition does not read does not matter."""
    names = {"values": {"x": value, "y": 1}}
    if holds is None:
        with pytest.raises(ConditionError):
            compiled(source).holds(names)
    else:
        assert compiled(source).holds(names) is holds


def test_reads_what_it_names() -> None:
    """Of many units, and of a large body, only what is named is looked at."""

    class Units(dict[str, Any]):
        asked: list[str] = []

        def __getitem__(self, name: str) -> Any:
            self.asked.append(name)
            return super().__getitem__(name)

        def values(self) -> Any:
            raise AssertionError("all units were read")

    units = Units({str(number): {"state": "healthy"} for number in range(100)})
    assert compiled('units["7"].state == "healthy"').holds({"units": units})
    assert units.asked == ["7"]


PATHS_READ = {
    EXAMPLE: ["trigger.kind", "trigger.body.amount", "units.shop.state", "time.hour"],
    'has(values.a.b) && values["a"]["b"] > 1 && values.a.b < 9': ["values.a.b", "values.a.b"],
    "values.x.all(x, x.y > values.z && values.exists(values, values == 1))": ["values.x", "values.z", "values"],
    "units[rule.name].state == values['a'][0]": ["units", "rule.name", "values.a"],
    "(trigger).body // why\n .x == 1 && trigger.kind == 'file'": ["trigger", "trigger.kind"],
    "_0.a == 1 && values . a [ 'b' ] == _0.a": ["_0.a", "values.a.b"],
    "size(trigger.body.list) > 1 && 'trigger.kind' == trigger.kind": ["trigger.body.list", "trigger.kind"],
}


@pytest.mark.parametrize(("source", "paths"), PATHS_READ.items())
def test_paths(source: str, paths: list[str]) -> None:
    """What is read is found in any condition, however it is written."""
    assert sorted(".".join(path) for path in compiled(source).reads) == sorted(paths)


LIMITS = {
    "long": ("true" + " " * SOURCE_MAX, f"longer than {SOURCE_MAX} characters"),
    "tokens": ("[" + "1," * TOKENS_MAX + "] == 1", f"more than {TOKENS_MAX} names, values and signs"),
    "parentheses": ("(" * (NESTING_MAX + 1) + "true", f"more than {NESTING_MAX} levels within each other"),
    "lists": ("[" * (NESTING_MAX + 1), f"more than {NESTING_MAX} levels within each other"),
    "choices": ("true ? true : " * (NESTING_MAX + 1), f"more than {NESTING_MAX} levels within each other"),
    "fields": ("values" + ".b" * DEPTH_MAX, f"more than {DEPTH_MAX} terms or fields in a row"),
    "sum": ("1" + " + 1" * DEPTH_MAX, f"more than {DEPTH_MAX} terms or fields in a row"),
    "signs": ("!" * DEPTH_MAX + "true", f"more than {DEPTH_MAX} terms or fields in a row"),
    "macros": ("[1].all(x, " * (EACH_MAX + 1), "within each other"),
}


@pytest.mark.parametrize(("source", "text"), LIMITS.values(), ids=LIMITS)
def test_limits(source: str, text: str) -> None:
    """What is too long or too deep is refused before the package sees it."""
    ((problem, _),) = said(source)
    assert text in problem
    with pytest.raises(ConditionError):
        compiled(source)


def test_within_limits() -> None:
    """What is just within the limits is compiled and evaluated, also in a thread with a small stack."""
    sources = [
        "(" * (NESTING_MAX - 1) + "true" + ")" * (NESTING_MAX - 1),
        " + ".join("1" * (DEPTH_MAX - 2)) + " > 1",
        "||".join(["false"] * (TOKENS_MAX // 2 - 2) + ["true"]),
        "!" * (DEPTH_MAX - 2) + "true",
    ]
    code = (
        "import sys, threading\n"
        "from flyball.config.expressions import check, compiled\n"
        "def work():\n"
        "    for source in sys.argv[1:]:\n"
        "        assert check(source, []) == [], check(source, [])\n"
        "        assert compiled(source).holds({})\n"
        "    print('done')\n"
        "threading.stack_size(512 * 1024)\n"
        "thread = threading.Thread(target=work); thread.start(); thread.join()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *sources], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize("source", ["'(' * 10_000 + '1' + ')' * 10_000", "'a' + '.b' * 20_000", "'[' * 100_000"])
def test_deep_text_ends_nothing(source: str) -> None:
    """A text that is absurdly deep is refused, and the process goes on."""
    code = f"from flyball.config.expressions import check; assert check({source}, []); print('done')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


HEAVY = [
    "values.x.all(a, a > 0)",
    "values.x.all(a, values.x.all(b, a + b > 0))",
    "size(values.x.map(a, a)) > 0",
    "size(values.x.filter(a, a > 0)) > 0",
    "size(values.x.map(a, values.x)) > 0",
    "values.x.map(a, values.x.map(b, b)).all(c, c.all(d, d > 0))",
    "values.x.exists(a, a in values.x.map(b, b + 1000)) || true",
    "values.x.all(a, 'text'.matches('^[a-z]+$'))",
    "values.x.all(a, 'text'.matches(string(a)) || true)",
]


@pytest.mark.parametrize("source", HEAVY)
def test_work_is_bounded(source: str) -> None:
    """The longest list that a condition takes keeps it busy for a moment, and a longer one is refused at once. Alone on
    a machine it takes a quarter of a second; the bound here has room for slow ones."""
    most = weight_max(tree_of(source)) - 4
    assert said(source) == []
    before = time.process_time()
    assert compiled(source).holds({"values": {"x": [1] * most}})
    assert time.process_time() - before < 4
    if most < WEIGHT_MAX // 2:
        with pytest.raises(ConditionError, match="too much data"):
            compiled(source).holds({"values": {"x": [1] * (most + 10)}})


def test_work_follows_the_data() -> None:
    """A list within the entries of a list is as much work as there is data: it is not taken for a square."""
    inner, square = "values.x.all(a, a.all(b, b > 0))", "values.x.all(a, values.x.all(b, true))"
    assert weight_max(tree_of(inner)) > 50 * weight_max(tree_of(square))


def test_bombs_are_refused() -> None:
    """A condition that is too much work without any data is refused at load."""
    ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
    source = "true"
    for variable in "abcd":
        source = f"[{', '.join('1' * 60)}].all({variable}, {source})"
    doubled = "['a']"
    for _ in range(20):
        doubled = f"{doubled}.map(x, x + x + x)"
    for bomb in (source, f"size({doubled}) > 0"):
        assert said(bomb) == [("this goes over too many entries, even without data", 1)]
    assert said(f"{ten}.all(a, {ten}.all(b, a + b > 0))") == []


def test_alike() -> None:
    """Conditions that differ in numbers alone are checked once; each still has its own problems, and its own answer."""
    sources = [f"values.level < {number} && 'a1' != 'a{number}'" for number in range(20)]
    assert [said(source) for source in sources] == [[]] * 20
    assert expressions._alike("x < 17 && '17' == \"18\" && 1.5 > 2u") == "x < 0 && '17' == \"18\" && 1.5 > 2u"
    assert [compiled(f"values.level < {number}").holds({"values": {"level": 10}}) for number in (5, 15)] == [
        False,
        True,
    ]
    assert said("values.level < 12345 && foo") == [
        ("unknown name 'foo'; there is firing, rule, time, trigger, units, values", 25)
    ]


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the package is not installed, the message says what to install."""
    monkeypatch.setitem(sys.modules, "cel", None)
    expressions.compiled.cache_clear()
    expressions._checked.cache_clear()
    ((text, _),) = said("time.hour == 22")
    assert "pip install 'flyball-governor[rules]'" in text
    with pytest.raises(ConditionError) as caught:
        compiled("time.hour == 22")
    assert "pip install" in caught.value.remedy
    monkeypatch.undo()
    expressions._checked.cache_clear()
    assert said("time.hour == 22") == []


def test_compiled_once() -> None:
    """The same text is compiled once."""
    assert compiled(EXAMPLE) is compiled(EXAMPLE)


# Whatever is written.

WORDS = st.sampled_from(
    [
        *(*ROOTS, "trigger", *"abx", *"()[]{},.?:!-+*/%<>", "&&", "||", "==", "!=", "in", "true", "null", "1", "2.5"),
        *("3u", "'a'", '"b"', "r'\\d'", "b'x'", "has(", "size(", ".all(x, ", ".map(", ".body", ".hour", ".name"),
        *("//", "\n", "'''", "__class__", "if", "\\", "é", "\0"),
    ]
)
TEXTS = st.one_of(
    st.text(max_size=60), st.lists(WORDS, max_size=15).map(" ".join), st.lists(WORDS, max_size=15).map("".join)
)


@settings(max_examples=400, deadline=None)
@given(TEXTS)
def test_check_bears_everything(source: str) -> None:
    """Any text has problems, each within it, or is compiled by the package."""
    problems = said(source)
    for text, column in problems:
        assert text
        assert 1 <= column <= len(source) + 1
    if not problems:
        compiled(source)


@settings(max_examples=400, deadline=None)
@given(TEXTS)
def test_reads_as_cel_does(source: str) -> None:
    """What the package refuses is refused at load."""
    try:
        cel.compile(source)
    except (ValueError, UnicodeError):
        assert said(source)


PATHS = st.sampled_from(
    [
        *("trigger.kind", "trigger.body", "trigger.body.amount", "trigger.body.items", "rule.name", "rule.priority"),
        *(
            "trigger.body.other",
            "has(trigger.body.other)",
            "has(values.a.b)",
            "has(values.last)",
            "trigger.body['name']",
        ),
        *("firing.attempt", 'units["shop"].state', "units.shop.failures", "units", "values.last", "values.list"),
        *("time.hour", "time.now", "time.unix", "1", "2.5", "'mon'", "true", "null", "[1, 2]", "{'a': 1}", "x"),
    ]
)
CONDITIONS = st.recursive(
    PATHS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["==", "!=", "<", ">=", "+", "-", "*", "in", "&&", "||"]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        inner.map(lambda one: f"!({one})"),
        inner.map(lambda one: f"size({one})"),
        inner.map(lambda one: f"string({one})"),
        st.tuples(inner, st.sampled_from(["all", "exists", "map", "filter"]), inner).map(
            lambda parts: f"({parts[0]}).{parts[1]}(x, {parts[2]})"
        ),
        st.tuples(inner, inner, inner).map(lambda parts: f"(({parts[0]}) ? ({parts[1]}) : ({parts[2]}))"),
    ),
    max_leaves=8,
)


@settings(max_examples=500, deadline=None)
@given(CONDITIONS)
def test_what_passes_has_no_unknown_name(source: str) -> None:
    """What check passes is evaluated, or its data is wrong: no name and no function of it is unknown. The answer
    is what CEL says of the text as it is written."""
    if said(source):
        return
    answer: Any = None
    try:
        answer = cel.compile(source).execute(NAMES)
    except RuntimeError as error:
        unknown = str(error).partition("function: '")[2].partition("'")[0]
        assert unknown in ("", "size", "string"), source  # these are known: what they are given is wrong
    except (TypeError, LookupError, ArithmeticError):
        pass
    try:
        assert compiled(source).holds(NAMES) is answer
    except ConditionError as error:
        text = str(error)
        assert not isinstance(answer, bool), source
        assert "known" not in text, source


@settings(max_examples=500, deadline=None)
@given(CONDITIONS.filter(lambda source: not any(sign in source for sign in ("&&", "||", "?"))))
def test_what_may_be_right_is_not_reported(source: str) -> None:
    """What CEL evaluates to true or false, with nothing left out, has no wrong kinds: it may only never be true."""
    try:
        answer = cel.compile(source).execute({**NAMES, "x": 1})
    except (RuntimeError, TypeError, LookupError, ArithmeticError):
        return
    if isinstance(answer, bool):
        for text, _ in said(source):
            assert "never" in text or "unknown name 'x'" in text or "a list and a map" in text

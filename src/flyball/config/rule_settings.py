"""The settings' section `rules`: what may be said of a rule, and how it becomes a `Rule`.

What is wrong with one rule by itself is found here; what is wrong with rules beside each other, in `rule_fit`.
"""

import functools
import re
import shlex
import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from flyball.config.given import Origin
from flyball.config.rule_shown import rules_shown
from flyball.config.rule_texts import NEEDS, condition_faults, template_faults
from flyball.config.rules import (
    QUEUE_MAX,
    Action,
    Approval,
    Attempts,
    Browse,
    BrowserStep,
    Call,
    Command,
    Cron,
    Deed,
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
    Trigger,
    UnitEvent,
    Wait,
    Webhook,
    When,
)
from flyball.config.section import (
    KEPT_MAX,
    SECONDS_MAX,
    Count,
    Factor,
    Fault,
    Seconds,
    Section,
    contradiction,
    contradictory,
)
from flyball.config.unit_settings import (
    BY_NAME,
    PRIORITY_MAX,
    WORDS_MAX,
    Length,
    Variables,
    Word,
    words_of,
)
from flyball.core.name import IN_WORDS, is_name
from flyball.core.time import HOUR, MILLISECOND, MINUTE, SECOND, Span, format_span, parse_span, span

RULES_MAX: Final = 20_000
"""Rules of one set of settings: twice as many as are measured."""
TRIGGERS_MAX: Final = 32
ACTIONS_MAX: Final = 100
"""Of one rule. A longer list is a program, and should be one."""
STEPS_MAX: Final = 100
"""Steps in a browser of one action."""
RUNS_MAX: Final = 100
"""Runs of one rule at the same time."""
EVERY_MIN: Final = 10 * MILLISECOND
"""A timer faster than this does nothing but burn."""
SECRET_MIN: Final = 16
"""Characters of a webhook's secret: fewer can be guessed."""
ACTION_ID: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
VALUE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
TEMPLATE: Final = re.compile(r"\{\{.*?\}\}", re.DOTALL)
UNFILLED: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_RATE: Final = re.compile(r"\s*(\d{1,7})\s*/\s*(.+)")
_URL: Final = re.compile(r"https?://[^/\s]|\{\{")
_FUNCTION: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

TRIGGER_KINDS: Final = ("every", "cron", "file", "webhook", "event", "command", "startup")
BESIDE_TRIGGER: Final[Mapping[str, tuple[str, ...]]] = {
    "timezone": ("cron",),
    "missed": ("cron",),
    "on": ("file", "event"),
    "secret": ("webhook",),
    "tolerance": ("webhook",),
}
"""Keys that say more about some kinds of triggers."""
CHANGES: Final = ("created", "modified", "deleted")
HAPPENINGS: Final = tuple(When)
DEEDS: Final = ("run", "http", "call", "start", "stop", "notify", "wait", "set", "browser")
BESIDE_DEED: Final[Mapping[str, str]] = {"cwd": "run", "env": "run", "with": "call"}
"""Keys that say more about one kind of deed."""
OR_TEXT: Final = "or_text"
"""In the schema: a text may stand here instead, for what is said most often."""
BROWSER_VERBS: Final = ("goto", "click", "fill", "wait", "extract", "screenshot")


# Values.


def _json(given: Any) -> Any:
    """What JSON can say, and nothing else: YAML knows dates, and JSON does not."""
    match given:
        case dict():
            for value in given.values():
                _json(value)
        case list():
            for value in given:
                _json(value)
        case str() | bool() | int() | float() | None:
            pass
        case _:
            raise ValueError(f"should be what JSON has; put {given} in quotes")
    return given


def _rate(given: object) -> Pace:
    found = _RATE.fullmatch(given) if isinstance(given, str) else None
    try:
        length = parse_span(found[2]) if found else 0
    except ValueError:
        length = 0
    if found is None or not 0 < length <= SECONDS_MAX * SECOND:
        raise ValueError("should be so many runs within so long, such as 10/1m")
    if not 0 < int(found[1]) <= KEPT_MAX:
        raise ValueError(f"should be from 1 to {KEPT_MAX} runs within so long, such as 10/1m")
    return Pace(starts=int(found[1]), window=length)


def _command(given: object) -> object:
    """A list of words, or one line. Templates in a line are parts of words, whatever is in them."""
    if not isinstance(given, str) or "{{" not in given:
        return words_of(given)
    templates = TEMPLATE.findall(given)
    marked = TEMPLATE.sub("\0", given)
    try:
        words = shlex.split(marked)
    except ValueError as error:
        raise ValueError(f"should be a command: {error}") from None
    left = iter(templates)
    return tuple(re.sub("\0", lambda _: next(left), word) for word in words)


def _as_http(given: object) -> object:
    return {"url": given} if isinstance(given, str) else given


def _as_text(given: object) -> object:
    return {"text": given} if isinstance(given, str) else given


def _pause(given: object) -> object:
    """A length of time in a browser, or a selector."""
    return f"{given}s" if isinstance(given, int | float) and not isinstance(given, bool) else given


@functools.lru_cache(maxsize=1_000)
def cron_fault(expression: str) -> str:
    """What is wrong with it. Most rules have one of a few."""
    try:
        from cronsim import CronSim, CronSimError  # noqa: PLC0415 - an extra
    except ImportError:
        return f"needs the package cronsim: {NEEDS}"
    try:
        next(CronSim(expression, datetime(2024, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        said = str(error)[:1].lower() + str(error)[1:]
        return f"{said}; give minute, hour, day of month, month, day of week, such as `0 7 * * mon-fri`"
    except StopIteration:
        return "never comes"
    return ""


@functools.lru_cache(maxsize=1_000)
def _zone_fault(name: str) -> str:
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return f"there is no time zone {name!r}; give one such as Europe/Berlin or UTC (their list needs {NEEDS})"
    return ""


_JSON_SCHEMA: Final = WithJsonSchema({"$comment": "anything that JSON has"})
Json = Annotated[Any, BeforeValidator(_json), _JSON_SCHEMA]
JsonByName = Annotated[
    dict[str, Any],
    BeforeValidator(_json),
    Field(max_length=WORDS_MAX),
    WithJsonSchema({"type": "object", "$comment": "names, each with anything that JSON has"}),
]
CommandLine = Annotated[
    tuple[Word, ...],
    BeforeValidator(_command),
    Field(strict=False, max_length=WORDS_MAX),
    WithJsonSchema(
        {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": ["string", "integer"]}}],
            "$comment": "a command line, or a list of its words",
        }
    ),
]
RateGiven = Annotated[
    Pace | None,
    BeforeValidator(_rate),
    WithJsonSchema(
        {"type": "string", "pattern": r"^\s*\d+\s*/\s*\d", "$comment": "so many runs within so long, such as 10/1m"}
    ),
]


def _address(given: object) -> str:
    """A host and a port."""
    host, _, port = given.rpartition(":") if isinstance(given, str) else ("", "", "")
    if not host or not re.fullmatch(r"\d{1,5}", port) or not 0 < int(port) < 65536 or re.search(r"\s|/", host):
        raise ValueError("should be a host and a port, such as 127.0.0.1:8787")
    return f"{host}:{port}"


Listen = Annotated[
    str,
    BeforeValidator(_address),
    WithJsonSchema({"type": "string", "$comment": "a host and a port, such as 127.0.0.1:8787"}),
]
NONE: Final[Any] = Field(default_factory=dict, json_schema_extra={"default": {}})
"""A mapping without anything in it, made anew: to copy one takes ten times as long."""


# Triggers.


class TriggerSection(Section):
    """What fires a rule: exactly one of every, cron, file, webhook, event, command and startup."""

    every: Length = 0
    """Again and again, so long after the last time."""
    cron: Word = ""
    """At times, as cron has them: minute, hour, day of month, month, day of week."""
    timezone: Word = "UTC"
    """Of the times of `cron`."""
    missed: Literal["skip", "once", "all"] = "once"
    """What becomes of times of `cron` at which no daemon was there."""
    file: Word = ""
    """Files that come, change or go: a path, whose parts may have `*`, `?` and `**`; a relative one is beside this
    file."""
    on: Annotated[
        tuple[
            Literal["created", "modified", "deleted", "started", "done", "failed", "stopped", "held"],
            ...,
        ],
        Field(strict=False, max_length=8),
    ] = ()
    """Which changes of a file (created, modified, deleted; not given: the first two), or what of a unit (started, done,
    failed, stopped, held; not given: done)."""
    webhook: Word = ""
    """A signed request to POST /hooks/NAME at `rule.listen`."""
    secret: Word = ""
    """What the requests are signed with; ${NAME} stands for a variable of flyball's. Never shown."""
    tolerance: Length = 5 * MINUTE
    """How old, or how far ahead, the time of a request may be."""
    event: Word = ""
    """What happens to a unit or another rule; `*` in its name stands for any letters."""
    command: Literal[True] | None = None
    """A person, by `flyball trigger`. Every rule can be fired so; one with this alone, only so."""
    startup: Literal[True] | None = None
    """Whenever a daemon has started."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        given = self.model_fields_set
        kind = _the_one(given, TRIGGER_KINDS, "a trigger")
        for key in given - {kind}:
            if kind not in BESIDE_TRIGGER[key]:
                raise contradiction(key, f"goes with {' or '.join(BESIDE_TRIGGER[key])}, not with {kind}")
        _TRIGGER_CHECKS.get(kind, _nothing)(self)
        return self

    def _every_is_a_time(self) -> None:
        if self.every < EVERY_MIN:
            raise contradiction("every", f"should be at least {format_span(EVERY_MIN)}")

    def _cron_can_be(self) -> None:
        if fault := cron_fault(self.cron):
            raise contradiction("cron", fault)
        if fault := _zone_fault(self.timezone):
            raise contradiction("timezone", fault)

    def _file_is_a_path(self) -> None:
        if not self.file:
            raise contradiction("file", "should be a path such as inbox/*.csv")
        self._on_is_of(CHANGES)

    def _hook_is_signed(self) -> None:
        if not is_name(self.webhook):
            raise contradiction("webhook", f"a name has {IN_WORDS}")
        if "secret" not in self.model_fields_set:
            raise contradiction((), f"a webhook needs a `secret` of at least {SECRET_MIN} characters")
        if len(self.secret) < SECRET_MIN and not UNFILLED.search(self.secret):
            raise contradiction("secret", f"should have at least {SECRET_MIN} characters")
        if not self.tolerance:
            raise contradiction("tolerance", "0 is no time; give one such as 5m")

    def _event_is_of_a_unit(self) -> None:
        if not is_name(self.event.replace("*", "x")):
            raise contradiction("event", f"should be the name of a unit or rule: {IN_WORDS}; `*` for any letters")
        self._on_is_of(HAPPENINGS)

    def _on_is_of(self, known: Sequence[str]) -> None:
        if "on" in self.model_fields_set and not self.on:
            raise contradiction("on", f"is empty; give some of {', '.join(known)}")
        for place, word in enumerate(self.on):
            if word not in known:
                raise contradiction(("on", place), f"should be one of {', '.join(known)}")

    def trigger(self) -> Trigger:
        """The same as a value."""
        given = self.model_fields_set
        if "every" in given:
            return Every(every=self.every)
        if "cron" in given:
            return Cron(expression=self.cron, timezone=self.timezone, missed=Missed(self.missed))
        if "file" in given:
            return FileChange(pattern=self.file, on=self.on) if self.on else FileChange(pattern=self.file)
        if "webhook" in given:
            return Webhook(hook=self.webhook, secret=self.secret, tolerance=self.tolerance)
        if "event" in given:
            on = tuple(When(word) for word in self.on)
            return UnitEvent(unit=self.event, on=on) if on else UnitEvent(unit=self.event)
        return Command() if "command" in given else Startup()


def _nothing(section: object) -> None:
    """There is nothing more to check."""


_TRIGGER_CHECKS: Final = {
    "every": TriggerSection._every_is_a_time,
    "cron": TriggerSection._cron_can_be,
    "file": TriggerSection._file_is_a_path,
    "webhook": TriggerSection._hook_is_signed,
    "event": TriggerSection._event_is_of_a_unit,
}


def _the_one(given: set[str], kinds: Sequence[str], what: str) -> str:
    """The one kind that is given."""
    found = given.intersection(kinds)
    if len(found) == 1:
        return found.pop()
    if not found:
        raise contradiction((), f"says nothing of {what}; give one of {', '.join(kinds)}")
    in_order = [kind for kind in kinds if kind in found]
    raise contradiction(in_order[1], f"{what} is one of {', '.join(kinds)}; this has {' and '.join(in_order)}")


# Actions.


class RetrySection(Section):
    """Attempts of an action within one run; what is not given is as above it: the rule's, then `retry` of all."""

    max_attempts: Count | None = None
    """Attempts in all, the first one included."""
    base_delay_seconds: Seconds | None = None
    """The wait after the first attempt."""
    exponential_base: Factor | None = None
    """Each further wait is so many times longer."""

    def over(self, above: Attempts) -> Attempts:
        """What is given here, the rest from above."""
        return Attempts(
            most=above.most if self.max_attempts is None else self.max_attempts,
            first=above.first if self.base_delay_seconds is None else span(self.base_delay_seconds),
            factor=above.factor if self.exponential_base is None else self.exponential_base,
        )


class HttpSection(Section, populate_by_name=False):
    """A request."""

    url: Word = ""
    """Where to."""
    method: Annotated[
        str, Field(pattern=r"^[A-Z]{1,32}$", json_schema_extra={"$comment": "a method such as GET or POST"})
    ] = "GET"
    """How."""
    headers: Variables = NONE
    """Its headers. ${NAME} stands for a variable of flyball's. Values are never shown."""
    json_: Annotated[Json, Field(alias="json")] = None
    """What is sent as JSON."""
    text: Word = ""
    """What is sent as it is."""
    expect: Annotated[tuple[Annotated[int, Field(ge=100, le=599)], ...], Field(strict=False, max_length=WORDS_MAX)] = ()
    """Statuses that are a success. Not given: those below 400."""

    @model_validator(mode="after")
    def _has_a_url(self) -> Self:
        if not self.url:
            raise contradiction((), "has no `url`")
        if not _URL.match(self.url):
            raise contradiction("url", "should be a URL such as http://127.0.0.1:8080/path")
        if "json_" in self.model_fields_set and self.text:
            raise contradiction("text", "is sent instead of `json`, which is given too: leave one out")
        return self

    def http(self) -> Http:
        """The same as a value."""
        return Http(
            url=self.url,
            method=self.method,
            headers=self.headers,
            json=self.json_,
            text=self.text,
            expect=self.expect,
        )


class FillSection(Section):
    """Text for a field of a page."""

    selector: Word = ""
    """Which field."""
    text: Word = ""
    """What to fill in."""

    @model_validator(mode="after")
    def _has_a_selector(self) -> Self:
        if not self.selector:
            raise contradiction((), "has no `selector`")
        return self


class ExtractSection(Section, populate_by_name=False):
    """Text of a page, by a name."""

    selector: Word = ""
    """Of which element."""
    as_: Annotated[Word, Field(alias="as")] = ""
    """What it is called in the action's result."""

    @model_validator(mode="after")
    def _has_both(self) -> Self:
        if not self.selector:
            raise contradiction((), "has no `selector`")
        if not VALUE_NAME.fullmatch(self.as_):
            raise contradiction("as", "should be a name of letters, digits and _")
        return self


class BrowserStepSection(Section):
    """One step in a browser: exactly one of goto, click, fill, wait, extract and screenshot."""

    goto: Word = ""
    """A URL to go to."""
    click: Word = ""
    """A selector of what to click."""
    fill: FillSection | None = None
    """A field to fill in."""
    wait: Annotated[
        Word,
        BeforeValidator(_pause),
        WithJsonSchema({"type": ["string", "number"], "$comment": "a selector, or a length of time such as 5s"}),
    ] = ""
    """A selector of what has to be there, or a length of time."""
    extract: ExtractSection | None = None
    """A text to take from the page."""
    screenshot: Word = ""
    """A file for a picture of the page; a relative one is beside this file."""
    timeout: Length = 10 * SECOND
    """How long to wait for what is selected."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        verb = _the_one(self.model_fields_set, BROWSER_VERBS, "a step")
        if not getattr(self, verb):
            raise contradiction(verb, "is empty")
        if self.goto and not _URL.match(self.goto):
            raise contradiction("goto", "should be a URL such as https://shop.example/item/7")
        if not self.timeout:
            raise contradiction("timeout", "0 is no time; give one such as 10s")
        return self

    def step(self) -> BrowserStep:
        """The same as a value. A wait without a target lasts as long as its timeout."""
        (verb,) = (key for key in BROWSER_VERBS if key in self.model_fields_set)
        if self.fill is not None:
            return BrowserStep(verb=verb, target=self.fill.selector, text=self.fill.text, timeout=self.timeout)
        if self.extract is not None:
            return BrowserStep(verb=verb, target=self.extract.selector, name=self.extract.as_, timeout=self.timeout)
        if self.wait and (length := _length_in(self.wait)) is not None:
            return BrowserStep(verb=verb, timeout=length)
        return BrowserStep(verb=verb, target=getattr(self, verb), timeout=self.timeout)


def _length_in(text: str) -> Span | None:
    try:
        return parse_span(text)
    except ValueError:
        return None


class ApproveSection(Section):
    """A person has to say yes before the action is done."""

    text: Word = ""
    """What the person is asked."""
    timeout: Length = 1 * HOUR
    """How long there is to answer."""
    default: bool = False
    """What is taken for the answer when nobody gave one in time."""

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if not self.text:
            raise contradiction((), "has no `text` to ask")
        if not self.timeout:
            raise contradiction("timeout", "0 is no time to answer; give one such as 1h")
        return self

    def approval(self) -> Approval:
        """The same as a value."""
        return Approval(text=self.text, timeout=self.timeout, default=self.default)


class DeedSection(Section, populate_by_name=False):
    """One thing to do: exactly one of run, http, call, start, stop, notify, wait, set and browser."""

    run: CommandLine = ()
    """A command: a list of words, or one line, which is taken apart as a shell does; no shell runs it."""
    cwd: Word = ""
    """The folder that `run` runs in; a relative one is beside this file."""
    env: Variables = NONE
    """Variables of `run`, on top of flyball's own. ${NAME} stands for a variable of flyball's. Values are never
    shown."""
    http: Annotated[
        HttpSection | None,
        BeforeValidator(_as_http),
        Field(json_schema_extra={OR_TEXT: True}),
    ] = None
    """A request; or just its URL."""
    call: Word = ""
    """A function in Python: package.module:function."""
    with_: Annotated[JsonByName, Field(alias="with")] = NONE
    """The arguments of `call`, by name."""
    start: Word = ""
    """A unit to start, or a rule to fire."""
    stop: Word = ""
    """A unit to stop."""
    notify: Word = ""
    """A text for people."""
    wait: Length = 0
    """How long to do nothing."""
    set: JsonByName = NONE
    """What to remember, by name, for conditions and templates of all rules."""
    browser: Annotated[tuple[BrowserStepSection, ...], Field(strict=False, max_length=STEPS_MAX)] = ()
    """Steps in a browser. All such actions of one run share one page."""

    @model_validator(mode="after")
    def _is_one_deed(self) -> Self:
        kind = self.kind
        for key, of in BESIDE_DEED.items():
            attribute = "with_" if key == "with" else key
            if of != kind and attribute in self.model_fields_set:
                raise contradiction(key, f"goes with {of}, not with {kind}")
        if not getattr(self, kind):
            raise contradiction(kind, "0 is no time; give one such as 5s" if kind == "wait" else "is empty")
        if kind == "run" and not self.run[0].strip():
            raise contradiction("run", "the first word is the command, and is empty")
        if kind == "call" and not _FUNCTION.fullmatch(self.call):
            raise contradiction(kind, "should be a function such as package.module:function")
        for name in self.set:
            if not VALUE_NAME.fullmatch(name):
                raise contradiction(("set", name), "a name has letters, digits and _, no digit first")
        return self

    @functools.cached_property
    def kind(self) -> str:
        """Which deed it is."""
        return _the_one(self.model_fields_set, DEEDS, "what to do")

    def deed(self, folder: str) -> Deed:
        """The same as a value; `folder` is that of the file that it stands in."""
        match self.kind:
            case "run":
                return Run(command=self.run, cwd=self.cwd, env=self.env)
            case "call":
                return Call(function=self.call, arguments=self.with_, path=folder)
            case "start":
                return StartUnit(unit=self.start)
            case "stop":
                return StopUnit(unit=self.stop)
            case "notify":
                return Notify(text=self.notify)
            case "wait":
                return Wait(length=self.wait)
            case "set":
                return SetValues(values=self.set)
        if self.http is not None:
            return self.http.http()
        return Browse(steps=tuple(step.step() for step in self.browser))


class ActionSection(DeedSection):
    """One step of a rule: exactly one of run, http, call, start, stop, notify, wait, set and browser."""

    id: Word = ""
    """What its result is called: `steps.ID`. Not given: the deed's name, numbered if there are several."""
    retry: RetrySection | None = None
    """Its attempts within one run."""
    timeout: Length = 0
    """How long one attempt may last; not given: as long as the run."""
    approve: Annotated[
        ApproveSection | None,
        BeforeValidator(_as_text),
        Field(json_schema_extra={OR_TEXT: True}),
    ] = None
    """A person has to say yes before it is done; or just the text to ask."""
    undo: DeedSection | None = None
    """What takes it back, for `on_error: rollback`."""

    @model_validator(mode="after")
    def _has_an_id(self) -> Self:
        given = self.model_fields_set
        if "id" in given and not ACTION_ID.fullmatch(self.id):
            raise contradiction("id", "a name has at most 64 letters, digits and _ -, no digit first")
        if "timeout" in given and not self.timeout:
            raise contradiction("timeout", "0 is no time; give one such as 30s")
        return self


class LimitsSection(Section):
    """What bounds a rule."""

    timeout: Length = 0
    """How long one run may last, what it waits for people not counted. Not given: `rule.timeout_seconds`."""
    concurrency: Annotated[int, Field(ge=1, le=RUNS_MAX)] = 1
    """Runs at the same time."""
    rate: RateGiven = None
    """So many runs within so long, such as 10/1m. Not given: as often as it is fired, within `rule.max_runs_per_minute`
    of all rules."""
    queue: Count = QUEUE_MAX
    """Firings that wait. What comes when so many wait is dropped, and told."""


class RuleSection(Section):
    """When something happens, and a condition holds, do this."""

    labels: Annotated[dict[str, Word], Field(max_length=WORDS_MAX)] = NONE
    """Labels such as provider or user: safeguards may count by them."""
    priority: Annotated[int, Field(ge=0, le=PRIORITY_MAX)] = 0
    """When more rules are due than may run, those with a higher one come first."""
    triggers: Annotated[
        tuple[Annotated[TriggerSection, AfterValidator(TriggerSection.trigger)], ...],
        Field(strict=False, max_length=TRIGGERS_MAX),
    ] = ()
    """What fires it. At least one."""
    when: Word = ""
    """The condition, in CEL. Not given: always."""
    actions: Annotated[tuple[ActionSection, ...], Field(strict=False, max_length=ACTIONS_MAX)] = ()
    """What it does, in order. At least one."""
    retry: RetrySection | None = None
    """Attempts of each of its actions within one run."""
    on_error: Literal["stop", "continue", "rollback"] = "stop"
    """What becomes of a run when one of its actions failed for good: it ends, goes on, or what was done is undone."""
    restart: Literal["on-failure", "never"] = "on-failure"
    """Whether what fired it is tried again in another run if one failed, as soon as the safeguards let it."""
    limits: LimitsSection = LimitsSection()

    @model_validator(mode="wrap")
    @classmethod
    def _is_good(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        section = handler(given)
        if faults := [*section._faults(), *section._text_faults(given)]:
            raise contradictory(faults)
        return section

    def _faults(self) -> Iterator[Fault]:
        given = self.model_fields_set
        for key in ("triggers", "actions"):
            if not getattr(self, key):
                yield Fault((key,) if key in given else (), f"has no {key}; give at least one")
        if "runtime" in self.labels:
            yield Fault(("labels", "runtime"), "this label is flyball's own: choose another name")
        if "limits" in given and not self.limits.timeout and "timeout" in self.limits.model_fields_set:
            yield Fault(("limits", "timeout"), "0 is no time; give one such as 5m")
        if len(self.actions) > 1:
            first: dict[str, int] = {}
            for place, key in enumerate(self.ids):
                if first.setdefault(key, place) != place:
                    path = ("actions", place, "id") if self.actions[place].id else ("actions", place)
                    yield Fault(path, f"{key!r} is the name of actions[{first[key]}] already")

    def _text_faults(self, given: Any) -> Iterator[Fault]:
        """What is wrong with its condition and its templates: those where they were given."""
        triggers: Sequence[Trigger] = self.triggers  # type: ignore[assignment]  # each has become a value
        if self.when:
            yield from condition_faults(self.when, triggers)
        if isinstance(given, Mapping):
            steps = tuple(zip(self.ids, (action.kind for action in self.actions), strict=True))
            yield from template_faults(given.get("actions", ()), triggers, steps)

    @functools.cached_property
    def ids(self) -> tuple[str, ...]:
        """What its actions are called."""
        names: list[str] = []
        counts: dict[str, int] = {}
        for action in self.actions:
            if action.id:
                names.append(action.id)
                continue
            kind = action.kind
            counts[kind] = counts.get(kind, 0) + 1
            names.append(kind if counts[kind] == 1 else f"{kind}-{counts[kind]}")
        return tuple(names)

    def rule(self, name: str, *, attempts: Attempts, timeout: Span, folder: str) -> Rule:
        """The same as a value. Attempts and timeout are those of all rules."""
        attempts = self.retry.over(attempts) if self.retry is not None else attempts
        timeout = self.limits.timeout or timeout
        actions = tuple(
            Action(
                id=key,
                deed=action.deed(folder),
                attempts=action.retry.over(attempts) if action.retry is not None else attempts,
                timeout=action.timeout or timeout,
                approve=action.approve.approval() if action.approve is not None else None,
                undo=action.undo.deed(folder) if action.undo is not None else None,
            )
            for key, action in zip(self.ids, self.actions, strict=True)
        )
        return Rule(
            name=name,
            triggers=self.triggers,  # type: ignore[arg-type]  # each has become a value
            when=self.when,
            actions=actions,
            labels=self.labels,
            priority=self.priority,
            on_error=OnError(self.on_error),
            runs_again=self.restart == "on-failure",
            timeout=timeout,
            runs_max=self.limits.concurrency,
            pace=self.limits.rate,
            queue_max=self.limits.queue,
        )


# All of them.


def rules_of(
    sections: "Mapping[str, RuleSection] | Sequence[Rule]",
    attempts: Attempts,
    timeout: Span,
    origin: Origin | None,
) -> tuple[Rule, ...]:
    """The rules of these sections. Attempts and timeout are those of all rules; the origin knows the folder that each
    stands in."""
    if not isinstance(sections, Mapping):
        return tuple(sections)
    return tuple(
        section.rule(name, attempts=attempts, timeout=timeout, folder=origin.folder_of(name) if origin else "")
        for name, section in sections.items()
    )


if TYPE_CHECKING:
    RulesGiven = tuple[Rule, ...]
else:
    # In a file they are sections by name. What all rules have in common is not known here: `settings` makes values of
    # them.
    RulesGiven = Annotated[
        dict[str, RuleSection],
        Field(max_length=RULES_MAX, json_schema_extra=BY_NAME),
        PlainSerializer(rules_shown),
    ]

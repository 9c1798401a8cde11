"""The one registry of verbs, for the command line, the daemon's socket and whatever comes; and how a verb is asked for
in one line of JSON.

A command takes its arguments by name and gives back data that becomes JSON as it is.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from flyball.control import (
    acknowledging,
    answers,
    audit,
    budgets,
    draining,
    failures,
    history,
    log_tail,
    looking,
    orders,
    raising,
    rules,
    settling,
    spending,
)
from flyball.control.alerts import verbs as alerts
from flyball.control.context import (
    SUGGESTIONS_MAX,
    Args,
    Argument,
    Command,
    CommandError,
    Context,
    Right,
    needs_daemon,
)
from flyball.core.decision import Verb
from flyball.errors import FlyballError

__all__ = [
    "COMMANDS",
    "LINE_MAX",
    "PROTOCOL",
    "Command",
    "CommandError",
    "Context",
    "Request",
    "Right",
    "answer",
    "check_version",
    "find",
    "not_ok",
    "ok",
    "parse",
    "perform",
    "serve_line",
]

PROTOCOL: Final = 1
"""Of requests and answers. A request with another version is refused."""
LINE_MAX: Final = 64 * 1024
"""Bytes of a request: a few hundred names of units."""

_UNIT = Argument(name="unit", kind=str, help="The unit's name.", default="")
_RULE = Argument(name="rule", kind=str, help="The rule's name.", default="")
_RULES = Argument(name="rules", kind=list, help="Names of rules.")
_UNITS = Argument(name="units", kind=list, help="Names of units.")
_ALL = Argument(name="all", kind=bool, help="All units.", default=False)
_NOTE = Argument(name="note", kind=str, help="Why, for whoever looks later.")
_USER = Argument(name="user", kind=str, help="All units of this user.")
_DRY = Argument(name="dry_run", kind=bool, help="Only say what would be done.", default=False)
_CHECKPOINT = Argument(name="checkpoint", kind=str, help="The number of a checkpoint.")
_HOST = Argument(name="host", kind=str, help="The host's name.", default="")
_PROBLEM = Argument(
    name="problem", kind=str, help="Its id, the beginning of that, or the unit that has no other.", default=""
)


def _limit(usual: int) -> Argument:
    return Argument(name="limit", kind=int, help="How many at most.", default=usual)


def _command(name: str, right: Right, text: str, run: Callable[[Context, Args], Any], *arguments: Argument) -> Command:
    return Command(name=name, arguments=arguments, right=right, help=text, run=run)


_LIST: Final = (
    _command("status", Right.LOOK, "The fleet and its units.", looking.status, _UNITS),
    _command("unit", Right.LOOK, "All that there is to see of one unit.", looking.unit, _UNIT),
    _command(
        "why",
        Right.LOOK,
        "Why a unit is what it is: every policy's opinion, and what happened last.",
        looking.why,
        _UNIT,
        Argument(name="limit", kind=int, help="How many entries of the journal.", default=10),
    ),
    _command(
        "sessions",
        Right.LOOK,
        "Sessions: pieces of work that can be paused and resumed.",
        looking.sessions,
        Argument(name="user", kind=str, help="Only of this user."),
        Argument(name="status", kind=str, help="Only those that are this, in one word."),
        Argument(name="limit", kind=int, help="Of all that there are, look at so many: those that changed last."),
    ),
    _command("session", Right.LOOK, "All that there is to see of one session.", looking.session, _UNIT, _CHECKPOINT),
    _command(
        "events",
        Right.LOOK,
        "The journal, the newest entries or those after a number.",
        looking.events,
        Argument(name="unit", kind=str, help="Only of this unit."),
        Argument(name="limit", kind=int, help="How many at most.", default=100),
        Argument(name="after", kind=int, help="Entries with a higher number than this."),
        Argument(name="since", kind=float, help="Not before this instant (Unix seconds)."),
        Argument(name="kinds", kind=list, help="Only events of these kinds: exited, held, …"),
    ),
    _command("rules", Right.LOOK, "Rules: what fires each, what waits, how the last run ended.", rules.rules, _RULES),
    _command("queue", Right.LOOK, "What waits in the queue of a rule.", rules.queue, _RULE),
    _command("questions", Right.LOOK, "What units ask people, the oldest first.", answers.questions, _UNITS),
    _command("hosts", Right.LOOK, "Hosts of the fleet: who lives, and runs how much.", looking.hosts),
    _command("state", Right.LOOK, "healthy, degraded or halted, with counts.", looking.state, _UNIT),
    _command(
        "problems",
        Right.LOOK,
        "What waits for a person, the worst and oldest first.",
        acknowledging.problems,
        _limit(acknowledging.PROBLEMS_MAX),
    ),
    _command(
        "alerts",
        Right.LOOK,
        "Alerts that are open, and how the channels are.",
        alerts.alerts,
        Argument(name="test", kind=str, help="The id of a test message: say what became of it.", default=""),
    ),
    _command(
        "failures",
        Right.LOOK,
        "Failures by fingerprint, the worst first.",
        failures.failures,
        _limit(failures.KINDS_MAX),
    ),
    _command(
        "budgets",
        Right.LOOK,
        "Budgets: what was spent, is reserved, and may be spent; what is used up most first.",
        budgets.budgets,
        _limit(budgets.BUDGETS_MAX),
    ),
    _command(
        "spend",
        Right.LOOK,
        "How money was spent over time, by a unit or by all.",
        spending.spend,
        Argument(name="unit", kind=str, help="Only of this unit."),
        Argument(name="hours", kind=int, help="How far back.", default=24),
    ),
    _command(
        "history",
        Right.LOOK,
        "A unit's last exits, where it stands on the ladder of waits, and what happened.",
        history.history,
        _UNIT,
        _limit(60),
    ),
    _command(
        "logs",
        Right.LOOK,
        "The last lines that a unit printed.",
        log_tail.logs,
        _UNIT,
        Argument(name="lines", kind=int, help="How many at most.", default=200),
    ),
    _command(
        "audit",
        Right.LOOK,
        "Who asked for what, through which channel, and what came of it.",
        audit.audit,
        _limit(100),
        Argument(name="after", kind=int, help="Lines with a higher number than this, the oldest first."),
        Argument(name="who", kind=str, help="Only of this person."),
        Argument(name="verb", kind=str, help="Only this verb."),
    ),
    _command(
        "pause",
        Right.OPERATE,
        "End it, and hold it until it is resumed.",
        orders.held(Verb.HOLD, "pause"),
        _UNITS,
        _ALL,
        _USER,
        _NOTE,
        _DRY,
    ),
    _command(
        "resume",
        Right.OPERATE,
        "Let go on what waits for a person.",
        orders.resume,
        _UNITS,
        _ALL,
        _USER,
        _CHECKPOINT,
        _DRY,
    ),
    _command(
        "reset",
        Right.OPERATE,
        "Forget failures, lift a quarantine, close a circuit.",
        orders.reset,
        Argument(name="fingerprint", kind=str, help="The first digits of a failure's fingerprint."),
        Argument(name="breaker", kind=str, help="Close this circuit: provider:x, or fleet."),
        _ALL,
        Argument(name="dry_run", kind=bool, help="Only say what would be forgotten.", default=False),
    ),
    _command(
        "stop",
        Right.OPERATE,
        "End it, and do not start it again.",
        orders.held(Verb.STOP, "stop"),
        _UNITS,
        _ALL,
        _USER,
        _NOTE,
        _DRY,
    ),
    _command("start", Right.OPERATE, "Start it.", orders.started("start"), _UNITS, _ALL),
    _command("restart", Right.OPERATE, "End it, and start it again.", orders.started("restart"), _UNITS, _ALL),
    _command(
        "kill",
        Right.OPERATE,
        "End it at once, without grace; stopped then.",
        orders.held(Verb.STOP, "kill"),
        _UNITS,
        _ALL,
        _USER,
        _NOTE,
        _DRY,
    ),
    Command(
        name="drain",
        arguments=(
            _HOST,
            Argument(name="force", kind=bool, help="Also if no other host takes units.", default=False),
            _DRY,
        ),
        right=Right.OPERATE,
        help="Have a host take no units, and leave those that it has to others.",
        run=draining.drain,
        writes=True,
    ),
    Command(
        name="undrain",
        arguments=(_HOST, _DRY),
        right=Right.OPERATE,
        help="Let a host take units again.",
        run=draining.undrain,
        writes=True,
    ),
    Command(
        name="move",
        arguments=(_UNIT, _HOST, _DRY),
        right=Right.OPERATE,
        help="Have a unit run on another host, and those that run on one host with it.",
        run=draining.move,
        writes=True,
    ),
    _command(
        "answer",
        Right.OPERATE,
        "Answer what a unit asks a person.",
        answers.answer,
        _UNIT,
        Argument(name="answer", kind=str, help="The answer.", default=""),
        Argument(name="id", kind=str, help="The first digits of the question's id."),
        Argument(name="all", kind=bool, help="All that it asks, alike.", default=False),
    ),
    _command(
        "approve",
        Right.OPERATE,
        "Say yes to what a unit asks a person.",
        answers.approve,
        _UNIT,
        Argument(name="id", kind=str, help="The first digits of the question's id."),
    ),
    _command(
        "acknowledge",
        Right.OPERATE,
        "Say that you have seen a problem: it is told of again when it gets worse.",
        acknowledging.acknowledge,
        _PROBLEM,
        _NOTE,
    ),
    _command(
        "test_alert",
        Right.OPERATE,
        "Send a test message by a channel of alerts.",
        alerts.test_alert,
        Argument(name="channel", kind=str, help="The channel's name. Not given: all.", default=""),
    ),
    _command(
        "snooze",
        Right.OPERATE,
        "Hear no more of a problem for a while, unless it gets worse.",
        acknowledging.snooze,
        _PROBLEM,
        Argument(name="seconds", kind=float, help="For how long."),
        Argument(name="until", kind=float, help="Until this instant (Unix seconds)."),
        _NOTE,
    ),
    _command(
        "raise",
        Right.ADMIN,
        "Allow more than a budget says, for its period; and let go on what waits for that.",
        raising.raise_,
        Argument(name="unit", kind=str, help="The budget of this unit: its own that is used up most."),
        Argument(name="user", kind=str, help="The budget of this user."),
        Argument(name="fleet", kind=bool, help="The budget of the fleet.", default=False),
        Argument(name="meter", kind=str, help="Of what: usd, or another meter.", default="usd"),
        Argument(name="more", kind=str, help="How much more: 1.00; other meters than money in whole.", default=""),
        Argument(name="resume", kind=bool, help="What waits because of it goes on.", default=False),
        _NOTE,
        _DRY,
    ),
    _command(
        "trigger",
        Right.OPERATE,
        "Fire a rule.",
        rules.trigger,
        _RULE,
        Argument(name="data", kind=object, help="What it is told: any JSON, `trigger.data` in its templates."),
        Argument(name="unit", kind=str, help="The unit that fires it, if no person does.", default=""),
        Argument(name="run", kind=str, help="In which of its runs.", default=""),
    ),
    _command(
        "watch",
        Right.LOOK,
        "What changed on the board of all units.",
        needs_daemon,
        Argument(name="since", kind=int, help="After this revision. Not given: all there is.", default=-1),
        Argument(name="epoch", kind=str, help="Of which board that revision was.", default=""),
    ),
    _command("ping", Right.LOOK, "Whether a daemon runs here, and which processes.", needs_daemon),
    _command("reload", Right.ADMIN, "Apply what changed in the settings.", needs_daemon),
    _command("down", Right.ADMIN, "End all units, then the daemon.", needs_daemon),
    Command(
        name="login_link",
        arguments=(Argument(name="token", kind=str, help="The name of a token; not given: the first admin's."),),
        right=Right.ADMIN,
        help="An address of the page that logs in once.",
        run=needs_daemon,
        local=True,
    ),
    Command(
        name="token_add",
        arguments=(
            Argument(name="name", kind=str, help="Its name.", default=""),
            Argument(name="role", kind=str, help="look, operate or admin.", default="look"),
        ),
        right=Right.ADMIN,
        help="Make a token for the page and its API.",
        run=needs_daemon,
        local=True,
    ),
    Command(
        name="token_remove",
        arguments=(Argument(name="name", kind=str, help="Its name.", default=""),),
        right=Right.ADMIN,
        help="Remove a token: whoever came in by it is out.",
        run=needs_daemon,
        local=True,
    ),
    _command("forget_firings", Right.OPERATE, "Forget what waits in the queue of a rule.", rules.forget, _RULE),
    _command(
        "settle",
        Right.ADMIN,
        "Say what runs that died really used of what they had reserved.",
        settling.settle,
        _UNIT,
        Argument(name="usd", kind=str, help="Dollars that they spent in all. Nothing said: all that was reserved."),
        Argument(name="used", kind=list, help="What they used of other meters, as METER=AMOUNT."),
        Argument(name="nothing", kind=bool, help="They used nothing.", default=False),
        Argument(name="run", kind=str, help="Only this run, which the caller knows to be dead."),
        Argument(name="dry_run", kind=bool, help="Only say what would be settled.", default=False),
    ),
)
COMMANDS: Final[Mapping[str, Command]] = {command.name: command for command in _LIST}
"""Every verb."""


def find(verb: str) -> Command:
    """The command of that name. CommandError if there is none."""
    if verb not in COMMANDS:
        near = get_close_matches(verb, COMMANDS, n=SUGGESTIONS_MAX)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(COMMANDS)}"
        remedy = "Use one of those; if this one is new, restart the daemon with the new version."
        raise CommandError("unknown_verb", f"no verb {verb!r}; {hint}", remedy=remedy)
    return COMMANDS[verb]


def perform(context: Context, verb: str, args: Args) -> Any:
    """Carry out a verb: the one way, whoever asks and through whatever. What is more than a look is on the audit trail
    then, also if it was refused."""
    command = find(verb)
    if command.right is Right.LOOK or args.get("dry_run") is True:
        return command(context, args)
    try:
        data = command(context, args)
    except FlyballError as error:
        context.trail.failed(context, command, args, error)
        raise
    if not command.writes:
        context.trail.done(context, command, args, data)
    return data


def answer(context: Context, verb: str, args: Args) -> Any:
    """Carry out a verb; its answer as plain data, the very same that a client of the socket gets."""
    return msgspec.json.decode(msgspec.json.encode(perform(context, verb, args)))


# One request a line.


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What comes over the socket."""

    v: int
    id: int
    verb: str
    args: dict[str, Any] = {}


def serve_line(context: Context, line: bytes) -> bytes:
    """Answer one request. Whatever is wrong with it is an answer too; this never raises what a caller could cause."""
    number = 0
    try:
        request = parse(line)
        number = request.id
        check_version(request)
        return ok(number, perform(context, request.verb, request.args))
    except FlyballError as error:
        return not_ok(number, error)


def parse(line: bytes) -> Request:
    """A request. CommandError if it is none."""
    if len(line) > LINE_MAX:
        text = f"a request of {len(line)} bytes; allowed: {LINE_MAX}"
        raise CommandError("bad_request", text, remedy="Name fewer units in one request.")
    try:
        return msgspec.json.decode(line, type=Request)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        remedy = 'A request is one line of JSON: {"v": 1, "id": 1, "verb": "status", "args": {}}.'
        raise CommandError("bad_request", f"not a request: {error}", remedy=remedy) from None


def check_version(request: Request) -> None:
    """CommandError if the request is of another protocol."""
    if request.v != PROTOCOL:
        raise CommandError(
            "bad_version",
            f"a request of protocol {request.v}; this daemon speaks {PROTOCOL}",
            remedy="The command and the daemon are of different versions: restart the daemon.",
        )


def ok(number: int, data: Any) -> bytes:
    """An answer, as a line."""
    return msgspec.json.encode({"id": number, "ok": True, "data": data}) + b"\n"


def not_ok(number: int, error: FlyballError) -> bytes:
    """The answer to what could not be done, as a line."""
    code = error.code if isinstance(error, CommandError) else "failed"
    said = {"code": code, "text": str(error), "remedy": error.remedy}
    return msgspec.json.encode({"id": number, "ok": False, "error": said}) + b"\n"

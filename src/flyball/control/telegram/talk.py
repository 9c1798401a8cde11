"""What people say to the bot, and what follows: from words to a verb, from its answer to words. It knows nothing of
Telegram and nothing of the daemon, only a way to ask.

What concerns everything at once is asked back with the count before it is done.
"""

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from flyball.control.context import Args, Caller, CommandError, Right
from flyball.control.telegram import words
from flyball.control.telegram.buttons import ACTION, action_of
from flyball.control.telegram.messages import Button, Outcome, Pressed, Reply, Said
from flyball.control.telegram.offers import LASTS, OFFER, Offer, Offers
from flyball.control.text import counted
from flyball.core.time import SECOND, parse_span
from flyball.errors import FlyballError

log = logging.getLogger(__name__)

BUTTONS_MAX: Final = 12
"""Buttons under one message, so that its text is still in sight."""
SNOOZED: Final = "1h"
"""How long a problem is snoozed if nobody says."""

Ask = Callable[[Caller, str, Args], Awaitable[Any]]
"""Carries out a verb; CommandError if it cannot be done."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who is listed."""

    who: str
    """What the audit trail calls them."""
    right: Right


@dataclass(frozen=True, slots=True)
class _Turn:
    """One thing that was said: by whom, where, when, and a way to ask for them."""

    talk: "Talk"
    caller: Caller
    sender: int
    chat: int
    now: float

    async def ask(self, verb: str, **args: Any) -> Any:
        """What a verb answers, as plain data."""
        return msgspec.to_builtins(await self.talk.ask(self.caller, verb, args))

    async def do(self, verb: str, **args: Any) -> Reply:
        """Order it, and say what came of it."""
        return Reply(words.done(verb, await self.ask(verb, **args)))

    def button(self, text: str, verb: str, args: Args, *, asks: str = "", with_: str = "") -> Button:
        """A button that orders something, for this person alone."""
        until = self.now + LASTS
        offer = Offer(sender=self.sender, chat=self.chat, verb=verb, args=args, until=until, asks=asks, with_=with_)
        return Button(words.label(text), self.talk.offers.make(offer))

    def confirm(self, question: Sequence[str], yes: str, verb: str, args: Args) -> Reply:
        """Ask back, with a yes and a no of which one can be pressed once."""
        together = secrets.token_hex(8)
        buttons = (self.button(yes, verb, args, with_=together), self.button("No", "", {}, with_=together))
        return Reply(words.message(question), (buttons,))


@dataclass(frozen=True, slots=True)
class _Word:
    """A command: what it needs, what it does."""

    right: Right
    takes: str
    help: str
    run: Callable[[_Turn, str], Awaitable[Reply]]


class Talk:
    """Talks with people who are listed. Whoever calls has looked that they are."""

    def __init__(self, ask: Ask, *, me: str = "") -> None:
        self.ask = ask
        self.me = me
        """The bot's own name: in a group, what is said to another bot is not for this one."""
        self.offers = Offers()

    def is_for_me(self, text: str) -> bool:
        """Whether it is a command, and not for another bot."""
        word = text.strip().partition("\n")[0].partition(" ")[0]
        to = word.partition("@")[2]
        return word.startswith("/") and (not to or to.lower() == self.me.lower())

    async def said(self, said: Said, person: Person, now: float) -> Reply:
        """Answer what somebody wrote."""
        turn = self._turn(person, said.sender, said.chat, now)
        text = said.text.strip()
        if not text.startswith("/"):
            return Reply("I take commands: /help lists them.")
        # A space or a line may follow; and a hyphen, which Telegram does not take for a part of a command.
        head, _, rest = text.replace("\n", " ", 1).partition(" ")
        name = head[1:].partition("@")[0].lower().replace("-", "_")
        word = _WORDS.get(name)
        if word is None:
            near = get_close_matches(name, _WORDS, n=1)
            hint = f"Did you mean /{near[0]}? " if near else ""
            return Reply(f"No command {words.code('/' + name)}. {hint}/help lists them.")
        return await self._answered(word.run(turn, rest.strip()))

    async def pressed(self, pressed: Pressed, person: Person, now: float) -> Outcome:
        """Do what a button orders."""
        turn = self._turn(person, pressed.sender, pressed.chat, now)
        if pressed.data.startswith(OFFER):
            return await self._taken(turn, pressed)
        if pressed.data.startswith(ACTION):
            return await self._acted(turn, pressed)
        return Outcome(toast="This button is of another version. Ask again.")

    async def _taken(self, turn: _Turn, pressed: Pressed) -> Outcome:
        """A button that was offered to one person."""
        offer = self.offers.take(pressed.data, pressed.sender, pressed.chat, turn.now)
        if isinstance(offer, str):
            return Outcome(toast=offer)
        if not offer.verb:
            return Outcome(toast="Nothing was done.", edit=Reply("Nothing was done."))
        if offer.asks:
            return Outcome(replies=(turn.confirm([offer.asks], "Yes", offer.verb, offer.args),))
        reply = await self._answered(turn.do(offer.verb, **offer.args))
        # A question that was answered is gone; a list of things stays.
        return Outcome(edit=reply) if offer.with_ else Outcome(replies=(reply,))

    async def _acted(self, turn: _Turn, pressed: Pressed) -> Outcome:
        """A button under an alert, which anybody may press who may do that."""
        try:
            found = await turn.ask("problems")
        except FlyballError as error:
            return Outcome(toast=words.toast(str(error)))
        action = action_of(pressed.data, found["problems"])
        if action is None:
            return Outcome(toast="That is settled already.")
        verb, args, text = action["verb"], action.get("args") or {}, action.get("label") or action["verb"]
        if action.get("destructive"):
            return Outcome(replies=(turn.confirm([f"{words.bold(text)}?"], "Yes", verb, args),))
        return Outcome(replies=(await self._answered(turn.do(verb, **args)),))

    async def _answered(self, work: Awaitable[Reply]) -> Reply:
        """What is said to it; also where it cannot be done."""
        try:
            return await work
        except FlyballError as error:
            return Reply(words.error(str(error), error.remedy))

    def _turn(self, person: Person, sender: int, chat: int, now: float) -> _Turn:
        return _Turn(self, Caller(person.who, "telegram", person.right), sender, chat, now)


# Commands.


async def _help(turn: _Turn, _rest: str) -> Reply:
    lines = [
        f"/{name} {words.plain(word.takes)}".rstrip() + f": {word.help}"
        for name, word in _WORDS.items()
        if turn.caller.right >= word.right and name != "start"
    ]
    return Reply(words.message([f"You may {turn.caller.right.name.lower()}.", "", *lines]))


async def _status(turn: _Turn, rest: str) -> Reply:
    names = rest.split()
    if len(names) == 1:
        return await _why(turn, rest)
    found = (await turn.ask("problems"))["problems"]
    data = await turn.ask("status", **({"units": names} if names else {}))
    return Reply(words.status(data, found), _problem_buttons(turn, found))


async def _why(turn: _Turn, rest: str) -> Reply:
    unit = _one(rest, "/why NAME")
    return Reply(words.why(await turn.ask("why", unit=unit, limit=words.EVENTS_MAX)))


async def _hosts(turn: _Turn, _rest: str) -> Reply:
    return Reply(words.hosts(await turn.ask("hosts")))


async def _drain(turn: _Turn, rest: str) -> Reply:
    host = _one(rest, "/drain HOST; /hosts lists them")
    would = await turn.ask("drain", host=host, dry_run=True)
    if would["host"]["state"] == "draining":
        return Reply(f"{words.bold(host)} drains already. /undrain {words.plain(host)} ends that.")
    question = [f"Drain {words.bold(host)}? It takes no units any more.", *words.drained(would)]
    return turn.confirm(question, f"Yes, drain {host}", "drain", {"host": host})


async def _undrain(turn: _Turn, rest: str) -> Reply:
    return await turn.do("undrain", host=_one(rest, "/undrain HOST; /hosts lists them"))


async def _problems(turn: _Turn, _rest: str) -> Reply:
    data = await turn.ask("problems")
    found = data["problems"]
    return Reply(words.problems(found, data["at"]), _problem_buttons(turn, found))


def _problem_buttons(turn: _Turn, found: Sequence[Mapping[str, Any]]) -> tuple[tuple[Button, ...], ...]:
    """What can be done about each, a row for a problem; what takes something away asks back."""
    rows, left = [], BUTTONS_MAX
    for one in found[: words.LISTED_MAX]:
        actions = [action for action in one["actions"] if may(turn.caller.right, action["verb"])][:left]
        left -= len(actions)
        row = tuple(
            turn.button(
                f"{action['label']}: {one['unit']}" if one["unit"] else action["label"],
                action["verb"],
                action.get("args") or {},
                asks=f"{words.bold(action['label'])}: {words.plain(one['title'])}?" if action["destructive"] else "",
            )
            for action in actions
        )
        rows += [row] * bool(row)
    return tuple(rows)


def may(right: Right, verb: str) -> bool:
    """Whether somebody of that right may do it, as far as is known here."""
    from flyball.control.commands import COMMANDS  # noqa: PLC0415 - it imports every command

    return verb in COMMANDS and right >= COMMANDS[verb].right


async def _reset(turn: _Turn, rest: str) -> Reply:
    if rest.lower() in ("all", "--all", "-all"):
        return await _reset_all(turn, "")
    return await turn.do("reset", fingerprint=_one(rest, "/reset FINGERPRINT, or /reset_all"))


async def _reset_all(turn: _Turn, _rest: str) -> Reply:
    would = await turn.ask("reset", all=True, dry_run=True)
    units, failures = len(would["cleared"]), sum(len(one["failures"]) for one in would["cleared"])
    if not units:
        return Reply("No failure is remembered: there is nothing to reset.")
    count = f"{counted(failures, 'kind')} of failures of {counted(units, 'unit')}"
    question = [f"Forget {count}, and lift their quarantines?", *words.forgotten(would)]
    return turn.confirm(question, f"Yes, reset {counted(units, 'unit')}", "reset", {"all": True})


async def _pause(turn: _Turn, rest: str) -> Reply:
    if rest.lower() not in ("all", "--all"):
        return await turn.do("pause", units=_some(rest, "/pause NAME, or /pause all"))
    would = await turn.ask("pause", all=True, dry_run=True)
    running = sum(unit["running"] for unit in would["units"])
    question = [f"Pause all {counted(len(would['units']), 'unit')}? {running} of them run now, and are ended."]
    return turn.confirm(question, f"Yes, pause {len(would['units'])}", "pause", {"all": True})


async def _resume(turn: _Turn, rest: str) -> Reply:
    if rest.lower() not in ("all", "--all"):
        return await turn.do("resume", **({"units": rest.split()} if rest else {}))
    would = await turn.ask("resume", all=True, dry_run=True)
    if not would["released"]:
        return Reply("Nothing waits for a person: there is nothing to resume.")
    names = [one["unit"] or "the fleet" for one in would["released"]]
    shown = ", ".join(words.plain(name) for name in names[: words.LISTED_MAX])
    more = f" and {len(names) - words.LISTED_MAX} more" if len(names) > words.LISTED_MAX else ""
    return turn.confirm([f"Resume {shown}{more}?"], f"Yes, resume {len(names)}", "resume", {"all": True})


async def _approve(turn: _Turn, rest: str) -> Reply:
    found = await _asked(turn, rest)
    if len(found) == 1:
        return await turn.do("approve", unit=found[0]["unit"], id=found[0]["id"])
    return await _questions(turn, found)


async def _answer(turn: _Turn, rest: str) -> Reply:
    which, _, text = rest.partition(" ")
    if not which:
        return await _questions(turn, await _asked(turn, ""))
    found = await _asked(turn, which)
    if not text.strip():
        return await _questions(turn, found)
    if len(found) == 1:
        return await turn.do("answer", unit=found[0]["unit"], id=found[0]["id"], answer=text.strip())
    return await _questions(turn, found)


async def _asked(turn: _Turn, which: str) -> list[Mapping[str, Any]]:
    """Open questions: all, or those of a unit, or the one whose id begins so."""
    found: list[Mapping[str, Any]] = (await turn.ask("questions"))["questions"]
    if not which:
        return found
    chosen = [one for one in found if one["unit"] == which] or [one for one in found if one["id"].startswith(which)]
    if not chosen:
        text = f"nobody asks something with the id or name {which!r}"
        raise CommandError("not_found", text, remedy="/answer lists what is asked.")
    return chosen


async def _questions(turn: _Turn, found: Sequence[Mapping[str, Any]]) -> Reply:
    """Questions, with the answers that each takes as buttons."""
    rows, left = [], BUTTONS_MAX
    for one in found[: words.LISTED_MAX]:
        choices = one["choices"][:left] if may(turn.caller.right, "answer") else ()
        left -= len(choices)
        row = tuple(
            turn.button(f"{choice}: {one['unit']}", "answer", {"unit": one["unit"], "id": one["id"], "answer": choice})
            for choice in choices
        )
        rows += [row] * bool(row)
    return Reply(words.questions(found, turn.now), tuple(rows))


async def _acknowledge(turn: _Turn, rest: str) -> Reply:
    return await turn.do("acknowledge", problem=_one(rest, "/ack PROBLEM; /problems lists them"))


async def _snooze(turn: _Turn, rest: str) -> Reply:
    problem, _, how_long = rest.partition(" ")
    _one(problem, f"/snooze PROBLEM {SNOOZED}; /problems lists them")
    try:
        seconds = parse_span(how_long or SNOOZED) / SECOND
    except ValueError as error:
        raise CommandError("bad_argument", str(error), remedy=f"/snooze {problem} {SNOOZED}") from None
    return await turn.do("snooze", problem=problem, seconds=seconds)


def _one(rest: str, usage: str) -> str:
    """The one word that a command takes."""
    found = rest.split()
    if len(found) != 1:
        text = "one name is needed" if not found else f"one name is needed, and not {len(found)}"
        raise CommandError("bad_argument", text, remedy=f"Write {usage}.")
    return found[0]


def _some(rest: str, usage: str) -> list[str]:
    if not rest:
        raise CommandError("bad_argument", "a name is needed", remedy=f"Write {usage}.")
    return rest.split()


_WORDS: Final[Mapping[str, _Word]] = {
    "status": _Word(Right.LOOK, "[NAME]", "how things are", _status),
    "problems": _Word(Right.LOOK, "", "what needs you, with buttons", _problems),
    "why": _Word(Right.LOOK, "NAME", "why a unit is what it is", _why),
    "hosts": _Word(Right.LOOK, "", "the hosts of the fleet", _hosts),
    "drain": _Word(Right.OPERATE, "HOST", "have a host leave its units to others; asks back", _drain),
    "undrain": _Word(Right.OPERATE, "HOST", "let it take units again", _undrain),
    "reset": _Word(Right.OPERATE, "FINGERPRINT", "forget one failure; its first digits are enough", _reset),
    "reset_all": _Word(Right.OPERATE, "", "forget all failures; asks back", _reset_all),
    "resume": _Word(Right.OPERATE, "[NAME|all]", "let go on what waits for a person", _resume),
    "pause": _Word(Right.OPERATE, "NAME|all", "end it and hold it; all asks back", _pause),
    "approve": _Word(Right.OPERATE, "[ID]", "say yes to what is asked", _approve),
    "answer": _Word(Right.OPERATE, "ID TEXT", "answer what is asked", _answer),
    "ack": _Word(Right.OPERATE, "PROBLEM", "you have seen it", _acknowledge),
    "snooze": _Word(Right.OPERATE, "PROBLEM [1h]", "not now", _snooze),
    "help": _Word(Right.LOOK, "", "this list", _help),
    "start": _Word(Right.LOOK, "", "this list", _help),
}

MENU: Final[Sequence[tuple[str, str]]] = [(name, word.help) for name, word in _WORDS.items() if name != "start"]
"""What Telegram offers to complete."""

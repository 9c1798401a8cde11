"""The narrator: entries of the journal in, sentences for people out.

It tells what the journal says, in the order of the journal, and makes nothing up: the numbers are those of the reasons
that were given. What it adds is one plain sentence for each reason code, the first time that it is met.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from flyball.control.past import RULE, RUNTIME
from flyball.control.text import length, one_line, signal_name

GOOD: Final = "healthy"
BUSY: Final = "cooling"
BAD: Final = "failed"
PLAIN: Final = ""
"""How it sounds: words that the command line has colours for."""

EXPLAINED: Final[Mapping[str, str]] = {
    "cooling": "after each failure of the same kind it waits longer: a ladder",
    "restarting": "it failed, and is started again after a short wait",
    "quarantined": "the same failure six times is no accident: it is not tried again until it is put right",
    "flapping": "it is gone soon after every start, whatever the error: it is slowed down",
    "halted": "five flaps in a row: starting it once more would not help, so it waits for a person",
    "idle_timeout": "a program that hangs looks like one that works; this one gave no sign of life, so it was ended",
    "repeating": "the same calls with the same results: the agent is told that it repeats itself",
    "repeated_call": "it did not listen: the call that it repeats is refused",
    "going_in_circles": "it still goes round: the run is ended before it burns money, and waits for a person",
    "cost_budget_exceeded": "the next step would not fit into its budget: refused before the money is spent, not after",
    "ended_by_policy": "started again, it would do the same again: it waits for a person",
    "circuit_open": "several units failed at once, so what they share is down: nobody knocks at its door for a while",
    "circuit_half_open": "a few trial runs find out whether it is back; the others wait for them",
    "waits_to_resume": "it said that it pauses: its checkpoint is kept, and it is resumed from there",
    "max_resume_attempts_exceeded": "work that is resumed for ever is a loop, too: three times, then a person decides",
    "max_steps": "layer 1 of five: so many steps, over all resumes, and not one more",
    "max_rounds": "layer 3 of five: so many rounds, and then it has to come to an end",
    "timeout": "it took longer than it may",
}
"""What is behind a reason, for somebody who meets it for the first time."""

QUIET: Final = frozenset({"ended_done", "already_running", "ended_stopped"})
"""Reasons that say what has been said."""
SAID_BETTER: Final = frozenset({"restarting"})
"""Reasons that are left out where there is another one."""
UNTOLD: Final = frozenset({"login_link"})
"""Orders that only open the page."""
OF_ALL: Final = frozenset({"circuit_open", "circuit_half_open"})
"""Reasons that many units are refused for at once: told of the first."""


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened."""

    at: float
    """Unix seconds."""
    unit: str
    """Nothing: the fleet, or the tour itself."""
    text: str
    tone: str = PLAIN
    explained: str = ""
    """What is behind it; nothing if it was said before."""


class Narrator:
    """Tells of a journal, entry by entry. It remembers what it has told, so that nothing is told twice."""

    def __init__(self) -> None:
        self.given: dict[str, dict[str, Mapping[str, Any]]] = {}
        """Of each unit, the reasons that were given for it so far, by their codes, with the last text of each."""
        self._explained: set[str] = set()
        self._told: dict[str, frozenset[str]] = {}
        """Of each unit, the codes that its last line was about: a refusal for the same is not told once more."""
        self._alive: dict[str, float] = {}
        """Of each unit, when it last gave a sign of life."""
        self._resumes: Counter[str] = Counter()

    def tell(self, entries: Iterable[Mapping[str, Any]]) -> Iterator[Line]:
        """The lines for these, the next entries of the journal."""
        for entry in entries:
            line = self._line(entry)
            if entry["event"] != "exited" and entry["verb"] == "proceed":
                self._alive[entry["unit"]] = entry["at"]
            if line is not None:
                yield line

    def _line(self, entry: Mapping[str, Any]) -> Line | None:
        unit, reasons = entry["unit"], _reasons(entry, self._alive.get(entry["unit"], entry["at"]))
        given = self.given.setdefault(unit, {})
        for reason in reasons:
            if "verb" in reason or reason["code"] not in given:
                given[reason["code"]] = reason
        match entry["event"]:
            case "exited":
                return self._exited(entry, reasons)
            case "resume" if entry["verb"] == "proceed":
                self._told.pop(unit, None)
                self._resumes[unit] += 1
                return Line(entry["at"], unit, f"is resumed from its checkpoint, resume {self._resumes[unit]}")
            case "start" if entry["verb"] == "proceed":
                self._told.pop(unit, None)
            case "step" | "stepped" | "start" | "resume" | "beat":
                return self._refused(entry, reasons)
            case "ordered" if entry["data"]["verb"] not in UNTOLD:
                return Line(entry["at"], unit, one_line(entry["text"]))
        return None

    def _exited(self, entry: Mapping[str, Any], reasons: list[Mapping[str, Any]]) -> Line | None:
        unit, cause = entry["unit"], entry["data"]["cause"]
        before, codes = self._told.get(unit, frozenset()), frozenset(reason["code"] for reason in reasons)
        self._told[unit] = codes
        telling = _telling(reasons)
        follows = "; ".join(_brief(reason["text"]) for reason in telling)
        how = _how(entry, reasons)
        ended = f": {how}" if how and how not in follows else ""
        explained = self._explain(telling)
        if entry["data"].get("pause"):
            return Line(entry["at"], unit, f"pauses{_answer(entry)}: {one_line(follows)}", BUSY, explained)
        if cause == "done":
            return Line(entry["at"], unit, "is done", GOOD)
        if cause == "stopped":
            told = ended if not before & codes else ""
            then = "; no other run follows by itself" if entry["verb"] == "finish" else _answer(entry)
            then += f": {follows}" if entry["verb"] == "hold" else ""
            return Line(entry["at"], unit, one_line(f"is ended{told}{then}"), BAD, explained)
        text = f"fails{ended}{_answer(entry)}" + (f": {follows}" if follows else "")
        return Line(entry["at"], unit, one_line(text), BAD if entry["verb"] == "hold" else BUSY, explained)

    def _refused(self, entry: Mapping[str, Any], reasons: list[Mapping[str, Any]]) -> Line | None:
        """What was decided about a request, or in the midst of a run; once for each set of reasons."""
        unit, telling = entry["unit"], _telling(reasons)
        codes = frozenset(reason["code"] for reason in telling)
        if not codes or codes <= self._told.get(unit, frozenset()) or codes <= self._explained & OF_ALL:
            return None
        self._told[unit] = codes
        does = {"proceed": "is told", "wait": "has to wait", "finish": "has to finish", "stop": "is stopped"}
        tone = {"proceed": BUSY, "wait": BUSY}.get(entry["verb"], BAD)
        text = f"{does.get(entry['verb'], 'is held')}: {'; '.join(reason['text'] for reason in telling)}"
        return Line(entry["at"], unit, one_line(text), tone, self._explain(telling))

    def _explain(self, reasons: Iterable[Mapping[str, Any]]) -> str:
        """What is behind the first of them that is new. The others have their turn."""
        for reason in reasons:
            if reason["code"] in EXPLAINED and reason["code"] not in self._explained:
                self._explained.add(reason["code"])
                return EXPLAINED[reason["code"]]
        return ""


def _reasons(entry: Mapping[str, Any], alive: float) -> list[Mapping[str, Any]]:
    """Those of the decision; and that for which a policy ended the run, if one did."""
    found: list[Mapping[str, Any]] = list(entry["reasons"])
    data = entry["data"]
    if entry["event"] == "exited" and data.get("policy"):
        silent = f"no sign of life for {length(round(entry['at'] - alive, 1))}"
        text = silent if data["error"] == "idle_timeout" else f"{data['error']}, says {data['policy']}"
        found.insert(0, {"policy": data["policy"], "code": data["error"], "text": text})
    return found


def _telling(reasons: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The reasons that made the decision what it is; of those that say the same in other words, one."""
    strictest = max((reason.get("verb", 0) for reason in reasons), default=0)
    found = [one for one in reasons if one.get("verb", strictest) == strictest and one["code"] not in QUIET]
    others = [one for one in found if one["code"] not in SAID_BETTER]
    return others or found


def _brief(text: str) -> str:
    """Without how long it waits, where that is said before."""
    return text.rpartition(": waits ")[0] or text


def _answer(entry: Mapping[str, Any]) -> str:
    match entry["verb"]:
        case "wait" if entry["until"] is not None:
            return f" → waits {length(entry['until'] - entry['at'])}"
        case "hold":
            return " → held"
    return ""


def _how(entry: Mapping[str, Any], reasons: list[Mapping[str, Any]]) -> str:
    """How a run ended, in a few words."""
    data = entry["data"]
    if data.get("policy"):
        return str(reasons[0]["text"])
    if data.get("labels", {}).get(RUNTIME) == RULE and data.get("detail"):
        return str(data["detail"].splitlines()[0])
    if data.get("error"):
        return str(data["error"])
    return signal_name(data["signal"]) if data.get("signal") is not None else f"exit {data.get('code')}"

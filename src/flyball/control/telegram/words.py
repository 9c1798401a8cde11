"""How the bot reads: short lines for a phone, in the few tags of HTML that Telegram knows. Data in, text out.

Whatever comes from outside is escaped, and cut before it is: so no tag is ever cut in two, and none is made up.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

from flyball.control.text import ago, clock_time, counted, exit_text, length, one_line, short, times

TEXT_MAX: Final = 4096
"""Of one message, in units of UTF-16, by Telegram's rule. Tags count here too, which is on the safe side."""
PART_MAX: Final = 300
"""Characters of one text from outside: ten lines on a phone."""
LISTED_MAX: Final = 10
"""Units, problems or questions in one message."""
EVENTS_MAX: Final = 6
"""Entries of the journal in one message."""
REASONS_MAX: Final = 5
LABEL_MAX: Final = 40
"""Characters on a button: more does not fit on a phone."""
TOAST_MAX: Final = 180
"""Characters of what is shown for a moment; Telegram takes 200."""

Data = Mapping[str, Any]


def plain(text: object, most: int = PART_MAX) -> str:
    """A text from outside: one line, not too long, and nothing in it means anything."""
    said = one_line(str(text)).strip()
    return escape(said if len(said) <= most else said[: most - 1] + "…", quote=False)


def bold(text: object) -> str:
    return f"<b>{plain(text)}</b>"


def code(text: object) -> str:
    return f"<code>{plain(text)}</code>"


def message(lines: Iterable[str]) -> str:
    """The lines as one message; those that do not fit any more are counted."""
    kept: list[str] = []
    left = TEXT_MAX - len("… 100000 more lines")
    all_lines = list(lines)
    for line in all_lines:
        left -= _units(line) + 1
        if left < 0:
            return "\n".join([*kept, f"… {counted(len(all_lines) - len(kept), 'more line')}"])
        kept.append(line)
    return "\n".join(kept)


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def label(text: str) -> str:
    """What stands on a button. Telegram takes it as it is."""
    said = one_line(text).strip() or "?"
    return said if len(said) <= LABEL_MAX else said[: LABEL_MAX - 1] + "…"


def toast(text: str) -> str:
    """What is shown for a moment. Telegram takes it as it is."""
    said = one_line(text)
    return said if len(said) <= TOAST_MAX else said[: TOAST_MAX - 1] + "…"


def error(text: str, remedy: str) -> str:
    """It was not done, and why."""
    return message([f"Not done: {plain(text)}", *([f"<i>{plain(remedy)}</i>"] if remedy else [])])


# What there is to see.


def status(data: Data, problems: Sequence[Data]) -> str:
    """The fleet in a few lines, and what needs a person."""
    fleet, units = data["fleet"], data["units"]
    runs = f"{fleet['running']} of {counted(fleet['units'], 'unit')} run"
    lost = [host["name"] for host in fleet["hosts"] if host["state"] == "lost"]
    on = f" on {counted(len(fleet['hosts']) - len(lost), 'host')}" if fleet["hosts"] else ""
    lines = [f"{bold(fleet['state'])}: {runs}{on}"]
    if lost:
        lines.append(f"<b>Lost:</b> {', '.join(plain(name) for name in lost[:LISTED_MAX])}: /hosts")
    if fleet["counts"]:
        lines.append(", ".join(f"{count} {plain(word)}" for word, count in fleet["counts"].items()))
    lines += [f"• {plain(reason['text'])}" for reason in fleet["reasons"][:REASONS_MAX]]
    lines += [f"• circuit {plain(one['name'])} is {plain(one['state'])}" for one in fleet["breakers"][:REASONS_MAX]]
    if data["trouble"]:
        lines.append(f"<b>Trouble:</b> {plain(data['trouble'])}")
    held = [unit for unit in units if unit["held"]]
    for unit in held[:LISTED_MAX]:
        lines += ["", *_held(unit)]
    if len(held) > LISTED_MAX:
        lines += ["", f"… and {len(held) - LISTED_MAX} more that are held"]
    needs = sum(not (one["acknowledged"] or one.get("snoozed_until")) for one in problems)
    lines += ["", f"{counted(needs, 'problem')}: /problems" if needs else "Nothing needs you."]
    return message(lines)


def _held(unit: Data) -> list[str]:
    """A unit that waits for a person."""
    lines = [f"{bold(unit['name'])} {plain(unit['state'])}"]
    lines += [
        f"{plain(one['error'] or 'failure')}, {times(one['count'])} ({code(short(one['fingerprint']))})"
        for one in unit["failures"]
        if one["quarantined"]
    ] or [plain(reason["text"]) for reason in unit["reasons"][:1]]
    return lines


def why(data: Data) -> str:
    """Why a unit is what it is."""
    unit, now = data["unit"], data["at"]
    since = f" for {ago(unit['since'], now)}" if unit["since"] is not None else ""
    on = f", on {plain(unit['host'])}" if unit["host"] else ""
    lines = [f"{bold(unit['name'])} is {plain(unit['state'])}{since}{on}"]
    if unit["until"] is not None:
        lines.append(f"goes on in {length(unit['until'] - now)}")
    if data["says"]:
        lines.append(f"says: {plain(data['says'])}")
    for reason in unit["reasons"][:REASONS_MAX]:
        lines.append(f"• {plain(reason['text'])}")
        if reason["remedy"]:
            lines.append(f"  <i>{plain(reason['remedy'])}</i>")
    for one in unit["failures"][:REASONS_MAX]:
        lines.append(f"{code(short(one['fingerprint']))} {plain(one['error'] or 'failure')}, {times(one['count'])}")
    last = unit["last_exit"]
    if last is not None:
        how = exit_text(last["cause"], last["error"], last["code"], last["signal"])
        lines.append(f"last exit {ago(last['at'], now)} ago: {plain(how)}")
    lines += [f"asks: {plain(one['text'])}" for one in unit["questions"][:REASONS_MAX]]
    if data["events"]:
        lines.append("")
    lines += [f"{clock_time(one['at'], now)} {plain(one['text'])}" for one in data["events"][-EVENTS_MAX:]]
    return message(lines)


def hosts(data: Data) -> str:
    """The hosts of the fleet, and what each runs."""
    found, now = data["hosts"], data["at"]
    if not found:
        return (
            "There are no hosts: they share a PostgreSQL (`store: postgresql://…`), and one runs where a daemon does."
        )
    lines = [bold(counted(len(found), "host"))]
    for one in found[:LISTED_MAX]:
        odd = ", other settings" if one["differs"] else ""
        here = " (here)" if one["here"] else ""
        runs = f"{'had' if one['state'] == 'lost' else 'runs'} {counted(one['units'], 'unit')}"
        since = f" for {ago(one['since'], now)}" if one["since"] is not None else ""
        lines.append(f"{bold(one['name'])}{here} {plain(one['state'])}{since}: {runs}{odd}")
    if len(found) > LISTED_MAX:
        lines.append(f"… and {len(found) - LISTED_MAX} more")
    for one in data["problems"][:REASONS_MAX]:
        lines += ["", f"{bold(one['title'])}: {plain(one['text'])}"]
    return message(lines)


def drained(data: Data) -> list[str]:
    """What draining a host would do to its units."""
    lines = []
    for names, what in ((data["moves"], "go to others"), (data["waits"], "would run nowhere")):
        if names:
            more = f" and {len(names) - LISTED_MAX} more" if len(names) > LISTED_MAX else ""
            lines.append(f"{what}: {', '.join(plain(name) for name in names[:LISTED_MAX])}{more}")
    return lines


def problems(found: Sequence[Data], now: float) -> str:
    """What needs a person, the worst first."""
    if not found:
        return "Nothing needs you."
    lines = [bold(counted(len(found), "problem"))]
    for place, one in enumerate(found[:LISTED_MAX], 1):
        seen = " (seen)" if one["acknowledged"] else " (snoozed)" if one.get("snoozed_until") else ""
        lines += ["", f"{place}. {bold(one['title'])}{seen}"]
        lines += [plain(one["text"])] * bool(one["text"])
        lines.append(f"for {ago(one['since'], now)}, {times(max(1, one['count']))}")
        lines.append(code(one["id"]))
    if len(found) > LISTED_MAX:
        lines += ["", f"… and {len(found) - LISTED_MAX} more"]
    return message(lines)


def questions(found: Sequence[Data], now: float) -> str:
    """What units ask people."""
    if not found:
        return "Nobody asks anything."
    lines = [bold(counted(len(found), "question"))]
    for one in found[:LISTED_MAX]:
        lines += ["", f"{bold(one['unit'])} asks: {plain(one['text'])}"]
        if one["choices"]:
            lines.append("one of: " + ", ".join(plain(choice) for choice in one["choices"]))
        if one["until"] is not None:
            lines.append(f"for {length(one['until'] - now)} more")
        lines.append(f"{code(one['id'])}")
    if len(found) > LISTED_MAX:
        lines += ["", f"… and {len(found) - LISTED_MAX} more"]
    return message(lines)


# What was done.


def done(verb: str, data: Any) -> str:
    """What came of an order."""
    if not isinstance(data, Mapping):
        return "Done."
    lines = [f"Done: {plain(verb.replace('_', ' '))}."]
    if data.get("effect"):
        lines.append(plain(data["effect"]))
    lines += forgotten(data)
    lines += [f"circuit {plain(one['name'])} is closed" for one in data.get("closed") or ()]
    if data.get("answer") is not None:
        lines.append(f"answered: {plain(data['answer'])}")
    if verb == "resume" and not data.get("released", True):
        lines[0] = "There was nothing to resume."
    units = data.get("units")
    if isinstance(units, Sequence) and not isinstance(units, str):
        lines += _standing(units)
    elif isinstance(data.get("unit"), Mapping):
        lines += _standing([data["unit"]])
    return message(lines)


def forgotten(data: Data) -> list[str]:
    """Failures that a reset forgets."""
    cleared = data.get("cleared") or ()
    lines = [
        f"{bold(one['unit'])}: "
        + (
            ", ".join(f"{plain(kind['error'] or 'failure')} {times(kind['count'])}" for kind in one["failures"][:3])
            or "-"
        )
        for one in cleared[:LISTED_MAX]
    ]
    return [*lines, f"… and {len(cleared) - LISTED_MAX} more"] if len(cleared) > LISTED_MAX else lines


def _standing(units: Sequence[Data]) -> list[str]:
    lines = [f"{bold(one['name'])} is {plain(one['state'])}" for one in units[:LISTED_MAX]]
    return [*lines, f"… and {len(units) - LISTED_MAX} more"] if len(units) > LISTED_MAX else lines


# What was not.


def dropped(said: Sequence[tuple[str, float]], after: float) -> str:
    """What came too late."""
    lines = [f"Not done, because it came more than {length(after)} late or while I was away:"]
    lines += [
        f"• {code(text)}" + (f", {length(seconds)} ago" if seconds >= 0 else "") for text, seconds in said[:LISTED_MAX]
    ]
    if len(said) > LISTED_MAX:
        lines.append(f"… and {len(said) - LISTED_MAX} more")
    return message([*lines, "Look at /status, and send again what is still meant."])


def interrupted(doing: str) -> str:
    """What a restart came in between of."""
    return message(
        [
            f"I was restarted in the middle of {code(doing)}. It may have been done, or not; I do not do it again.",
            "Look at /status before you repeat it.",
        ]
    )

"""What `flyball top` shows, and what keys do to it: rows in, lines out. No terminal, no daemon, no clock.

Only what is on the screen is made into text, so ten thousand units cost no more than thirty; they are put in order when
something changed, and not for each picture.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import click

from flyball.cli.show import COLOURS
from flyball.control.text import ago, counted, length, one_line
from flyball.core.amounts import MONEY, amount_text

PROBLEMS_SHOWN: Final = 5
"""Problems above the list: how many there are is said besides."""
NAME_MAX: Final = 32
"""Columns of a unit's name."""
FILTER_MAX: Final = 60
"""Characters of a filter."""
HEAD: Final = ("STATE", "SINCE", "RESTARTS", "SPENT", "WHY")
HOST_AT: Final = 2
"""Where the column of hosts is, where there are any."""
KEYS: Final = "j/k move  / filter  s sort  Enter why  p pause  r resume  R reset  q quit"
WORST: Final = ("failed", "quarantined", "halted", "paused", "cooling", "degraded")
"""What a unit may be, the worst first; all else comes after."""

Row = Mapping[str, Any]


def _by_need(row: Row) -> tuple[Any, ...]:
    place = WORST.index(row["state"]) if row["state"] in WORST else len(WORST)
    return (not row["problem"], place, row["name"])


SORTS: Final[Mapping[str, Callable[[Row], Any]]] = {
    "need": _by_need,
    "name": lambda row: row["name"],
    "restarts": lambda row: (-row["restarts"], -row["restarts_total"], row["name"]),
    "spent": lambda row: (-row["spent"], row["name"]),
    "since": lambda row: (-(row["since"] or 0.0), row["name"]),
}


@dataclass(frozen=True, slots=True)
class Order:
    """What a key wants done: a verb, its arguments, and what has to be confirmed first (nothing: it is done)."""

    verb: str
    args: Mapping[str, Any]
    asks: str = ""


@dataclass(slots=True)
class Top:
    """All that is seen, and where in it somebody is."""

    rows: dict[str, Row] = field(default_factory=dict)
    problems: Sequence[Mapping[str, Any]] = ()
    totals: Mapping[str, int] = field(default_factory=dict)
    fleet: Mapping[str, Any] = field(default_factory=dict)
    epoch: str = ""
    rev: int = -1
    at: float = 0.0
    """The present, by which ages are counted."""
    sort: str = "need"
    filter: str = ""
    typing: bool = False
    """The filter is being typed."""
    chosen: str = ""
    """The unit that keys are about."""
    first: int = 0
    """The place of the uppermost row."""
    text: Sequence[str] | None = None
    """Shown instead of the list: why a unit is what it is."""
    text_first: int = 0
    asking: Order | None = None
    """Waits for a yes."""
    note: str = ""
    """What came of the last order, or what is wrong."""
    gone: str = ""
    """Why nothing that is shown can be trusted; then nothing can be ordered."""
    page: int = 10
    """Rows of a page, as of the last picture."""
    _listed: list[str] | None = None

    # What there is.

    def take(self, frame: Mapping[str, Any]) -> None:
        """What changed."""
        if frame["full"]:
            self.rows = {}
        for row in frame["units"]:
            self.rows[row["name"]] = row
        for name in frame["gone"]:
            self.rows.pop(name, None)
        if frame["full"] or frame["units"] or frame["gone"]:
            self._listed = None
        self.fleet = frame["fleet"] or self.fleet
        self.totals = frame["totals"] if frame["totals"] is not None else self.totals
        self.problems = frame["problems"] if frame["problems"] is not None else self.problems
        self.epoch, self.rev, self.gone = frame["epoch"], frame["rev"], ""
        self.at = max(self.at, frame["at"])

    @property
    def listed(self) -> list[str]:
        """The units that are listed, in their order."""
        if self._listed is None:
            wanted = self.filter.lower()
            rows = [row for row in self.rows.values() if not wanted or _matches(row, wanted)]
            self._listed = [row["name"] for row in sorted(rows, key=SORTS[self.sort])]
        return self._listed

    # Keys.

    def key(self, key: str) -> Order | None:
        """What a key does; what it wants done, if anything."""
        if self.asking is not None:
            order, self.asking = self.asking, None
            self.note = "" if key == "y" else "Nothing was done."
            return Order(order.verb, order.args) if key == "y" else None
        if self.text is not None:
            self._key_in_text(key)
            return None
        if self.typing:
            self._key_in_filter(key)
            return None
        self.note = ""
        return self._key_in_list(key)

    def _key_in_text(self, key: str) -> None:
        last = max(0, len(self.text or ()) - self.page)
        steps = {"j": 1, "down": 1, "k": -1, "up": -1, "pagedown": self.page, "pageup": -self.page, " ": self.page}
        if key in ("escape", "q", "enter"):
            self.text, self.text_first = None, 0
        elif key in steps:
            self.text_first = min(max(0, self.text_first + steps[key]), last)

    def _key_in_filter(self, key: str) -> None:
        if key in ("enter", "escape"):
            self.typing = False
            if key == "escape":
                self._use_filter("")
        elif key == "backspace":
            self._use_filter(self.filter[:-1])
        elif len(key) == 1 and key.isprintable():
            self._use_filter((self.filter + key)[:FILTER_MAX])

    def _use_filter(self, text: str) -> None:
        self.filter, self._listed, self.first = text, None, 0

    def _key_in_list(self, key: str) -> Order | None:
        steps = {"j": 1, "down": 1, "k": -1, "up": -1, "pagedown": self.page, "pageup": -self.page, " ": self.page}
        steps |= {"g": -len(self.rows), "home": -len(self.rows), "G": len(self.rows), "end": len(self.rows)}
        if key in steps:
            self._move(steps[key])
        elif key == "/":
            self.typing = True
        elif key == "escape":
            self._use_filter("")
        elif key == "s":
            names = list(SORTS)
            self.sort, self._listed = names[(names.index(self.sort) + 1) % len(names)], None
        elif key in ("enter", "p", "r", "R"):
            return self._order(key)
        return None

    def _move(self, by: int) -> None:
        names = self.listed
        if names:
            self.chosen = names[min(max(0, self._place(names) + by), len(names) - 1)]

    def _place(self, names: Sequence[str]) -> int:
        """Where the unit is that was chosen; if it is not listed, the first."""
        return names.index(self.chosen) if self.chosen in names else 0

    def _order(self, key: str) -> Order | None:
        names = self.listed
        if not names:
            self.note = "There is no unit to do that with."
            return None
        name = names[self._place(names)]
        if key == "enter":
            return Order("why", {"unit": name})
        if self.gone:
            self.note = "Nothing can be ordered now."
            return None
        if key == "r":
            return Order("resume", {"units": [name]})
        if key == "p":
            self.asking = Order("pause", {"units": [name]}, f"Pause {name}?")
            return None
        found = [one for one in self.problems if one["unit"] == name and one["fingerprint"]]
        if not found:
            self.note = f"{name} has no failure that is quarantined."
            return None
        fingerprint = found[0]["fingerprint"]
        asks = f"Forget {one_line(found[0]['error']) or 'the failure'} ({fingerprint[:8]}), also of other units?"
        self.asking = Order("reset", {"fingerprint": fingerprint}, asks)
        return None

    # The picture.

    def picture(self, rows: int, columns: int, *, colours: bool) -> list[str]:
        """The lines of a screen of that size."""
        paint = click.style if colours else _plain
        head = self._head(columns, paint)
        head = head[: max(1, rows - 3)]
        room = max(1, rows - len(head) - 1)
        body = self._text(room, columns) if self.text is not None else self._list(room, columns, paint)
        return [*head, *body, *[""] * (room - len(body)), self._foot(columns, paint)][:rows]

    def _head(self, columns: int, paint: Callable[..., str]) -> list[str]:
        """The fleet, and what needs a person."""
        totals = self.totals
        state = str(self.fleet.get("state", "?"))
        parts = [f"{totals.get('running', 0)} of {counted(totals.get('units', 0), 'unit')} run"]
        parts += [f"{totals[word]} {word}" for word in WORST if totals.get(word)]
        if totals.get("spent_day"):
            limit = f" of {amount_text(MONEY, totals['limit_day'])}" if totals.get("limit_day") else ""
            parts.append(f"{amount_text(MONEY, totals['spent_day'])}{limit} today")
        line, start = _cut(f"Fleet {state}: {', '.join(parts)}", columns), len("Fleet ")
        word = line[start : start + len(state)]
        lines = [line[:start] + paint(word, fg=COLOURS.get(state)) + line[start + len(word) :]]
        if self.gone:
            lines.append(paint(_cut(self.gone, columns), fg="red", bold=True))
        for one in self.problems[:PROBLEMS_SHOWN]:
            seen = " (seen)" if one["acknowledged"] else " (snoozed)" if one["snoozed_until"] else ""
            since = f" for {ago(one['since'], self.at)}" if one["since"] is not None else ""
            text = _cut(f"! {one_line(one['title'])}{since}{seen}: {one_line(one['text'])}", columns)
            lines.append(text if seen else paint(text, fg="red" if one["severity"] == "critical" else "yellow"))
        more = len(self.problems) - PROBLEMS_SHOWN
        lines += [_cut(f"  and {counted(more, 'more problem')}", columns)] if more > 0 else []
        return [*lines, "" if self.problems else paint(_cut("Nothing needs you.", columns), fg="green")]

    def _list(self, room: int, columns: int, paint: Callable[..., str]) -> list[str]:
        names = self.listed
        self.page = max(1, room - 1)
        place = self._place(names)
        self.first = min(max(self.first, place - self.page + 1, 0), place, max(0, len(names) - 1))
        shown = [self.rows[name] for name in names[self.first : self.first + self.page]]
        widths = self._widths(shown)
        lines = [paint(_cut(_joined(self._columns, widths), columns), bold=True)]
        for offset, row in enumerate(shown):
            line = _cut(_joined(self._cells(row), widths), columns)
            if self.first + offset == place:
                lines.append(paint(f"{line:<{columns}}", reverse=True))
                continue
            start = widths[0] + 2
            word = line[start : start + len(row["state"])]
            colour = COLOURS.get(row["state"])
            often = {"bold": True} if row["often"] else {}
            lines.append(line[:start] + paint(word, fg=colour, **often) + line[start + len(word) :])
        return lines if shown else [lines[0], _cut("No unit is like that." if self.filter else "No unit yet.", columns)]

    @property
    def _columns(self) -> tuple[str, ...]:
        return self._with_host(("UNIT", *HEAD), "HOST")

    def _with_host(self, cells: tuple[str, ...], host: str) -> tuple[str, ...]:
        """With the cell of the host, where there are hosts."""
        return (*cells[:HOST_AT], host, *cells[HOST_AT:]) if self.fleet.get("hosts") else cells

    def _cells(self, row: Row) -> tuple[str, ...]:
        restarts = f"{row['restarts']}/h" if row["restarts"] else "-"
        limit = f" of {amount_text(MONEY, row['limit'])}" if row["limit"] else ""
        spent = amount_text(MONEY, row["spent"]) + limit if row["spent"] or row["limit"] else "-"
        until = f" (in {length(row['until'] - self.at)})" if row["until"] is not None and row["until"] > self.at else ""
        asks = f"asks {counted(row['questions'], 'question')}; " if row["questions"] else ""
        waits = f"{row['waiting']} in its queue; " if row["waiting"] else ""
        cells = (
            row["name"],
            row["state"],
            ago(row["since"], self.at),
            restarts + (" often" if row["often"] else ""),
            spent,
            f"{asks}{waits}{row['reason'] or row['error']}{until}",
        )
        return self._with_host(cells, row["host"] or "-")

    def _widths(self, shown: Sequence[Row]) -> list[int]:
        cells = [self._columns, *(self._cells(row) for row in shown)]
        widths = [max(len(one_line(row[place])) for row in cells) for place in range(len(self._columns) - 1)]
        return [min(widths[0], NAME_MAX), *widths[1:]]

    def _text(self, room: int, columns: int) -> list[str]:
        self.page = room
        return [_cut(one_line(line), columns) for line in (self.text or ())[self.text_first : self.text_first + room]]

    def _foot(self, columns: int, paint: Callable[..., str]) -> str:
        if self.asking is not None:
            return paint(_cut(f"{one_line(self.asking.asks)} y/n", columns), bold=True)
        if self.typing:
            return _cut(f"/{self.filter}_", columns)
        if self.note:
            return _cut(one_line(self.note), columns)
        if self.text is not None:
            return paint(_cut("j/k move  q back", columns), dim=True)
        where = f"{len(self.listed)} by {self.sort}" + (f" like {self.filter!r}" if self.filter else "")
        return paint(_cut(f"{where}  |  {KEYS}", columns), dim=True)


def _matches(row: Row, wanted: str) -> bool:
    return any(wanted in str(row[key]).lower() for key in ("name", "state", "kind", "user", "host", "reason", "error"))


def _joined(cells: Sequence[str], widths: Sequence[int]) -> str:
    fitted = [f"{_cut(one_line(cell), width):<{width}}" for cell, width in zip(cells, widths, strict=False)]
    return "  ".join([*fitted, one_line(cells[-1])]).rstrip()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def _plain(text: str, **_: object) -> str:
    return text

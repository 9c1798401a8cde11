"""The settings file that is written: everything in it is a comment, so whatever was found, it is a good file.

A line of words begins with `# `; a line of settings with `#` alone, or with blanks after it, as it is indented. Without
that sign the settings are good, too: a test takes it away.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from flyball.core.name import is_name
from flyball.starting.found import Found, Offer

SCHEMA: Final = "flyball.schema.json"
OFFERS_MAX: Final = 40
"""Units that are offered. Of more, people know better which they want."""
NOTE_MAX: Final = 110
"""Characters of a line of words."""

HEAD: Final = """\
# yaml-language-server: $schema={schema}
# Settings of flyball, which keeps agents and automations from running away. An empty file is a good one: every
# safeguard is on, with its defaults. Take away the # before a line to use it; `flyball check` says whether all is well,
# `flyball config --origin` which values are in force. All keys: `flyball schema`, or an editor (see the first line).
"""

UNITS: Final = """
# What `flyball up` runs, each under all safeguards. `flyball run -- COMMAND` needs no settings.
#units:
"""

EXAMPLE: Final = """\
#  my-agent:
#    command: [python3, agent.py]
#    continue_args: [--continue]  # added after a failure, so that it goes on where it was
#    deadline: 2h                 # how long one run may last
#    idle: 15m                    # how long it may be silent
#    budget: 2.00                 # what one run may report as spent
"""

TAIL: Final = """
# Money: what each unit may spend in all its runs, a day. It counts what units report, as the page on budgets says.
#budget:
#  per_unit: 10.00
#  period: day

# Be told when something needs you: ntfy, email, webhook, telegram, apprise. `flyball alerts test` tries them.
#alerts:
#  channels:
#    phone: {{type: ntfy, topic: {topic}}}

# How often, how long: the numbers that people change first, with their defaults. `flyball simulate` shows what they do.
#quarantine:
#  max_failures_before_quarantine: 6                    # the same failure so often: held until a person looks
#  cooldown_ladder_seconds: [1, 5, 15, 300, 1800]       # the wait after each of them
#restart_policy:
#  max_restarts_per_hour: 10
"""


def text_of(found: Found, *, topic: str) -> str:
    """The file. `topic` is a name that nobody guesses, for ntfy: whoever knows it can read along."""
    return "".join((HEAD.format(schema=SCHEMA), *_notes(found), UNITS, *_units(found), TAIL.format(topic=topic)))


def _notes(found: Found) -> Iterator[str]:
    if found.notes:
        yield "#\n"
    for note in found.notes:
        yield _words(note)


def _units(found: Found) -> Iterator[str]:
    shown = found.offers[:OFFERS_MAX]
    for offer in shown:
        yield from _unit(offer)
    if len(found.offers) > len(shown):
        yield _words(f"{len(found.offers) - len(shown)} more were found: `flyball init --json` lists all.")
    if not shown:
        yield EXAMPLE


def _unit(offer: Offer) -> Iterator[str]:
    yield _words(f"From {offer.source}. {offer.note}".rstrip())
    yield f"#  {_name(offer.name)}:\n#    command: {_value(list(offer.command))}\n"
    for key, value in offer.more.items():
        yield f"#    {key}: {_value(value)}\n"


def _name(name: str) -> str:
    """A name that YAML could take for something else is in quotes."""
    plain = (
        is_name(name) and name[0].isalpha() and name.lower() not in ("true", "false", "yes", "no", "on", "off", "null")
    )
    return name if plain and name not in "yYnN" else _value(name)


def _value(value: Any) -> str:
    """JSON is YAML, too; but letters beyond its first 65,536 are not two escapes there, but one."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)


def _words(text: str) -> str:
    """A line of words. What was found must not break out of it."""
    line = "".join(char if char.isprintable() else " " for char in text).strip()
    return f"# {line[: NOTE_MAX - 1]}…\n" if len(line) > NOTE_MAX else f"# {line}\n"

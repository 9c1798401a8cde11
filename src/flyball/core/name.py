"""What a unit, a group or a label may be called: one rule, for files and for commands.

A name is part of file names, and goes into commands and lines without quotes.
"""

import re
from typing import Final

NAME_MAX: Final = 64
"""Characters of a name: it has to fit into a line, and into a file's name."""
NAME: Final = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.@+-]{{0,{NAME_MAX - 1}}}")
IN_WORDS: Final = f"at most {NAME_MAX} letters, digits and _ . @ + -, a letter, digit or _ first"


def is_name(text: str) -> bool:
    """Whether something can be called so."""
    return NAME.fullmatch(text) is not None


def name_from(text: str, default: str) -> str:
    """A name made of some text, without what does not belong into one."""
    return re.sub(r"[^A-Za-z0-9_.@+-]", "-", text).lstrip(".@+-")[:NAME_MAX] or default

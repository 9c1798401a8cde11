"""What the pages show: their blocks, and the commands in them. Reads files and nothing else.

A block of a shell is typed, and so is one without a language, and one of text with a line that begins with `$ `. Where
there are such lines only those are typed; the others are what it answers. What is only shown is a block of text.
"""

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
SHELLS: Final = frozenset({"", "sh", "bash", "shell", "console"})
SHOWN: Final = frozenset({"text", "dockerfile", "ini", "json", "python", "sql", "toml", "yaml"})
"""Languages of blocks that nobody types into a shell."""
SOCKET_REQUEST: Final = '{"v":'
"""How a request begins that is sent to the socket as it stands."""

_FENCE: Final = re.compile(r"( *)```(\w*).*")
_ASSIGNMENTS: Final = re.compile(r"^(?:[A-Z_]+=\S+ +)+")
_COMPOUND: Final = re.compile(r"(case|if|for|while|until)\b|.*<<|.*\\$|.*\{$")


class Block(NamedTuple):
    """What stands between two fences."""

    page: str
    line: int
    """Of its first line."""
    language: str
    text: str

    @property
    def where(self) -> str:
        """As editors find it."""
        return f"{self.page}:{self.line}"

    @property
    def is_commands(self) -> bool:
        """People type it, or lines of it."""
        if self.is_requests:
            return False
        return self.language in SHELLS or (self.language == "text" and self.is_transcript)

    @property
    def is_requests(self) -> bool:
        """It is sent to the socket, line by line, or is what comes back."""
        return self.language in ("", "json", "text") and self.text.startswith(SOCKET_REQUEST)

    @property
    def is_transcript(self) -> bool:
        """It shows answers, too."""
        return any(line.startswith("$ ") for line in self.text.splitlines())


class Command(NamedTuple):
    """What is typed at once: a line, or several that belong together."""

    page: str
    line: int
    text: str
    shown: str = ""
    """What the page shows as its answer; nothing if it shows none."""

    @property
    def where(self) -> str:
        """As editors find it."""
        return f"{self.page}:{self.line}"

    @property
    def bare(self) -> str:
        """Without what is said about it."""
        return re.sub(r"(^|\s+)#\s.*$", "", self.text, flags=re.MULTILINE).strip()

    @property
    def program(self) -> str:
        """What is run, after variables that are set for it."""
        return _first_word(self.text)


def pages() -> list[str]:
    """All that people read, but for the records of decisions: those tell what was, not what to type."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "deploy").rglob("README.md")]
    found += [page for page in (ROOT / "docs").rglob("*.md") if "decisions" not in page.parts]
    return sorted(page.relative_to(ROOT).as_posix() for page in found)


@cache
def blocks(page: str) -> tuple[Block, ...]:
    """The fenced blocks of a page, without the indentation of the list that they are in."""
    return blocks_of((ROOT / page).read_text(encoding="utf-8"), page)


def blocks_of(text: str, page: str = "") -> tuple[Block, ...]:
    """The same, of a page's text."""
    found, inside, language, first, indent = [], list[str](), "", 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.fullmatch(line)
        if fence and not first:
            indent, language, first, inside = fence[1], fence[2], number + 1, []
        elif fence:
            found.append(Block(page, first, language, "\n".join(inside) + "\n"))
            first = 0
        elif first:
            inside.append(line.removeprefix(indent))
    if first:
        raise ValueError(f"{page}:{first - 1}: this block has no end")
    return tuple(found)


def commands(page: str) -> list[Command]:
    """All that a page has people type, in its order."""
    return [command for block in blocks(page) if block.is_commands for command in commands_of(block)]


def commands_of(block: Block) -> list[Command]:
    """All that is typed of a block."""
    found: list[Command] = []
    lines = block.text.splitlines()
    at = 0
    while at < len(lines):
        typed, line = lines[at], block.line + at
        at += 1
        if block.is_transcript and not typed.startswith("$ "):
            if found:
                found[-1] = found[-1]._replace(shown=f"{found[-1].shown}{typed}\n")
            continue
        text = typed.removeprefix("$ ")
        while at < len(lines) and not _is_whole(text):
            text += f"\n{lines[at].removeprefix('> ')}"
            at += 1
        command = Command(block.page, line, text)
        if command.bare:
            found.append(command)
    return found


def _is_whole(text: str) -> bool:
    """The shell would carry it out, and not wait for more lines."""
    if not _COMPOUND.match(text):
        return True
    checked = subprocess.run(["bash", "-n"], input=text + "\n", capture_output=True, text=True, check=False)
    return checked.returncode == 0 and not text.endswith("\\") and "here-document" not in checked.stderr


def _first_word(text: str) -> str:
    words = _ASSIGNMENTS.sub("", text.strip()).split(maxsplit=1)
    return words[0] if words else ""

"""Writes docs/reference/reasons.md and docs/reference/errors.md from the pages that `flyball explain` shows. It is run
by `make docs`; a test sees when they are stale."""

import sys
from collections.abc import Iterator
from pathlib import Path

from flyball.explaining import Page, pages

DOCS = Path(__file__).parent.parent / "docs" / "reference"

REASONS = """\
# Reason codes

This page is made by `make docs` from the pages that `flyball explain CODE` shows, which say more.

A code never changes its meaning; machines may rely on it. The text beside it has the numbers, the remedy says what a
person can do. Its money is gone: see [put it right](../how-to/put-it-right.md#its-money-is-gone).

| code | policy | verb | meaning | what to do |
|---|---|---|---|---|
"""

ERRORS = """\
# Error codes

This page is made by `make docs` from the pages that `flyball explain CODE` shows, which say more.

A code never changes its meaning. Errors are printed as one line on stderr, with what to do, and where to read on.
"""

SECTIONS = {
    "error": (
        "Errors",
        "What the command line prints, and what is raised in Python: `StoreFull` is `store_full` (`error.topic`).",
    ),
    "answer": (
        "Answers",
        "Codes in the answers of the [socket](commands.md#the-socket) and the [HTTP API](../how-to/http-api.md).",
    ),
    "webhook": ("Webhooks", "What the sender of a [webhook](../how-to/webhooks.md) is told."),
    "link": ("Links in alerts", "Why a link that does something cannot be used."),
    "exit": ("Exit codes", "Of all commands; those of one command say so. See [commands](commands.md#exit-codes)."),
}


def reasons() -> str:
    """The page of reasons."""
    rows = sorted((page for page in pages().values() if "reason" in page.kinds), key=lambda page: page.name)
    return REASONS + "".join(
        f"| `{page.name}` | {page.policy} | {page.verb} | {_cell(page.line)} | {_cell(page.do)} |\n" for page in rows
    )


def errors() -> str:
    """The page of errors."""
    return ERRORS + "".join(_sections())


def _sections() -> Iterator[str]:
    for kind, (title, says) in SECTIONS.items():
        yield f"\n## {title}\n\n{says}\n\n| code | meaning | what to do |\n|---|---|---|\n"
        rows = [page for page in pages().values() if kind in page.kinds]
        for page in sorted(rows, key=_order):
            yield f"| `{page.name}` | {_cell(page.line)} | {_cell(page.do)} |\n"


def _order(page: Page) -> tuple[int, str]:
    """Numbers by size, names by the alphabet."""
    return (int(page.name), "") if page.name.isdigit() else (0, page.name)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    for name, text in (("reasons.md", reasons()), ("errors.md", errors())):
        (DOCS / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"{name} is up to date\n")

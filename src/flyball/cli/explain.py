"""`flyball explain`: what a code means, why it is there, and what to do."""

import dataclasses
import textwrap
from collections.abc import Iterable
from typing import Final

import click

from flyball.cli.show import colour_option, faint, fitted, print_json, strong, width
from flyball.explaining import KINDS, Page, find, pages

WIDTH_MAX: Final = 100
"""Columns of a text: longer lines are hard to read."""

EXAMPLES: Final = """\
\b
Examples:
  flyball explain                 all codes, one line each
  flyball explain quarantined     what it means, why, what to do
  flyball explain StoreFull       an error, by its name in Python
  flyball explain 75              an exit code
  flyball explain --kind policy   all safeguards
  flyball explain cooling --json  for a script
"""


def _complete(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    return [name for name in pages() if name.startswith(begun)]


@click.command(epilog=EXAMPLES)
@click.argument("code", required=False, shell_complete=_complete)
@click.option("--kind", type=click.Choice(list(KINDS)), help="Without CODE: only these.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@colour_option
def explain(code: str | None, kind: str | None, as_json: bool) -> None:
    """Say what CODE means, why it is there, what to do, which settings steer it, and which commands help. Without CODE:
    all of them, one line each.

    A CODE is that of a reason, an error or an answer, a verb, a state, a cause, a safeguard, an alert, or an exit code.
    """
    if code is not None:
        page = find(code)
        if as_json:
            print_json(dataclasses.asdict(page))
            return
        for line in page_lines(page):
            click.echo(line)
        return
    listed = [page for page in pages().values() if kind is None or kind in page.kinds]
    if as_json:
        print_json([dataclasses.asdict(page) for page in listed])
        return
    for line in _list(listed, kind):
        click.echo(line)


def page_lines(page: Page) -> Iterable[str]:
    """The whole page."""
    yield f"{strong(page.name)}: {page.line}"
    said = [KINDS[kind] for kind in page.kinds]
    if page.policy:
        said[0] += f" ({page.verb}, by the policy {page.policy})" if page.policy != "any" else f" ({page.verb})"
    yield faint("  " + "; ".join(said))
    if page.why:
        yield ""
        yield from _paragraph(page.why)
    if page.do:
        yield ""
        yield from _paragraph(f"What to do: {page.do}.")
    for head, rows in (("Settings", page.settings), ("Commands", page.commands), ("Its codes", page.codes)):
        if rows:
            yield from ("", strong(f"{head}:"), *(f"  {row}" for row in rows))


def _list(listed: Iterable[Page], wanted: str | None) -> Iterable[str]:
    """By what they are, each once."""
    by_kind: dict[str, list[Page]] = {kind: [] for kind in KINDS}
    for page in listed:
        by_kind[wanted or page.kinds[0]].append(page)
    gap = ""
    for kind, some in by_kind.items():
        if some:
            yield f"{gap}{strong(KINDS[kind])}"
            gap = "\n"
            wide = max(len(page.name) for page in some)
            yield from (fitted(f"  {page.name:<{wide}}  {page.line}", width()) for page in some)


def _paragraph(text: str) -> Iterable[str]:
    columns = min(width() or WIDTH_MAX, WIDTH_MAX)
    return textwrap.wrap(text, columns, break_long_words=False, break_on_hyphens=False)

"""The docs are tested: every setting, event, policy and reason code has its place in them, and no other has."""

import ast
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from flyball.core.event import AnyEvent, Cause, Work
from flyball.policies import ALL

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def reason_codes() -> set[str]:
    """Every code that a policy or the core can give: the second argument of `Reason`, as it stands in the source."""
    codes: set[str] = set()
    for path in [*(ROOT / "src/flyball/policies").glob("*.py"), ROOT / "src/flyball/core/policy.py"]:
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Reason":
                codes |= codes_of(node.args[1], tree)
            if isinstance(node, ast.keyword) and node.arg == "code" and isinstance(node.value, ast.Constant):
                codes.add(str(node.value.value))
    return codes


def _is_of(target: ast.expr, name: str) -> bool:
    return isinstance(target, ast.Name) and target.id == name


def codes_of(argument: ast.expr, tree: ast.Module) -> set[str]:
    match argument:
        case ast.Constant(value=str(code)):
            return {code}
        case ast.JoinedStr(values=[ast.Constant(value="ended_"), _]):
            return {f"ended_{cause}" for cause in Cause}
        case ast.Name(id="code"):
            given = [node.value for node in ast.walk(tree) if isinstance(node, ast.Assign) and is_code(node)]
            return {c.value for value in given for c in ast.walk(value) if is_word(c)}  # type: ignore[attr-defined]
        case ast.Name(id=name) if name.isupper():
            constants = [
                node.value for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and _is_of(node.target, name)
            ]
            return {str(value.value) for value in constants if isinstance(value, ast.Constant)}
        case ast.Attribute(attr="code"):
            defaults = [
                n.value for n in ast.walk(tree) if isinstance(n, ast.AnnAssign) and ast.unparse(n.target) == "code"
            ]
            return {str(c.value) for c in defaults if isinstance(c, ast.Constant)}
    raise AssertionError(f"a reason's code must be readable in the source: {ast.unparse(argument)}")


def is_code(node: ast.Assign) -> bool:
    return ast.unparse(node.targets[0]) == "code"


def is_word(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != "held"


def table(page: str) -> list[str]:
    """The first cells of a page's tables."""
    return re.findall(r"^\| `([^`]+)` \|", (DOCS / page).read_text(), re.MULTILINE)


def test_every_reason_code_has_its_row() -> None:
    """A code that people or machines can meet is explained, once, and none is explained that cannot be met."""
    rows = table("reference/reasons.md")
    assert rows == sorted(set(rows))
    assert set(rows) == reason_codes() - {"ended_"}


def test_every_event_has_its_row() -> None:
    """Events are a closed set, and the page lists it with every field of their own."""
    page = (DOCS / "reference/events.md").read_text()
    kinds: tuple[Any, ...] = AnyEvent.__args__
    assert table("reference/events.md") == [kind.__name__ for kind in kinds]
    fields = {field for kind in (*kinds, Work) for field in kind.__struct_fields__}
    assert [field for field in sorted(fields) if f"`{field}`" not in page] == []


def test_every_policy_has_its_heading() -> None:
    """One heading a safeguard."""
    headings = re.findall(r"^## ([a-z]+)$", (DOCS / "safeguards.md").read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(policy.__module__.rsplit(".", 1)[1] for policy in ALL)


def test_settings_page_is_up_to_date() -> None:
    """The page is made from the table of settings. If this fails: `make docs`."""
    made = runpy.run_path(str(ROOT / "tools/settings_reference.py"))["page"]()
    assert (DOCS / "reference/settings.md").read_text() == made


def test_pages_of_codes_are_up_to_date() -> None:
    """They are made from what `flyball explain` shows. If this fails: `make docs`."""
    made = runpy.run_path(str(ROOT / "tools/codes_reference.py"))
    assert (DOCS / "reference/reasons.md").read_text() == made["reasons"]()
    assert (DOCS / "reference/errors.md").read_text() == made["errors"]()


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    """No link within the docs is dead."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_page_is_in_the_site() -> None:
    """Whatever is written can be found."""
    nav = (ROOT / "mkdocs.yml").read_text()
    pages = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")]
    assert [page for page in pages if page not in nav] == []

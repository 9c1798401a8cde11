"""The docs are tested: every setting, event, policy and reason code has its place in them, and no other has."""

import ast
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from flyball.cli import COMMANDS
from flyball.cli.simulate import simulate
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


@pytest.mark.parametrize("page", ["settings", "commands", "metrics", "api", "architecture"])
def test_reference_is_up_to_date(page: str) -> None:
    """What it says of settings, commands, metrics, the API and layers is made from them. If this fails: `make docs`."""
    tool = runpy.run_path(str(ROOT / f"tools/{page}_reference.py"))
    assert tool["PAGE"].read_text() == tool["page"]()


def test_every_command_is_in_the_overview() -> None:
    """Whoever looks for a command finds it before the first heading, with whether it needs a daemon."""
    overview = (DOCS / "reference/commands.md").read_text().partition("\n## ")[0]
    assert [name for name in COMMANDS if f"`{name}`](#{name})" not in overview] == []


def test_every_module_has_its_place() -> None:
    """Where things are says so of each module and package that there is."""
    places = (DOCS / "architecture.md").read_text().partition("## Where things are")[2].partition("\n## ")[0]
    found = {path.name for path in (ROOT / "src/flyball").iterdir() if not path.name.startswith("_")} - {"py.typed"}
    assert [name for name in sorted(found) if not re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", places)] == []


def test_every_option_says_what_it_does() -> None:
    """In `--help`, and so in the reference."""
    rows = re.findall(
        r"^\| (?:`|<code>)(-.+?)(?:`|</code>) \| (.*) \|$", (DOCS / "reference/commands.md").read_text(), re.MULTILINE
    )
    assert len(rows) > 100
    assert [option for option, says in rows if not says.strip()] == []


def simulated(*asked: str) -> dict[str, Any]:
    """What `flyball simulate` says to that, with the default settings."""
    done = CliRunner().invoke(simulate, [*asked, "--json"], standalone_mode=False, catch_exceptions=False)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.mark.parametrize(
    ("asked", "held_by", "starts"),
    [
        ("always-fails --uptime 29s", ["quarantine"], 6),
        ("flaps", ["flapping"], 7),
        ("always-fails --uptime 45s --changing-error", ["restart"], 51),
        ("fails-once-a-day --days 30", [], 30),
        ("cascade --units 50", [], 99),
    ],
)
def test_tuning_says_what_simulate_says(
    asked: str, held_by: list[str], starts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers around the pictures are those of the simulation, and each of these has its picture."""
    monkeypatch.chdir(tmp_path)
    said = simulated(*asked.split())
    assert (said["held_by"], said["starts"]) == (held_by, starts)
    assert said["bound"]["starts"] == 51
    page = (DOCS / "tuning.md").read_text()
    assert f"$ flyball simulate {asked}\n```\n\n![" in page


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

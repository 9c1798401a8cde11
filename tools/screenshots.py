"""The pictures of the page and of the terminal in the documentation: from a real daemon, with a fleet that shows every
state, in a real Chromium, and on a real terminal.

    python -m tools.screenshots

The fleet goes wrong on purpose, quickly at first, so that some units are quarantined and halted; then the daemon is
started again with the usual waits, so that one is seen cooling down.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, Page
from tests.daemon.rule_site import fire, runs
from tests.daemon.site import QUICK, until
from tests.page.live import LiveSite
from tests.page.stage import DESKTOP, PHONE, Visit, chromium
from tools.terminal_picture import Shown, draw, run

from flyball.runtimes.rule.browser import find_browser

FOLDER: Final = Path(__file__).parents[1] / "docs" / "pictures"
SETTLED_MS: Final = 1_500
"""Milliseconds for curves and lists that are fetched after the first frame."""

SPENDS: Final = """
import sys, time
from flyball.runtimes.tell import ask
for _ in range(int(sys.argv[1])):
    ask([("X_FLYBALL_SPENT", sys.argv[2])])
    print("edited a file", flush=True)
    time.sleep(0.7)
time.sleep(3600)
"""
FAILS: Final = """
print("opening https://shop.example/login", flush=True)
raise RuntimeError('Selector "#login-btn" not found')
"""
BY_ITSELF: Final = "n=$(cat {0} 2>/dev/null || echo 1); echo $((n + 1)) > {0}; "
"""A shell's count of its own runs."""
PAGES: Final = (
    ("overview", "", DESKTOP, "dark"),
    ("overview-light", "", DESKTOP, "light"),
    ("phone", "", PHONE, "dark"),
    ("unit", "unit/coder-3", DESKTOP, "dark"),
    ("phone-unit", "unit/coder-3", PHONE, "dark"),
    ("failures", "failures", DESKTOP, "dark"),
    ("sessions", "sessions", DESKTOP, "dark"),
    ("budgets", "budgets", DESKTOP, "dark"),
    ("journal", "journal", DESKTOP, "dark"),
    ("audit", "audit", DESKTOP, "dark"),
)
"""Name, page, size, theme."""
COLUMNS: Final = 124
"""Of the terminal: as many as can be read on a page."""
TERMINALS: Final = {
    "terminal": ("status", "coder-3", "nightly-refactor", "scraper", "triage-bot"),
    "terminal-why": ("why", "coder-3", "-n", "2"),
}
"""What is asked there."""
WHOLE: Final = frozenset({"overview", "overview-light"})
"""Pictures of all that there is, also below the edge of the window: every state is in the table."""


def units(site: LiveSite) -> dict[str, Any]:
    """At least one of each state."""
    python = [sys.executable, "-c"]
    session = Path(__file__).parents[1] / "tests" / "daemon" / "session_worker.py"
    counted = BY_ITSELF.format("count-$FLYBALL_UNIT")
    found: dict[str, Any] = {
        "triage-bot": {
            "command": [*python, SPENDS, "6", "0.15"],
            "kind": "agent",
            "budget": "2.00",
            "labels": {"user": "ann"},
        },
        "board-graph": {"command": ["sleep", "3600"], "labels": {"user": "ann"}},
        "reviewer": {
            "command": [*python, SPENDS, "3", "0.11"],
            "kind": "agent",
            "budget": "2.00",
            "labels": {"user": "bob"},
        },
        "indexer": {"command": ["sleep", "3600"]},
        "mailer": {"command": ["sleep", "3600"]},
        "coder-3": {"command": [*python, FAILS], "labels": {"user": "bob"}},
        "nightly-refactor": {
            "command": [*python, SPENDS, "9", "0.29"],
            "kind": "agent",
            "budget": "2.00",
            "labels": {"user": "ann"},
        },
        "translator": {"command": ["sh", "-c", f"{counted} exit $n"]},
        "crawler": {"command": ["sh", "-c", f"{counted} [ $n -gt 4 ] && exec sleep 3600; exit 9"]},
        "scraper": {"command": ["sh", "-c", "[ -e slow ] || exec sleep 3600; exit 7"]},
        "importer": {"command": ["sh", "-c", "exit 4"], "restart": "never"},
        "report-job": {"command": ["true"]},
        "old-bot": {"command": ["sleep", "3600"], "grace": "0.1s"},
        "backfill": {"command": ["sleep", "3600"], "grace": "0.1s"},
        "research": {
            "kind": "session",
            "command": [sys.executable, str(session), "3", "0", "person"],
            "labels": {"user": "bob"},
        },
    }
    return {name: unit | {"cwd": str(site.folder)} for name, unit in found.items()}


def begin(site: LiveSite) -> None:
    """A fleet in which everything has happened."""
    pay = runs(site, "true")
    pay["actions"][0]["approve"] = {"text": "Pay the invoice of 240 USD?"}
    budget = {"per_fleet": "20.00", "period": "day"}
    site.write(units(site), rules={"pay-invoice": pay}, budget=budget)
    site.flyball("up", "-d")
    site.wait("coder-3", state="quarantined")
    site.wait("translator", state="halted")
    site.wait("crawler", running=True, state="degraded")
    until(lambda: not site.status()["nightly-refactor"]["running"], "the end of its money")
    (site.folder / "slow").touch()
    site.down()
    for name in QUICK:
        if name.endswith("_SECONDS"):
            del site.env[name]
    site.flyball("up", "-d")
    site.wait("scraper", state="cooling")
    site.flyball("pause", "old-bot")
    site.flyball("stop", "backfill", "--note", "the source is moved")
    fire(site, "pay-invoice")
    until(lambda: site.ask("questions")["questions"], "its question")


def take(browser: Browser, site: LiveSite, picture: tuple[str, str, dict[str, int], str]) -> None:
    """One picture."""
    name, path, size, theme = picture
    address, login = site.login()
    visit = Visit(browser, address, size, color_scheme=theme, device_scale_factor=1)
    page = visit.page
    page.goto(address + login)
    page.goto(f"{address}/#/{path}")
    _settled(page)
    page.screenshot(path=FOLDER / f"{name}.png", full_page=name in WHOLE)
    visit.end()


def _settled(page: Page) -> None:
    page.locator("main :is(h1, h2)").first.wait_for(state="attached")
    page.wait_for_load_state("load")
    page.wait_for_timeout(SETTLED_MS)


def main() -> int:
    """Make all pictures."""
    if find_browser(os.environ) is None:
        print("There is no Chromium here: apt-get install chromium")
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fb-") as folder, chromium() as browser:
        site = LiveSite(Path(folder))
        try:
            begin(site)
            for name, asked in TERMINALS.items():
                printed = run([sys.executable, "-m", "flyball", *asked], env=site.env, cwd=site.folder, columns=COLUMNS)
                shown = Shown(" ".join(("flyball", *asked)), printed)
                (FOLDER / f"{name}.svg").write_text(draw([shown], COLUMNS), encoding="utf-8")
                print(f"docs/pictures/{name}.svg")
            for picture in PAGES:
                take(browser, site, picture)
                print(f"docs/pictures/{picture[0]}.png")
        finally:
            site.clean()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The page in a real Chromium: ten thousand units of which two hundred change each second, beside a table of the same
library that has all rows in the document and draws once an animation frame, too; and from the death of a process to the
change on the page, with a real daemon.

    python -m bench.page

Busy is what the main thread takes of a processor, as Chromium counts it: not the time that it waits for one, so that
other work on the machine is not counted. A change is there when the document has it:
from the moment its frame arrives, so a frame that waits for the thread counts in full.
"""

import contextlib
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, CDPSession, Page
from tests.page.fake import FakeServer, row, serving
from tests.page.live import LiveSite
from tests.page.stage import DESKTOP, Visit, chromium

from bench.measure import Row
from flyball.control.client import connect
from flyball.runtimes.rule.browser import find_browser

UNITS: Final = 10_000
CHANGES: Final = 200
"""A second; each in a frame of its own, which is the worst case."""
SECONDS: Final = 8.0
PROBE: Final = "aaa-probe"
"""A row that is always in sight. One change in ten is its own."""
STATES: Final = ("healthy", "degraded", "cooling", "paused", "finished")

DEATHS: Final = 25
FLEET: Final = 1_000

WATCH: Final = """
(() => {
  const Real = window.EventSource;
  const waiting = [];
  window.delays = [];
  window.EventSource = class extends Real {
    constructor(...given) {
      super(...given);
      super.addEventListener("board", (event) => {
        const probe = JSON.parse(event.data).units.find((row) => row.name === "aaa-probe");
        // When it came to the browser, not when the main thread had time for it.
        if (probe) waiting.push([probe.restarts, event.timeStamp || performance.now()]);
      });
    }
  };
  new MutationObserver(() => {
    const cell = document.querySelector('[data-unit="aaa-probe"] .col-restarts');
    if (!cell) return;
    const shown = parseInt(cell.textContent, 10);
    while (waiting.length && waiting[0][0] <= shown) window.delays.push(performance.now() - waiting.shift()[1]);
  }).observe(document, {subtree: true, childList: true, characterData: true});
})();
"""

NAIVE: Final = b"""
import { html, render } from "/static/lib.js";
const rows = new Map();
const cells = (row) => html`<tr key=${row.name} data-unit=${row.name}>
  <td>${row.name}</td><td>${row.state}</td><td>${row.kind}</td>
  <td class="col-restarts">${row.restarts}</td><td>${row.spent}</td><td>${row.reason}</td></tr>`;
let due = false;
new EventSource("/api/v1/board/stream").addEventListener("board", (event) => {
  for (const row of JSON.parse(event.data).units) rows.set(row.name, row);
  if (!due) requestAnimationFrame(draw);
  due = true;
});
function draw() {
  due = false;
  const sorted = [...rows.values()].sort((a, b) => a.state.localeCompare(b.state) || a.name.localeCompare(b.name));
  render(html`<table><tbody>${sorted.map(cells)}</tbody></table>`, document.body);
}
"""


def fleet() -> FakeServer:
    """Ten thousand units, and the naive page beside ours."""
    fake = FakeServer([row(PROBE, state="quarantined"), *(row(f"unit-{n:05}") for n in range(UNITS - 1))])
    page = b'<!doctype html><script type="module" src="/naive.js"></script><body></body>'
    fake.files = {"/naive.html": ("text/html", page), "/naive.js": ("text/javascript", NAIVE)}
    return fake


@contextlib.contextmanager
def changing(fake: FakeServer, seed: int) -> Iterator[None]:
    """Units change, so many a second, evenly, until it ends."""
    dice, ending = random.Random(seed), threading.Event()
    totals = fake.totals()

    def change() -> None:
        began, count = time.monotonic(), 0
        while not ending.wait(max(0.0, began + count / CHANGES - time.monotonic())):
            count += 1
            if count % 10 == 0:
                one = fake.rows[PROBE] = {**fake.rows[PROBE], "restarts": count // 10}
            else:
                name = f"unit-{dice.randrange(UNITS - 1):05}"
                one = fake.rows[name] = row(
                    name, state=dice.choice(STATES), restarts=count % 7, reason=f"change {count}"
                )
            counted = {**totals, "restarts_hour": count}
            fake.send(fake.frame([one], full=False, counted=counted) | {"problems": None})

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def busy(session: CDPSession) -> float:
    """Seconds of a processor that the main thread has used."""
    found: dict[str, Any] = session.send("Performance.getMetrics")
    return float({one["name"]: one["value"] for one in found["metrics"]}["TaskDuration"])


def measured(browser: Browser, path: str) -> tuple[float, float, float]:
    """Of one page under the changes: the part of the time that it works, and the p50 and p95 of its delays in ms."""
    fake = fleet()
    with serving(fake) as address:
        visit = Visit(browser, address, DESKTOP)
        try:
            visit.context.add_init_script(WATCH)
            visit.page.goto(address + path)
            visit.page.wait_for_selector(f'[data-unit="{PROBE}"]', timeout=60_000)
            session = visit.context.new_cdp_session(visit.page)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})
            with changing(fake, 7):
                visit.page.wait_for_timeout(1_000)
                worked, began = busy(session), time.monotonic()
                visit.page.wait_for_timeout(SECONDS * 1_000)
                part = (busy(session) - worked) / (time.monotonic() - began)
                delays = sorted(visit.page.evaluate("window.delays"))
        finally:
            visit.context.close()
    if not delays:  # not one change was drawn in all that time
        return part, SECONDS * 1_000, SECONDS * 1_000
    return part, statistics.median(delays), delays[int(len(delays) * 0.95)]


def deaths(browser: Browser) -> list[float]:
    """From the death of a process to the change on the page, in ms, with a real daemon of many units."""
    with tempfile.TemporaryDirectory(prefix="fb-") as folder:
        site = LiveSite(Path(folder), FLYBALL_QUARANTINE__COOLDOWN_LADDER_SECONDS="[60]")  # so that it is seen
        site.write({f"unit-{n:04}": {"command": ["sleep", "3600"], "grace": "0.1s"} for n in range(FLEET)})
        try:
            site.flyball("up", "-d")
            pids = _pids(site)
            address, login = site.login()
            visit = Visit(browser, address, DESKTOP)
            visit.page.goto(address + login)
            visit.page.wait_for_selector(".unit-row", timeout=60_000)
            found = [_death(visit.page, f"unit-{n:04}", pids[f"unit-{n:04}"]) for n in range(DEATHS)]
            visit.context.close()
            return found
        finally:
            site.down()
            site.clean()


def _pids(site: LiveSite) -> dict[str, int]:
    deadline = time.monotonic() + 120
    while True:
        client = connect(site.state)
        assert client is not None
        with client:
            found: dict[str, int] = client.ask("ping", {})["pids"]
        if len(found) == FLEET:
            return found
        assert time.monotonic() < deadline, f"only {len(found)} of {FLEET} units run"
        time.sleep(0.2)


def _death(page: Page, unit: str, pid: int) -> float:
    page.evaluate(
        """(unit) => {
          location.hash = `#/?q=${unit}&sort=unit`;
          window.seen = new Promise((tell) => {
            const look = () => {
              const cell = document.querySelector(`[data-unit="${unit}"] .state`);
              if (cell && !cell.textContent.startsWith("running")) tell(Date.now());
            };
            new MutationObserver(look).observe(document, {subtree: true, childList: true, characterData: true});
          });
        }""",
        unit,
    )
    page.wait_for_selector(f'[data-unit="{unit}"]')
    page.wait_for_timeout(300)
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    seen: float = page.evaluate("window.seen")
    return seen - killed * 1_000


def run() -> list[Row | str]:
    """All rows; or why there are none."""
    if find_browser(os.environ) is None:
        return ["the page is not measured: there is no Chromium here (apt-get install chromium)"]
    with chromium() as browser:
        ours, theirs = measured(browser, "/"), measured(browser, "/naive.html")
        what = "page: 10,000 rows, 200 changes/s"
        rows: list[Row | str] = [
            Row(f"{what}: busy", ours[0] * 100, "all rows", theirs[0] * 100, "%", "< 20 %", ours[0] < 0.20),
            Row(f"{what}: p50", ours[1], "all rows", theirs[1], "ms", "below the peer", ours[1] < theirs[1]),
            Row(f"{what}: p95", ours[2], "all rows", theirs[2], "ms", "< 60 ms", ours[2] < 60),
        ]
        median = statistics.median(deaths(browser))
        rows.append(
            Row(f"page: a death is seen, {FLEET:,} units, p50", median, "limit", 100, "ms", "< 100 ms", median < 100)
        )
        return rows


if __name__ == "__main__":
    for line in run():
        print(line, flush=True)
    sys.exit(0)

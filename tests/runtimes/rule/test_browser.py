"""The browser of rules: what its steps do, and what is said of those that cannot be done."""

import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flyball.config.rules import BrowserStep
from flyball.core.time import SECOND, Span
from flyball.runtimes.process import kernel
from flyball.runtimes.rule import browser
from flyball.runtimes.rule.browser import Browsing, find_browser, plain
from flyball.runtimes.rule.deed import ActionFailed
from tests.runtimes.rule.pages import served

pytestmark = pytest.mark.slow

SHORT = SECOND // 10
"""For what does not come."""
LONG = 30 * SECOND
"""For what does come: a busy machine has time."""

needs_browser = pytest.mark.skipif(
    find_browser(os.environ) is None, reason="no Chromium here: apt-get install chromium"
)


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Pages on this machine."""
    with served() as address:
        yield address


@pytest.fixture(scope="module")
def shared() -> Iterator[Browsing]:
    """One browser for the tests that do it no harm: it takes a second to start. Its folder has a short path."""
    with tempfile.TemporaryDirectory(prefix="fb-") as folder:
        browsing = Browsing(Path(folder))
        yield browsing
        browsing.close()


@pytest.fixture
def own() -> Iterator[Browsing]:
    """One that may be harmed."""
    with tempfile.TemporaryDirectory(prefix="fb-") as folder:
        browsing = Browsing(Path(folder))
        yield browsing
        browsing.close()


def step(verb: str, target: str = "", *, text: str = "", name: str = "", timeout: Span = LONG) -> BrowserStep:
    return BrowserStep(verb=verb, target=target, text=text, name=name, timeout=timeout)


def failure(browsing: Browsing, *steps: BrowserStep) -> ActionFailed:
    with pytest.raises(ActionFailed) as caught:
        browsing.do(list(steps))
    return caught.value


@needs_browser
def test_all_verbs(shared: Browsing, site: str, tmp_path: Path) -> None:
    """goto, fill, click, wait, extract and screenshot do what they say; the result has what was extracted."""
    shot = tmp_path / "shot.png"
    done = shared.do(
        [
            step("goto", f"{site}/shop?day=1"),
            step("extract", "h1", name="before"),
            step("fill", "#q", text="two"),
            step("click", "#buy"),
            step("wait", "#done"),
            step("wait", timeout=1_000),
            step("extract", "h1", name="after"),
            step("extract", "#q", name="field"),
            step("screenshot", str(shot)),
        ]
    )
    assert done == {
        "url": f"{site}/shop?day=1",
        "title": "The shop",
        "before": "Best price",
        "after": "Bought two",
        "field": "two",
    }
    assert shot.read_bytes().startswith(b"\x89PNG")


@needs_browser
def test_page_is_shared(shared: Browsing, site: str) -> None:
    """The next action of a run goes on where the last one was; an extracted text may be called `title`."""
    shared.do([step("goto", f"{site}/shop"), step("fill", "#q", text="three")])
    assert shared.do([step("click", "#buy"), step("extract", "h1", name="title")])["title"] == "Bought three"


ON_PAGE: dict[str, tuple[BrowserStep, str, str, bool]] = {
    "click": (
        step("click", "#buy-old", timeout=SHORT),
        "SelectorNotFound",
        "#buy-old was not found within 0.1 s",
        False,
    ),
    "fill": (step("fill", "#none", text="hush", timeout=SHORT), "SelectorNotFound", "#none was not found", False),
    "wait": (step("wait", "text=Never", timeout=SHORT), "SelectorNotFound", "text=Never was not found", False),
    "extract": (step("extract", "h7", name="x", timeout=SHORT), "SelectorNotFound", "h7 was not found", False),
    "disabled": (step("click", "#off", timeout=SHORT), "ElementNotReady", "#off is there, but was not ready", False),
    "hidden": (step("wait", "#hidden", timeout=SHORT), "ElementNotReady", "#hidden is there", False),
    "no CSS": (step("click", "a[["), "BadSelector", "a[[ is no selector", True),
    "no engine": (step("click", "nose=a"), "BadSelector", "nose=a is no selector", True),
    "no XPath": (step("wait", "xpath=//["), "BadSelector", "xpath=//[ is no selector", True),
    "no field": (step("fill", "h1", text="hush"), "StepNotPossible", "fill h1 is not possible on this page", False),
    "no file": (step("screenshot", "/dev/null/x.png"), "NotWritten", "/dev/null/x.png cannot be written", True),
}


@needs_browser
@pytest.mark.parametrize("case", ON_PAGE)
def test_step_that_fails(case: str, shared: Browsing, site: str) -> None:
    """S0-04, S0-42: a step that cannot be done has an error and a target that are the same each time."""
    doing, error, text, final = ON_PAGE[case]
    failed = failure(shared, step("goto", f"{site}/shop"), doing)
    assert (failed.error, failed.target, failed.final) == (error, doing.target, final)
    assert str(failed).startswith(text)
    assert "hush" not in f"{failed}{failed.detail}"


NOT_LOADED: dict[str, tuple[str, str, int | None, bool]] = {
    "/status/503": ("{place} answered with 503", "PageNotLoaded", 503, False),
    "/status/429": ("{place} answered with 429", "PageNotLoaded", 429, False),
    "/nowhere": ("{place} answered with 404", "PageNotLoaded", 404, True),
    "/download": ("{place}: it is a download, and those are refused", "PageNotLoaded", None, False),
}


@needs_browser
@pytest.mark.parametrize("path", NOT_LOADED)
def test_page_that_is_not_there(path: str, shared: Browsing, site: str) -> None:
    """A page that is an error, or no page, is not loaded. Its address is the target, without what may be secret."""
    text, error, status, final = NOT_LOADED[path]
    place = f"{site}{path}"
    failed = failure(shared, step("goto", f"{place}?token=hush#hush"))
    assert str(failed) == text.format(place=place)
    assert (failed.error, failed.target, failed.status, failed.final) == (error, place, status, final)


ADDRESSES = {
    "http://user:hush@127.0.0.1:9/x?hush=1": ("PageNotLoaded", "http://127.0.0.1:9/x", "net::ERR_UNSAFE_PORT"),
    "http://there.invalid/": ("PageNotLoaded", "http://there.invalid/", "net::ERR_"),
    "file:///etc/passwd": ("BadAddress", "file", "is no address of a page"),
    "javascript:alert(1)": ("BadAddress", "javascript", "is no address of a page"),
    "127.0.0.1:8000/x?hush": ("BadAddress", "127.0.0.1:8000/x", "is no address of a page"),
    "http://[::1/hush": ("BadAddress", "", "is no address of a page"),
}


@needs_browser
@pytest.mark.parametrize("address", ADDRESSES)
def test_address_that_is_not_there(address: str, shared: Browsing) -> None:
    """Pages of other machines, and no files of this one: what is no web address is not even tried."""
    error, target, text = ADDRESSES[address]
    failed = failure(shared, step("goto", address))
    assert (failed.error, failed.target) == (error, target)
    assert text in str(failed)
    assert "hush" not in f"{failed}{failed.detail}"


@needs_browser
@pytest.mark.parametrize("path", ["/popups", "/alert"])
def test_page_that_wants_attention(path: str, shared: Browsing, site: str) -> None:
    """Windows that a page opens are closed, and nobody has to answer it."""
    assert shared.do([step("goto", site + path), step("extract", "h1", name="h1")])["h1"] in ("Here", "After")
    assert shared.do([step("goto", f"{site}/shop"), step("extract", "h1", name="h1")])["h1"] == "Best price"
    assert shared._page is not None
    shared.do([step("wait", timeout=100_000)])
    assert len(shared._page.context.pages) == 1


@needs_browser
def test_long_texts_are_cut(shared: Browsing, site: str) -> None:
    """What a page says is bounded."""
    done = shared.do([step("goto", f"{site}/long"), step("extract", "p", name="p")])
    assert (len(done["title"]), len(done["p"])) == (browser.TITLE_MAX, browser.EXTRACT_MAX)


@needs_browser
@pytest.mark.slow
def test_page_that_hangs(own: Browsing, site: str) -> None:
    """A script that never ends is named as that, when the step's own time is over."""
    steps = (step("click", "#go", timeout=SECOND), step("wait", "#go", timeout=SECOND))
    hung = failure(own, step("goto", f"{site}/hangs"), *steps)  # the click may be over before the script begins
    assert (hung.error, hung.target) == ("PageHangs", f"{site}/hangs")


@needs_browser
@pytest.mark.slow
def test_page_that_never_loads(own: Browsing, site: str) -> None:
    """A page with an endless loop is not loaded in time."""
    failed = failure(own, step("goto", f"{site}/endless?x", timeout=SHORT))
    assert (failed.error, str(failed)) == ("PageNotLoaded", f"{site}/endless did not load within 0.1 s")


@needs_browser
@pytest.mark.slow
def test_browser_that_crashed(own: Browsing, site: str) -> None:
    """A browser that is gone is a failure; the next attempt has another."""
    own.do([step("goto", f"{site}/shop")])
    [*_, pid] = [pid for pid in descendants() if str(own._folder) in cmdline(pid) and "--type=" not in cmdline(pid)]
    os.kill(pid, signal.SIGKILL)
    assert failure(own, step("click", "#buy", timeout=5 * SECOND)).error == "BrowserCrashed"
    assert own.do([step("goto", f"{site}/shop")])["title"] == "The shop"


def descendants() -> list[int]:
    """All processes below this one, parents first."""
    found = [os.getpid()]
    for pid in found:
        found += map(int, kernel.children(pid))
    return found[1:]


def cmdline(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


@needs_browser
def test_nothing_outside_its_folder(own: Browsing, site: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Profile, caches and reports of crashes are in the folder that is removed with it; the variable that says where
    temporary files go is as it was."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", "/tmp")
    own.do([step("goto", f"{site}/shop")])
    assert os.environ["TMPDIR"] == "/tmp"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert [path.name for path in own._folder.iterdir() if "profile" in path.name]


def test_no_browser(own: Browsing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a browser the failure says what to install, or what to correct; another attempt would not help."""
    monkeypatch.delenv(browser.VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    failed = failure(own, step("goto", "http://127.0.0.1/"))
    assert (failed.error, failed.final) == ("NoBrowser", True)
    assert "apt-get install chromium" in str(failed)
    monkeypatch.setenv(browser.VARIABLE, str(tmp_path / "none"))
    assert "which is no program" in str(failure(own, step("goto", "http://127.0.0.1/")))


def test_no_playwright(own: Browsing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra the failure says what to install."""
    monkeypatch.setitem(sys.modules, "playwright.async_api", None)
    failed = failure(own, step("goto", "http://127.0.0.1/"))
    assert (failed.error, failed.final) == ("NoPlaywright", True)
    assert "pip install 'flyball-governor[browser]'" in str(failed)


def test_browser_that_does_not_start(own: Browsing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What it said is in the detail, and not in the text, which is the same each time."""
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\necho no display >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv(browser.VARIABLE, str(program))
    failed = failure(own, step("goto", "http://127.0.0.1/"))
    assert (failed.error, failed.target, failed.final) == ("BrowserNotStarted", str(program), False)
    assert "no display" in failed.detail


FOUND: dict[str, tuple[dict[str, str], tuple[str, ...], str | None]] = {
    "by name": ({}, ("chromium",), "chromium"),
    "another name": ({}, ("google-chrome",), "google-chrome"),
    "the first of several": ({}, ("google-chrome", "chromium-browser"), "chromium-browser"),
    "none": ({}, (), None),
}


@pytest.mark.parametrize("case", FOUND)
def test_find_browser(case: str, tmp_path: Path) -> None:
    """Under the usual names, in PATH; a name that was given comes first, and alone."""
    env, there, expected = FOUND[case]
    for name in there:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    env = {**env, "PATH": str(tmp_path)}
    assert find_browser(env) == (str(tmp_path / expected) if expected else None)
    assert find_browser({**env, browser.VARIABLE: "/bin/sh"}) == "/bin/sh"
    assert find_browser({**env, browser.VARIABLE: str(tmp_path / "other")}) is None


PLAIN: dict[str, str] = {
    "http://user:word@host:81/a/b?c=d#e": "http://host:81/a/b",
    "https://[::1]:8/x?y": "https://[::1]:8/x",
    "http://host:port/": "",
    "data:text/html,secret": "data",
    "about:blank": "about",
    "": "",
}


@pytest.mark.parametrize("url", PLAIN)
def test_plain(url: str) -> None:
    """What is said of an address is no secret."""
    assert plain(url) == PLAIN[url]


def test_state_keeps_the_browser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The worker's state has one browser, for all browser actions of its run; steps come as JSON has them."""
    asked: list[Any] = []

    def did(self: Browsing, steps: list[BrowserStep]) -> dict[str, Any]:
        asked.append((self, steps))
        return {}

    monkeypatch.setattr(Browsing, "do", did)
    state: dict[str, Any] = {}
    for _ in range(2):
        browser.do(state, {"folder": str(tmp_path), "steps": [{"verb": "wait", "timeout": 5}]})
    (first, steps), (second, _) = asked
    assert first is second
    assert steps == [step("wait", timeout=5)]
    first._loop.close()

"""The worker's side of browser actions: steps on one page of one browser, which the run's actions share. All that knows
Playwright is here; nothing of it is loaded before a rule has a browser action.

The browser is the Chromium that the system has. It is never closed in order: when the run is over, the worker and all
that descends from it is killed, and whoever made its folder removes that. So there is one way out for a run that is
done, failed, cancelled or hangs. Pages say what they like: what they say is bounded, and never part of an error's text.
"""

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from flyball.config.rules import BrowserStep
from flyball.core.time import seconds
from flyball.runtimes.rule.failed import ActionFailed

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Locator, Page, Playwright

VARIABLE: Final = "FLYBALL_CHROMIUM"
"""The path of the browser, where none is found under the usual names."""
NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
LAUNCH_MAX: Final = 60.0
"""Seconds until a browser is there. It takes one; on a machine that is busy with other things, some more."""
ANSWER_MAX: Final = 2.0
"""Seconds for a page to say what it is. It takes milliseconds, unless a script on it never ends."""
SLACK: Final = 1.0
"""Seconds that Playwright has beyond a step's own time to say that it did not come about."""
EXTRACT_MAX: Final = 16 * 1024
"""Characters of one extracted text: some of them fit into a worker's answer, whatever letters they are."""
TITLE_MAX: Final = 1_000
"""Characters of a page's title. It is for people, who read a line."""
URL_MAX: Final = 8_000
"""Characters of a page's address. Servers take no longer ones."""
DETAIL_MAX: Final = 4_000
"""Characters of what a browser said that could not be started. Its last lines say why."""
TOO_MUCH_OR_EARLY: Final = frozenset({408, 425, 429})
"""Statuses below 500 after which another attempt may do."""

_TEXT: Final = """(element, most) => {
  const isField = element.matches("input, textarea, select");
  return (isField ? element.value : element.innerText ?? element.textContent).slice(0, most);
}"""
_BAD_SELECTOR: Final = re.compile(r"while parsing|Unknown engine|not a valid|[Mm]alformed|Invalid selector")
_GONE: Final = re.compile(
    r"(browser|page) has been closed|(Target|[Pp]age) crashed|[Cc]onnection closed|Browser closed"
)
_NET_ERROR: Final = re.compile(r"net::ERR_\w+")
_KEPT: Final = "browser"


def do(state: dict[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Do `steps` on the run's page; the extracted texts, by name, with `url` and `title` of where it is then. `state`
    is what the worker keeps as long as it lives; `folder` is for all files of the browser. ActionFailed says what did
    not come about."""
    browsing = state.get(_KEPT)
    if browsing is None:
        browsing = state[_KEPT] = Browsing(Path(asked["folder"]))
    steps = msgspec.convert(asked["steps"], list[BrowserStep])
    result: dict[str, Any] = browsing.do(steps)
    return result


def find_browser(env: Mapping[str, str]) -> str | None:
    """The browser of this system; None: there is none."""
    named = env.get(VARIABLE)
    if named:
        return shutil.which(named)
    return next((found for name in NAMES if (found := shutil.which(name, path=env.get("PATH")))), None)


class Browsing:
    """One browser with one page, begun when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # A loop of its own, which stands still between actions: a function that another action calls may need one, too.
        self._loop = asyncio.new_event_loop()
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self._context: BrowserContext | None = None
        self._page: Page | None = None

    def do(self, steps: list[BrowserStep]) -> dict[str, Any]:
        """Do these steps; what came of it."""
        return self._loop.run_until_complete(self._do(steps))

    def close(self) -> None:
        """Close the browser in order. Who kills the process need not do this."""
        self._loop.run_until_complete(self._close())
        self._loop.close()

    async def _do(self, steps: list[BrowserStep]) -> dict[str, Any]:
        extracted: dict[str, Any] = {}
        page = await self._begun()
        try:
            for step in steps:
                text = await _in_time(VERBS[step.verb](page, step), page, step)
                if step.name:
                    extracted[step.name] = text
            return {"url": page.url[:URL_MAX], "title": await _title(page), **extracted}
        except ActionFailed as failed:
            if failed.error == "BrowserCrashed":
                await self._close()  # the next attempt begins another
            elif failed.error in ("PageNotLoaded", "PageHangs"):
                # What is still on its way there would come in the way of the next step.
                await _let_go(page.close())
                self._page = None
            raise

    async def _begun(self) -> "Page":
        if self._page is None:
            context = self._context or await self._launched()
            try:
                self._page = await context.new_page()
            except Exception:  # noqa: BLE001 - whatever it is, this browser has no pages any more
                await self._close()
                raise ActionFailed("BrowserCrashed", "the browser or its page crashed") from None
            # One page a run: what it opens beside itself is closed, or a page could fill the memory with others.
            self._page.on("popup", lambda other: other.close())
        return self._page

    async def _launched(self) -> "BrowserContext":
        try:
            from playwright.async_api import async_playwright  # noqa: PLC0415 - an extra
        except ImportError:
            text = "browser actions need playwright, which is not installed: pip install 'flyball-governor[browser]'"
            raise ActionFailed("NoPlaywright", text, final=True) from None
        path = _path(os.environ)
        try:
            async with asyncio.timeout(LAUNCH_MAX):
                with _temporary_files_in(self._folder):
                    self._playwright = await async_playwright().start()
                self._browser = await self._launch(self._playwright, path)
                self._context = await self._browser.new_context(accept_downloads=False)
        except Exception as error:  # noqa: BLE001 - whatever it is, there is no browser
            await self._close()
            said = "" if isinstance(error, TimeoutError) else str(error)[-DETAIL_MAX:]
            text = f"{path} did not start; try it by hand: {path} --headless --dump-dom about:blank"
            raise ActionFailed("BrowserNotStarted", text, target=path, detail=said) from None
        return self._context

    async def _launch(self, playwright: "Playwright", path: str) -> "Browser":
        folder = str(self._folder)
        return await playwright.chromium.launch(
            executable_path=path,
            headless=True,
            # Chromium refuses to have a sandbox when root starts it. Nobody else is let off it.
            chromium_sandbox=os.geteuid() != 0,
            # Beside its profile it writes reports of crashes, and caches: those are not to be in anybody's home.
            env={**os.environ, "TMPDIR": folder, "XDG_CONFIG_HOME": folder, "XDG_CACHE_HOME": folder},
            timeout=LAUNCH_MAX * 1_000,
        )

    async def _close(self) -> None:
        browser, playwright = self._browser, self._playwright
        self._page = self._context = self._browser = self._playwright = None
        if browser is not None:
            await _let_go(browser.close())
        if playwright is not None:
            await _let_go(playwright.stop())


def _path(env: Mapping[str, str]) -> str:
    path = find_browser(env)
    if path is not None:
        return path
    if env.get(VARIABLE):
        raise ActionFailed("NoBrowser", f"{VARIABLE} is {env[VARIABLE]}, which is no program: correct it", final=True)
    text = f"there is no browser: install Chromium (apt-get install chromium), or set {VARIABLE} to its path"
    raise ActionFailed("NoBrowser", text, final=True)


async def _let_go(closing: Awaitable[None]) -> None:
    """It may have crashed, or hang: then it is killed with the worker."""
    with contextlib.suppress(Exception):
        await asyncio.wait_for(closing, ANSWER_MAX)


@contextlib.contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    """For what is started meanwhile. Playwright takes no such folder; functions of other actions keep theirs."""
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        del os.environ["TMPDIR"]
        if before is not None:
            os.environ["TMPDIR"] = before


# The verbs.


async def _goto(page: "Page", step: BrowserStep) -> None:
    place = plain(step.target)
    if not place.startswith(("http://", "https://")):  # no file of this machine is shown to anybody
        text = f"{place[:URL_MAX]!r} is no address of a page: it begins with http:// or https://"
        raise ActionFailed("BadAddress", text, target=place, final=True)
    answer = await page.goto(step.target, timeout=_milliseconds(step))
    if answer is not None and answer.status >= 400:
        final = answer.status < 500 and answer.status not in TOO_MUCH_OR_EARLY
        text = f"{place} answered with {answer.status}"
        raise ActionFailed("PageNotLoaded", text, target=place, status=answer.status, final=final)


async def _click(page: "Page", step: BrowserStep) -> None:
    await _found(page, step).click(timeout=_milliseconds(step))


async def _fill(page: "Page", step: BrowserStep) -> None:
    await _found(page, step).fill(step.text, timeout=_milliseconds(step))


async def _wait(page: "Page", step: BrowserStep) -> None:
    if step.target:
        await _found(page, step).wait_for(state="visible", timeout=_milliseconds(step))
    else:
        await asyncio.sleep(seconds(step.timeout))


async def _extract(page: "Page", step: BrowserStep) -> str:
    found = await _found(page, step).evaluate(_TEXT, EXTRACT_MAX, timeout=_milliseconds(step))
    return str(found).strip()


async def _screenshot(page: "Page", step: BrowserStep) -> None:
    try:
        await page.screenshot(path=step.target, timeout=_milliseconds(step))
    except OSError as error:
        text = f"{step.target} cannot be written: {error.strerror}"
        raise ActionFailed("NotWritten", text, target=step.target, errno=error.errno, final=True) from None


VERBS: Final[Mapping[str, Callable[["Page", BrowserStep], Awaitable[str | None]]]] = {
    "goto": _goto,
    "click": _click,
    "fill": _fill,
    "wait": _wait,
    "extract": _extract,
    "screenshot": _screenshot,
}


def _found(page: "Page", step: BrowserStep) -> "Locator":
    return page.locator(step.target).first


def _milliseconds(step: BrowserStep) -> float:
    return max(1.0, seconds(step.timeout) * 1_000)  # 0 would mean: for ever


# What went wrong.


async def _in_time(doing: Awaitable[str | None], page: "Page", step: BrowserStep) -> str | None:
    """The step's result. ActionFailed, with names and texts that are the same each time, if it did not come about:
    nothing of what Playwright says is passed on, because it quotes what was filled in."""
    from playwright.async_api import Error  # noqa: PLC0415 - an extra
    from playwright.async_api import TimeoutError as NotInTime  # noqa: PLC0415

    try:
        async with asyncio.timeout(seconds(step.timeout) + SLACK):
            return await doing
    except (NotInTime, TimeoutError):
        raise await _too_late(page, step) from None
    except (Error, ConnectionError) as error:
        said = str(error)
        if _GONE.search(said):
            raise ActionFailed("BrowserCrashed", "the browser or its page crashed") from None
        if step.verb == "goto":
            place = plain(step.target)
            raise ActionFailed("PageNotLoaded", f"{place}: {_why_not_loaded(said)}", target=place) from None
        if _BAD_SELECTOR.search(said):
            text = f"{step.target} is no selector"
            raise ActionFailed("BadSelector", text, target=step.target, final=True) from None
        text = f"{step.verb} {step.target} is not possible on this page"
        raise ActionFailed("StepNotPossible", text, target=step.target) from None


def _why_not_loaded(said: str) -> str:
    if "ownload is starting" in said:
        return "it is a download, and those are refused"
    code = _NET_ERROR.search(said)
    return code[0] if code else "it led somewhere else before it was there"


async def _too_late(page: "Page", step: BrowserStep) -> ActionFailed:
    """What a step waited for that did not come."""
    from playwright.async_api import Error  # noqa: PLC0415 - an extra

    waited = f"within {seconds(step.timeout):g} s"
    if step.verb == "goto":
        place = plain(step.target)
        return ActionFailed("PageNotLoaded", f"{place} did not load {waited}", target=place)
    try:
        async with asyncio.timeout(ANSWER_MAX):
            is_there = step.verb != "screenshot" and await page.locator(step.target).count() > 0
    except (Error, TimeoutError):
        return ActionFailed("PageHangs", "the page does not answer: a script on it hangs", target=plain(page.url))
    if step.verb == "screenshot":
        return ActionFailed("StepNotPossible", f"there was no screenshot {waited}", target=step.target)
    if is_there:
        text = f"{step.target} is there, but was not ready {waited}: hidden, disabled, moving or covered"
        return ActionFailed("ElementNotReady", text, target=step.target)
    return ActionFailed("SelectorNotFound", f"{step.target} was not found {waited}", target=step.target)


async def _title(page: "Page") -> str:
    from playwright.async_api import Error  # noqa: PLC0415 - an extra

    try:
        async with asyncio.timeout(ANSWER_MAX):
            return (await page.title())[:TITLE_MAX]
    except (Error, TimeoutError):  # it is just going somewhere else, or hangs
        return ""


def plain(url: str) -> str:
    """An address without what may be secret in it: user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return ""
    if not parts.hostname:
        return parts.scheme or url.partition("?")[0]
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{port}{parts.path}"

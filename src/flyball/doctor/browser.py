"""The browser that rules use: Chromium, and what drives it."""

from collections.abc import Iterator

from flyball.config.rules import Browse
from flyball.doctor.extras import is_installed
from flyball.doctor.finding import Finding, bad, ok
from flyball.doctor.scene import Scene
from flyball.runtimes.rule.browser import VARIABLE, find_browser


def check(scene: Scene) -> Iterator[Finding]:
    """Where no rule uses one, that there is none is fine."""
    deeds = [action.deed for rule in scene.fallback.rules for action in rule.actions]
    yield judge(
        find_browser(scene.env),
        named=scene.env.get(VARIABLE, ""),
        driven=is_installed("playwright"),
        used=any(isinstance(deed, Browse) for deed in deeds),
    )


def judge(path: str | None, *, named: str, driven: bool, used: bool) -> Finding:
    """`named`: what the variable says; `driven`: whether there is what drives it."""
    install = f"Install Chromium (`apt-get install chromium`), or set {VARIABLE} to its path."
    if not used:
        there = f"Chromium is at {path}" if path else "there is none"
        return ok(f"no rule uses a browser; {there}")
    if path is None and named:
        return bad(f"{VARIABLE} is {named!r}, which is no program", "Correct it, or unset it.")
    if path is None:
        return bad("rules use a browser, and there is none", install)
    if not driven:
        remedy = "Install it: `pip install 'flyball-governor[browser]'`."
        return bad(f"rules use a browser ({path}), and playwright, which drives it, is not installed", remedy)
    return ok(f"rules use the browser {path}")

"""How each kind of deed is done. Every kind is a module, imported when it is needed first: most rules use one or two,
and some need packages that are extras.

None of them knows of attempts, the governor or other actions. What goes wrong is an ActionFailed, whose text has no
secrets in it.
"""

import asyncio
import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from flyball.config.rules import Browse, Call, Http, Notify, Run, SetValues, StartUnit, StopUnit, Wait
from flyball.runtimes.rule.deed import ActionFailed, Doing, Scene


def _later(module: str, name: str = "do") -> Doing:
    """A doing that is imported when it is needed. In a thread: httpx takes longer than others should have to wait."""
    doing: Doing | None = None

    async def do(scene: Scene, deed: Any, seconds: float) -> Mapping[str, Any]:
        nonlocal doing
        if doing is None:
            doing = await asyncio.to_thread(_import, module, name)
        return await doing(scene, deed, seconds)

    return do


def _import(module: str, name: str) -> Doing:
    try:
        doing: Doing = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        text = f"{error.name} is needed, and not installed; install it: pip install 'flyball-governor[rules]'"
        raise ActionFailed("NotInstalled", text, target=error.name or module, final=True) from None
    return doing


DOING: Final[Mapping[type, Doing]] = MappingProxyType(
    {
        Run: _later("run"),
        Http: _later("http"),
        Call: _later("call"),
        Browse: _later("browser"),
        StartUnit: _later("simple", "start"),
        StopUnit: _later("simple", "stop"),
        Notify: _later("simple", "notify"),
        Wait: _later("simple", "wait"),
        SetValues: _later("simple", "remember"),
    }
)

"""A demo of a few, and a flyball without quarantine, as variables say: imported by every Python that finds this folder
on its path."""

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def _no_quarantine(module: Any) -> None:
    from flyball.core.decision import PROCEED

    module.Quarantine.decide = lambda *_: PROCEED


def _few(module: Any) -> None:
    everybody, few = module.everybody, os.environ["DEMO_CAST"].split(",")
    module.everybody = lambda *given, **named: [one for one in everybody(*given, **named) if one.name in few]


CHANGES = {"flyball.demo.cast": _few}
if "DEMO_WITHOUT_QUARANTINE" in os.environ:
    CHANGES["flyball.policies.quarantine"] = _no_quarantine


class _Finder(MetaPathFinder):
    """Finds what all others find, and changes it when it was loaded."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        change = CHANGES.pop(name, None)
        spec = find_spec(name) if change is not None else None
        if change is None or spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def changed(module: ModuleType) -> None:
            load(module)
            change(module)

        spec.loader.exec_module = changed  # type: ignore[method-assign]  # this is what it is for
        return spec


sys.meta_path.insert(0, _Finder())

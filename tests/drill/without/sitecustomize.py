"""A flyball without one of its policies: imported by every Python that finds this folder on its path. The policy is
taken out where every process puts its policies together: the set that a unit stands under."""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

WITHOUT = "TEST_WITHOUT_POLICY"
"""The variable with the name of its class. A scratch folder passes on no variable whose name begins with FLYBALL_."""
PANEL = "flyball.core.panel"


class _Loader(importlib.abc.Loader):
    def __init__(self, true: importlib.abc.Loader, left_out: str) -> None:
        self._true, self._left_out = true, left_out

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._true.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._true.exec_module(module)
        found: Any = module
        true_init, left_out = found._Set.__init__, self._left_out

        def init(self: Any, policies: tuple[Any, ...]) -> None:
            true_init(self, tuple(policy for policy in policies if type(policy).__name__ != left_out))

        found._Set.__init__ = init


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, left_out: str) -> None:
        self._left_out = left_out

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != PANEL:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._left_out)
        return spec


if os.environ.get(WITHOUT):
    sys.meta_path.insert(0, _Finder(os.environ[WITHOUT]))

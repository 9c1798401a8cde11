"""Settings: from a file and the environment to policies. What this imports when it is used imports pydantic; nothing
below it does, nor do the plain values in here (`units`, `plan`, `money`)."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flyball.config.build import get_tier_limit as get_tier_limit
    from flyball.config.layers import load as load
    from flyball.config.schema import json_schema as json_schema
    from flyball.config.settings import DEFAULT as DEFAULT
    from flyball.config.settings import Effective as Effective
    from flyball.config.settings import Settings as Settings

_HOMES = {
    "DEFAULT": "settings",
    "Effective": "settings",
    "Settings": "settings",
    "get_tier_limit": "build",
    "json_schema": "schema",
    "load": "layers",
}

__all__ = ["DEFAULT", "Effective", "Settings", "get_tier_limit", "json_schema", "load"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'flyball.config' has no attribute {name!r}")
    return getattr(import_module(f"flyball.config.{_HOMES[name]}"), name)

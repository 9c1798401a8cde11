"""Settings: from a file and the environment to policies. What reads files imports pydantic, so each name is loaded when
it is first used: what a unit is (`config.units`) can be had without."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flyball.config.build import get_tier_limit as get_tier_limit
    from flyball.config.layers import load as load
    from flyball.config.schema import json_schema as json_schema
    from flyball.config.settings import DEFAULT as DEFAULT
    from flyball.config.settings import Effective as Effective
    from flyball.config.settings import Settings as Settings

_HOME_OF = {
    "DEFAULT": "flyball.config.settings",
    "Effective": "flyball.config.settings",
    "Settings": "flyball.config.settings",
    "get_tier_limit": "flyball.config.build",
    "json_schema": "flyball.config.schema",
    "load": "flyball.config.layers",
}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - one table says what is public and where it lives


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'flyball.config' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)

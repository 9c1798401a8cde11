"""Settings: from a file and the environment to policies. Importing this imports pydantic; nothing below it does."""

from flyball.config.build import get_tier_limit
from flyball.config.layers import load
from flyball.config.schema import json_schema
from flyball.config.settings import DEFAULT, Effective, Settings

__all__ = ["DEFAULT", "Effective", "Settings", "get_tier_limit", "json_schema", "load"]

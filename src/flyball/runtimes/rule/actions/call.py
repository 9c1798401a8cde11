"""A call of a rule: a function in Python, in the worker of the run, which can be killed. Nothing of it is imported
here: what a module does when it is imported is the worker's trouble."""

from collections.abc import Mapping
from typing import Any

from flyball.config.rules import Call
from flyball.runtimes.rule.deed import Scene
from flyball.runtimes.rule.workers import ask


async def do(scene: Scene, deed: Call, seconds: float) -> Mapping[str, Any]:
    """Call it, and wait for what it returns."""
    what = {"function": deed.function, "arguments": deed.arguments, "path": deed.path}
    return {"result": await ask(scene, "call", what, seconds)}

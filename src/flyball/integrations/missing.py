"""What is said where an adapter's framework is not installed."""

from flyball.errors import FlyballError


def missing(framework: str, extra: str) -> FlyballError:
    """The error for an adapter whose framework cannot be imported."""
    return FlyballError(
        f"the adapter for {framework} needs {framework}, which is not installed",
        remedy=f"Install it: pip install 'flyball-governor[{extra}]'",
    )

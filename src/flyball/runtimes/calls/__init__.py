"""Guarded calls: functions and blocks that ask leave before each attempt, and tell what came of it.

`Calls` makes them; everything else here serves it.
"""

from flyball.runtimes.calls.call import Attempt, Call
from flyball.runtimes.calls.factory import Calls
from flyball.runtimes.calls.retry import Retry

__all__ = ["Attempt", "Call", "Calls", "Retry"]

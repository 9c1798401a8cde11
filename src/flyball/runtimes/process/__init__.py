"""Units that are processes: started, watched, ended with all that they started, their output kept.

`ProcessHands` begins the runs of one unit; everything else here serves it.
"""

from flyball.runtimes.process.child import ProcessLife
from flyball.runtimes.process.hands import ProcessHands
from flyball.runtimes.process.output import log_path

__all__ = ["ProcessHands", "ProcessLife", "log_path"]

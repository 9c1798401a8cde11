"""Replay: history under other settings. It needs no store and no clock, and changes nothing.

`journal` weighs a journal's events again; under the same settings every decision comes out the same, bit for bit.
`history` says what would have become of it under other settings, `recorded` the same of runs that were recorded by
somebody else. `lines` reads files of them.
"""

from flyball.replay.journal import Replayed, replay

__all__ = ["Replayed", "replay"]

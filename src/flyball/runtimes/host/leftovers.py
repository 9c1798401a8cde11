"""Leftovers: processes of a daemon of this host that is gone, and that neither its guardian nor its deadman ended.
Before another daemon joins under that name they are ended: others take over what the old one ran. Kept ones are ended,
too: they live on only as long as the lease.

They are known by the mark of a run, which says who holds it. Without /proc they cannot be found.
"""

import os
import re

from flyball.runtimes.holder import DAEMON, is_gone
from flyball.runtimes.process import kernel, strays, tree
from flyball.runtimes.process.tree import Kin


def end(host: str) -> int:
    """Kill every process with the mark of a run of a daemon of that host that is gone, until none is left; how many
    there were."""
    means = kernel.detect()
    return strays.end_all(lambda: _find(host), means) if means.proc else 0


def _find(host: str) -> list[Kin]:
    mark = re.compile(rf"({re.escape(host)}/\d+/\d+)/{DAEMON}[./]")
    found = []
    for pid in kernel.everybody():
        holder = mark.match(tree.marks_of(pid)[1]) if pid != os.getpid() else None
        if holder is not None and is_gone(holder[1], host) and (stat := kernel.stat(pid)) is not None:
            found.append(Kin(pid, stat.started))
    return found

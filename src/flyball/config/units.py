"""What a unit is, as somebody defined it: a value, without any way to run it. Its revision is a hash of it.

The settings' `units:` section and the options of `flyball run` both become this.
"""

import hashlib
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec

from flyball.core.time import SECOND, Span

MESSAGE: Final = "message"
"""The label of a run that a message of a queue asked for. It stays the same when that message is delivered again."""
LOG_BYTES_MAX: Final = 10 * 1024 * 1024
"""One log file of a unit. With the files kept, a unit's output takes at most 50 MB of disk."""
LOG_FILES_MAX: Final = 5


class RestartWhen(StrEnum):
    """After which exits a unit is started again by itself."""

    ON_FAILURE = "on-failure"
    ALWAYS = "always"
    NEVER = "never"


class OnSupervisorDeath(StrEnum):
    """What becomes of a unit whose supervisor is killed."""

    END = "end"
    KEEP = "keep"


class Strategy(StrEnum):
    """Who in a group is restarted when one of it fails."""

    ONE_FOR_ONE = "one-for-one"
    ALL_FOR_ONE = "all-for-one"
    REST_FOR_ONE = "rest-for-one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """How to find out whether a unit is alive, from outside. One of command, http and tcp is given."""

    command: tuple[str, ...] = ()
    http: str = ""
    """A URL that answers with a status below 400."""
    tcp: str = ""
    """host:port that accepts a connection."""
    every: Span = 10 * SECOND
    timeout: Span = 5 * SECOND
    failures_max: int = 3
    """So many failing probes in a row: hung."""


PLACES: Final = ("host", "host_labels")
"""Of a unit: where it may run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Something to run, and how."""

    name: str
    command: tuple[str, ...]
    kind: str = "process"
    labels: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    group: str = ""
    nice: int = 0
    memory_max: int = 0
    """Bytes of address space; 0: no limit."""
    files_max: int = 0
    """Open files; 0: no limit."""
    restart: RestartWhen = RestartWhen.ON_FAILURE
    continue_args: tuple[str, ...] = ()
    """Added to the command after a failure, so that an agent goes on with its conversation, and when a session is
    resumed. Not after a clean exit."""
    stop_signal: int = int(signal.SIGTERM)
    grace: Span = 10 * SECOND
    """Between the stop signal and SIGKILL."""
    deadline: Span = 0
    """How long one run may last; 0: for ever."""
    idle: Span = 0
    """How long it may give no sign of life (output, notification, step); 0: for ever."""
    budget: int = 0
    """Millionths of a dollar that one run may report as spent, or a session in all of its runs; 0: no budget."""
    steps: int = 0
    """Steps of a session, over all of its runs; 0: as many as the settings say."""
    resumes: int | None = None
    """How often a session may be resumed; None: as often as the settings say."""
    priority: int = 0
    """Of sessions that are to be resumed at the same time, those with a higher one come first."""
    watchdog: Span = 0
    """It has to say WATCHDOG=1 on its notify socket this often; 0: it need not."""
    ready: str = "started"
    """When it counts as up: `started`, `notify` (it says READY=1), or `probe` (its probe succeeds)."""
    probe: Probe | None = None
    beat_file: str = ""
    """A file that it touches to show that it is alive; judged by `idle`."""
    after: tuple[str, ...] = ()
    """Units that have to be up before this one is started."""
    team: str = ""
    """The group that it belongs to."""
    on_supervisor_death: OnSupervisorDeath = OnSupervisorDeath.END
    log_bytes_max: int = LOG_BYTES_MAX
    log_files_max: int = LOG_FILES_MAX
    host: str = ""
    """The only host of a fleet that may run it; nothing: any."""
    host_labels: Mapping[str, str] = field(default_factory=dict)
    """What a host must have to run it."""

    @property
    def revision(self) -> str:
        """A hash of the definition: when it changes, the unit's failures are cleared. Where it runs is no part of
        that: what failed there does not become good by moving."""
        defined = {key: value for key, value in msgspec.to_builtins(self).items() if key not in PLACES}
        return hashlib.blake2b(msgspec.json.encode(defined, order="sorted"), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Group:
    """Units that are restarted together, in order."""

    name: str
    strategy: Strategy
    units: tuple[str, ...]

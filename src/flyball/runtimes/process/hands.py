"""The hands for units that are processes: they begin a run, or take over one that outlived its supervisor.

Whatever goes wrong on the way is the ending of a run that never lived, for the governor to count; nothing raises.
"""

from collections.abc import Mapping
from pathlib import Path

from flyball.config.units import OnSupervisorDeath, Unit
from flyball.core.event import Cause
from flyball.runtimes.process import kernel, tree
from flyball.runtimes.process.child import ProcessLife
from flyball.runtimes.process.kernel import Kernel
from flyball.runtimes.process.output import Filed, Heard, Listener, LogFile, Output, Passed, Piped, log_path
from flyball.runtimes.process.spawn import CannotStart, explained, spawn
from flyball.runtimes.sink import Takes


class ProcessHands:
    """Begins the runs of one unit."""

    __slots__ = ("_file", "_means", "extra_env", "life", "on_output", "sinks", "stdin", "terminal", "unit")

    def __init__(
        self,
        unit: Unit,
        *,
        logs: Path,
        extra_env: Mapping[str, str] = {},
        on_output: Listener | None = None,
        means: Kernel | None = None,
    ) -> None:
        self.unit = unit
        self.extra_env = extra_env
        self.on_output = on_output
        """Given to every life."""
        self.terminal = ""
        """The path of a terminal that the next run gets as its own, instead of a pipe. Who made it reads it, and tells
        `hear` what was printed."""
        self.stdin = -1
        """What the next run reads; below 0: nothing."""
        self.sinks: tuple[Takes, Takes] | None = None
        """Where its stdout and its stderr go besides the log; None: nowhere."""
        self.life: ProcessLife | None = None
        """The run that is live, or was last."""
        self._means = means
        self._file = LogFile(log_path(logs, unit.name), unit.log_bytes_max, unit.log_files_max)

    async def begin(self, run: str, *, again: bool, resumes: bool = False) -> ProcessLife:
        """Begin a run. After a failure, and when it is resumed, it is told to go on where it was, if it knows how."""
        unit, means = self.unit, self._means or kernel.detect()
        last = self.life.ending if self.life is not None else None
        goes_on = resumes or (again and (last is None or last.cause is not Cause.DONE))
        output: Output | None = None
        try:
            output = self._output()
            args = unit.continue_args if goes_on else ()
            errors = output.child_errors if isinstance(output, Passed) else output.child_end
            streams = self.stdin, output.child_end, errors
            pid = spawn(unit, run, args, self.extra_env, streams=streams, terminal=self.terminal)
        except (CannotStart, OSError) as error:
            if output is not None:
                output.finish()
            return self.unborn(run, error if isinstance(error, CannotStart) else explained(unit, "", error))
        output.begin()
        self.life = ProcessLife(unit, run, pid, output, means)
        self.life.watch()
        return self.life

    def unborn(self, run: str, error: CannotStart) -> ProcessLife:
        """A run that never lived. Who looks into its output finds why."""
        self._file.write(f"[flyball: {error}]\n".encode(errors="replace"))
        self._file.close()
        means = self._means or kernel.detect()
        self.life = ProcessLife.unborn(self.unit, run, error.ending(self.unit.name), means)
        return self.life

    def adopt(self, pid: int, started: int, run: str) -> ProcessLife | None:
        """Take over a run that outlived its supervisor; None if that very process is not there any more. Its number
        alone says nothing: another process may have it by now."""
        means = self._means or kernel.detect()
        if means.proc and not self._is_ours(pid, run):
            return None
        output = Filed(self._file, self.on_output, adopted=True)
        life = ProcessLife(self.unit, run, pid, output, means)
        if not life.adopt(started):
            return None
        output.begin()
        self.life = life
        return life

    def close(self) -> None:
        """Give back what is kept open between runs. A later run opens it again."""
        self._file.close()

    def _output(self) -> Output:
        self._file.refresh()
        if self.terminal:
            return Heard(self._file, self.on_output)
        if self.unit.on_supervisor_death is OnSupervisorDeath.KEEP:
            return Filed(self._file, self.on_output)
        if self.sinks is not None:
            return Passed(self._file, self.on_output, self.sinks)
        return Piped(self._file, self.on_output)

    def _is_ours(self, pid: int, run: str) -> bool:
        """After a boot both number and start time can come again. The mark cannot; where it may not be seen, number
        and time decide."""
        _, mark = tree.marks_of(pid)
        return not mark or mark == run

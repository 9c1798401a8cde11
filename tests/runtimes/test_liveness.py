"""Liveness: what hangs is noticed by what its unit says, with real children, and nothing else is."""

import asyncio
import itertools
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from flyball.config.units import Probe, Unit
from flyball.core.decision import Verb
from flyball.core.time import MILLISECOND, SECOND
from flyball.runtimes import liveness as liveness_module
from flyball.runtimes.liveness import HUNG_CODES, Liveness
from flyball.runtimes.notify import Message, Notify
from tests.runtimes.children import WITHIN, command, python, until

RUN = "run-1"
ENDLESS = 1_000 * SECOND


@pytest.fixture
def notify() -> Iterator[Notify]:
    with tempfile.TemporaryDirectory() as folder:
        opened = Notify.open(Path(folder), "u")
        yield opened
        opened.close()


class Life:
    """One real child, watched: as the hands and the driver would wire it."""

    def __init__(self, child: Popen[bytes], liveness: Liveness) -> None:
        self.child = child
        self.liveness = liveness
        self.output = b""

    def read(self) -> None:
        assert self.child.stdout is not None
        data = os.read(self.child.stdout.fileno(), 65_536)
        if data:
            self.output += data
            self.liveness.printed()
        else:
            asyncio.get_running_loop().remove_reader(self.child.stdout)

    async def hung(self) -> str:
        """The code for which it is to be stopped."""
        decision = await asyncio.wait_for(asyncio.shield(self.liveness.hung), WITHIN)
        assert decision.verb is Verb.STOP
        assert decision.primary is not None
        assert decision.primary.code in HUNG_CODES
        assert decision.primary.text
        return decision.primary.code

    async def lives_for(self, seconds: float) -> None:
        """It is not said to hang for so long."""
        await asyncio.wait({self.liveness.hung}, timeout=seconds)
        assert not self.liveness.hung.done(), self.liveness.hung.result()


@asynccontextmanager
async def life(
    notify: Notify,
    text: str,
    beat: Callable[[], None] = lambda: None,
    ready_max: int = ENDLESS,
    check: Any = None,
    **unit: Any,
) -> AsyncIterator[Life]:
    """A Python child that runs this text, under a unit with these settings."""
    watched = Unit(name="u", command=("python",), **unit)
    options = {} if check is None else {"check": check}
    liveness = Liveness(watched, beat=beat, ready_max=ready_max, **options)
    notify.expect(RUN)
    with python(text, {**notify.env(RUN), **liveness.env}) as child:
        living = Life(child, liveness)
        assert child.stdout is not None
        asyncio.get_running_loop().add_reader(child.stdout, living.read)
        liveness.begin(child.pid)
        notify.listen(child.pid, liveness.hear)
        try:
            yield living
        finally:
            liveness.close()
            notify.rest()
            asyncio.get_running_loop().remove_reader(child.stdout)


FEEDS = """
import time
say("READY=1")
while True:
    say("WATCHDOG=1")
    time.sleep(int(os.environ["WATCHDOG_USEC"]) / 1e6 / 4)
"""


def test_a_fed_watchdog_is_quiet_and_a_hungry_one_is_not(notify: Notify) -> None:
    """WATCHDOG=1 as often as WATCHDOG_USEC says keeps it alive; when it stops, that is noticed within the time."""

    async def watch() -> None:
        async with life(notify, FEEDS, watchdog=500 * MILLISECOND, ready="notify") as living:
            await asyncio.wait_for(living.liveness.ready.wait(), WITHIN)
            await living.lives_for(1.2)
            os.killpg(living.child.pid, 19)  # SIGSTOP: it hangs
            began = time.monotonic()
            assert await living.hung() == "watchdog_timeout"
            assert time.monotonic() - began < 2

    asyncio.run(watch())


def test_a_child_that_never_feeds_its_watchdog_hangs(notify: Notify) -> None:
    """No WATCHDOG=1 at all: hung after the watchdog's time, not before."""

    async def watch() -> None:
        began = time.monotonic()
        async with life(notify, "sys.stdin.read()", watchdog=200 * MILLISECOND) as living:
            assert await living.hung() == "watchdog_timeout"
            assert time.monotonic() - began >= 0.2

    asyncio.run(watch())


def test_the_watchdog_waits_until_it_is_ready(notify: Notify) -> None:
    """With `ready: notify` the watchdog counts from READY=1: a slow start is no hang."""
    text = """
    import time
    time.sleep(0.4); say("READY=1"); sys.stdin.read()
    """

    async def watch() -> None:
        async with life(notify, text, watchdog=200 * MILLISECOND, ready="notify") as living:
            await asyncio.wait_for(living.liveness.ready.wait(), WITHIN)
            assert not living.liveness.hung.done()
            assert await living.hung() == "watchdog_timeout"

    asyncio.run(watch())


def test_a_child_can_say_that_it_hangs(notify: Notify) -> None:
    """WATCHDOG=trigger, as systemd has it, even without a watchdog."""

    async def watch() -> None:
        async with life(notify, 'say("WATCHDOG=trigger"); sys.stdin.read()') as living:
            assert await living.hung() == "watchdog_timeout"

    asyncio.run(watch())


def test_without_settings_there_is_no_timer_and_nothing_hangs(notify: Notify) -> None:
    """A unit that asks for nothing costs nothing: no timer, no task."""

    async def watch() -> None:
        async with life(notify, 'say("READY=1", "STATUS=fine"); sys.stdin.read()') as living:
            assert living.liveness.ready.is_set()
            await until(lambda: living.liveness.status == "fine")
            loop: Any = asyncio.get_running_loop()
            assert not [handle for handle in loop._scheduled if "liveness" in repr(handle)]
            assert len(asyncio.all_tasks()) == 1

    asyncio.run(watch())


def test_ready_in_time(notify: Notify) -> None:
    """`ready: notify`: up with READY=1, and not before."""
    text = 'sys.stdin.read(1); say("READY=1"); sys.stdin.read()'

    async def watch() -> None:
        async with life(notify, text, ready="notify") as living:
            assert not living.liveness.ready.is_set()
            assert living.child.stdin is not None
            living.child.stdin.write(b"x")
            living.child.stdin.flush()
            await asyncio.wait_for(living.liveness.ready.wait(), WITHIN)
            await living.lives_for(0.01)

    asyncio.run(watch())


def test_not_ready_in_time_is_hung(notify: Notify) -> None:
    """No READY=1 within the deadline; and with `ready: probe`, no probe that succeeds."""

    async def failing(probe: Probe, unit: Unit) -> str:
        return "connection refused"

    async def watch() -> None:
        async with life(notify, "sys.stdin.read()", ready="notify", ready_max=50 * MILLISECOND) as living:
            assert await living.hung() == "not_ready"
        probe = Probe(tcp="x:1", every=5 * MILLISECOND, failures_max=1)
        async with life(
            notify, "sys.stdin.read()", ready="probe", probe=probe, ready_max=50 * MILLISECOND, check=failing
        ) as living:
            assert await living.hung() == "not_ready"

    asyncio.run(watch())


def test_a_start_that_takes_longer_can_say_so() -> None:
    """EXTEND_TIMEOUT_USEC puts the deadline off, never back; when it is not said again, it counts."""

    async def watch() -> None:
        liveness = Liveness(Unit(name="u", command=("x",), ready="notify"), ready_max=50 * MILLISECOND)
        liveness.begin(os.getpid())
        began = time.monotonic()
        for length in ("200000", "1", "-5", "nonsense"):
            liveness.hear(Message((("EXTEND_TIMEOUT_USEC", length),)))
        decision = await asyncio.wait_for(liveness.hung, WITHIN)
        assert decision.codes == ("not_ready",)
        assert time.monotonic() - began >= 0.19
        liveness.close()

    asyncio.run(watch())


def test_one_that_stops_by_itself_is_left_in_peace_for_its_grace(notify: Notify) -> None:
    """After STOPPING=1 neither watchdog nor probe count; but it has to be gone within its grace."""

    async def failing(probe: Probe, unit: Unit) -> str:
        return "connection refused"

    async def watch() -> None:
        probe = Probe(tcp="x:1", every=300 * MILLISECOND, failures_max=1)
        async with life(
            notify,
            'say("READY=1"); say("STOPPING=1"); sys.stdin.read()',
            ready="notify",
            watchdog=200 * MILLISECOND,
            probe=probe,
            grace=600 * MILLISECOND,
            check=failing,
        ) as living:
            await asyncio.wait_for(living.liveness.ready.wait(), WITHIN)
            await living.lives_for(0.4)
            assert await living.hung() == "stuck_stopping"

    asyncio.run(watch())


def test_without_grace_what_says_that_it_stops_has_to_be_gone() -> None:
    """A grace of nothing is a length like any other."""

    async def watch() -> None:
        liveness = Liveness(Unit(name="u", command=("x",), grace=0))
        liveness.begin(os.getpid())
        liveness.hear(Message((("STOPPING", "1"),)))
        assert (await asyncio.wait_for(liveness.hung, WITHIN)).codes == ("stuck_stopping",)

    asyncio.run(watch())


def test_the_timers_of_many_lives_fire_together() -> None:
    """Started at different moments, a hundred watchdogs choose a few moments to look: waking up is what costs."""

    async def watch() -> None:
        lives = []
        for _ in range(100):
            liveness = Liveness(Unit(name="u", command=("x",), watchdog=10 * SECOND))
            liveness.begin(os.getpid())
            lives.append(liveness)
            await asyncio.sleep(0.001)
        loop: Any = asyncio.get_running_loop()
        moments = {handle.when() for handle in loop._scheduled if "_Alarm" in repr(handle)}
        assert len(moments) <= 2
        assert min(moments) >= loop.time() + 9.5
        for liveness in lives:
            liveness.close()

    asyncio.run(watch())


def test_probes_that_fail_so_often_in_a_row_are_a_hang(notify: Notify) -> None:
    """A success in between starts the count anew; the reason says what was wrong."""
    answers = iter(["no", "no", "", "no", "no", "refused"])
    asked: list[str] = []

    async def check(probe: Probe, unit: Unit) -> str:
        asked.append(unit.name)
        return next(answers)

    async def watch() -> None:
        probe = Probe(tcp="x:1", every=5 * MILLISECOND, failures_max=3)
        async with life(notify, "sys.stdin.read()", probe=probe, check=check) as living:
            assert await living.hung() == "probe_failed"
            reason = living.liveness.hung.result().primary
            assert reason is not None
            assert reason.text == "the probe failed 3 times in a row: refused"

    asyncio.run(watch())
    assert len(asked) == 6


def test_a_real_server_that_hangs_is_noticed_by_its_probe(notify: Notify) -> None:
    """Up when its port answers (`ready: probe`), hung when the process is frozen."""
    text = """
    import http.server
    class Fine(http.server.BaseHTTPRequestHandler):
        def do_GET(self): self.send_response(200); self.end_headers()
        def log_message(self, *a): pass
    server = http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Fine)
    server.serve_forever()
    """
    with socket.socket() as trying:
        trying.bind(("127.0.0.1", 0))
        port = trying.getsockname()[1]

    async def watch() -> None:
        os.environ["PORT"] = str(port)
        probe = Probe(
            http=f"http://127.0.0.1:{port}/", every=30 * MILLISECOND, timeout=150 * MILLISECOND, failures_max=2
        )
        async with life(notify, text, probe=probe, ready="probe") as living:
            await asyncio.wait_for(living.liveness.ready.wait(), WITHIN)
            await living.lives_for(0.1)
            os.killpg(living.child.pid, 19)
            assert await living.hung() == "probe_failed"
            reason = living.liveness.hung.result().primary
            assert reason is not None
            assert "no answer within 150 ms" in reason.text

    try:
        asyncio.run(watch())
    finally:
        del os.environ["PORT"]


@pytest.mark.parametrize("sign", ["print", "notify"])
def test_signs_of_life_become_beats_but_not_many(notify: Notify, sign: str) -> None:
    """Output and notifications without end become four beats in each `idle`, whatever their number."""
    says = {"print": "print('x', flush=True)", "notify": "say('STATUS=x')"}[sign]
    beats: list[float] = []

    async def watch() -> None:
        async with life(
            notify,
            f"import time\nwhile True: {says}; time.sleep(0.002)",
            beat=lambda: beats.append(time.monotonic()),
            idle=400 * MILLISECOND,
        ):
            await until(lambda: len(beats) == 8)

    asyncio.run(watch())
    gaps = [after - before for before, after in itertools.pairwise(beats)]
    assert min(gaps) >= 0.095


def test_a_single_sign_is_a_beat_at_once_and_silence_is_none(notify: Notify) -> None:
    """One line of output: one beat. Then nothing: no beat, and no timer that looks for one."""
    beats: list[float] = []

    async def watch() -> None:
        async with life(
            notify,
            "os.write(1, b'x'); sys.stdin.read()",
            beat=lambda: beats.append(time.monotonic()),
            idle=200 * MILLISECOND,
        ) as living:
            await until(lambda: beats)
            assert living.output == b"x"
            await asyncio.sleep(0.15)
            loop: Any = asyncio.get_running_loop()
            assert not [handle for handle in loop._scheduled if "_Beats" in repr(handle)]

    asyncio.run(watch())
    assert len(beats) == 1


def test_who_has_to_wait_with_its_output_is_not_silent() -> None:
    """As long as a reader holds it up there are beats; when that is over, silence is silence again."""
    beats: list[float] = []
    waits = True

    async def watch() -> None:
        nonlocal waits
        unit = Unit(name="u", command=("true",), idle=40 * MILLISECOND)
        liveness = Liveness(unit, beat=lambda: beats.append(time.monotonic()))
        liveness.begin(os.getpid(), held_up=lambda: waits)
        try:
            liveness.printed()
            await until(lambda: len(beats) == 5)
            waits = False
            loop: Any = asyncio.get_running_loop()
            await until(lambda: not [handle for handle in loop._scheduled if "_Beats" in repr(handle)])
            assert len(beats) <= 6
        finally:
            liveness.close()

    asyncio.run(watch())


def test_a_beat_file_that_is_touched_is_a_sign_of_life(notify: Notify, tmp_path: Path) -> None:
    """It need not be there at first; only a newer time counts, neither an old one nor that it was removed."""
    beats: list[float] = []
    file = tmp_path / "beat"

    async def watch() -> None:
        async with life(
            notify,
            "sys.stdin.read()",
            beat=lambda: beats.append(time.monotonic()),
            idle=80 * MILLISECOND,
            cwd=str(tmp_path),
            beat_file="beat",
        ):
            await asyncio.sleep(0.1)
            assert not beats
            file.touch()
            await until(lambda: len(beats) == 1)
            os.utime(file, (1, 1))
            await asyncio.sleep(0.05)
            file.unlink()
            await asyncio.sleep(0.05)
            assert len(beats) == 1
            file.touch()
            await until(lambda: len(beats) == 2)

    asyncio.run(watch())


HANGS_IN_PYTHON = """
from flyball.runtimes import dump
def the_place_where_it_hangs():
    sys.stdin.read()
assert dump.enable()
say("READY=1")
the_place_where_it_hangs()
"""


def test_a_python_child_that_hangs_shows_where(notify: Notify) -> None:
    """Before it is said to hang, its stacks are in its output: so they are kept with the failure."""

    async def watch() -> None:
        async with life(notify, HANGS_IN_PYTHON, watchdog=200 * MILLISECOND, ready="notify") as living:
            await living.hung()
            assert b"the_place_where_it_hangs" in living.output
            assert living.child.poll() is None

    asyncio.run(watch())


def test_a_dump_is_asked_for_only_where_it_was_agreed_to(notify: Notify, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal ends a process that does not expect it: one that said nothing never gets it."""
    monkeypatch.setattr(liveness_module, "DUMP_MAX", 0.05)

    async def watch() -> None:
        async with life(notify, 'say("STATUS=up"); sys.stdin.read()', watchdog=500 * MILLISECOND) as living:
            await until(lambda: living.liveness.status)
            assert not await living.liveness.dump()
            await living.hung()
            assert living.child.poll() is None
            # One that has ended, or whose number another process has, is not signalled either.
            living.liveness._dumps = living.child.pid, 1
            assert not await living.liveness.dump()
            assert living.child.poll() is None

    asyncio.run(watch())


def test_a_dump_that_does_not_come_is_not_waited_for(notify: Notify, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen process answers no signal: the run is ended all the same."""
    monkeypatch.setattr(liveness_module, "DUMP_MAX", 0.05)

    async def watch() -> None:
        async with life(notify, HANGS_IN_PYTHON, watchdog=ENDLESS) as living:
            await until(lambda: living.liveness._dumps)
            os.killpg(living.child.pid, 19)
            assert not await living.liveness.dump()

    asyncio.run(watch())


def test_without_a_supervisor_dumps_are_not_enabled() -> None:
    """A script that calls `enable` also runs by hand."""
    text = "from flyball.runtimes import dump; import sys; sys.exit(dump.enable())"
    env = {"NOTIFY_SOCKET": "", "FLYBALL_DUMP_SIGNAL": ""}
    with command(sys.executable, "-c", text, env=env) as child:
        assert child.wait(WITHIN) == 0


def test_one_that_outlived_its_supervisor_is_up_already() -> None:
    """An adopted life said READY=1 to somebody else, long ago."""

    async def watch() -> None:
        liveness = Liveness(Unit(name="u", command=("x",), ready="notify"), ready_max=ENDLESS)
        liveness.begin(os.getpid(), up=True)
        assert liveness.ready.is_set()
        liveness.close()

    asyncio.run(watch())


def test_after_the_end_nothing_rings() -> None:
    """Closed, no timer and no message makes it hang: the life is being ended already."""

    async def watch() -> None:
        unit = Unit(name="u", command=("x",), watchdog=20 * MILLISECOND, idle=20 * MILLISECOND)
        beats: list[int] = []
        liveness = Liveness(unit, beat=lambda: beats.append(1))
        liveness.begin(os.getpid())
        liveness.heard()
        liveness.close()
        for pairs in (("WATCHDOG", "trigger"), ("STOPPING", "1"), ("READY", "1"), ("WATCHDOG", "1")):
            liveness.hear(Message((pairs,)))
        liveness.printed()
        await asyncio.sleep(0.05)
        assert not liveness.hung.done()
        assert beats == [1]

    asyncio.run(watch())

"""Browser actions in a run of a rule: by a real worker, with a real browser. However the run ends, nothing is left."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flyball.config.rules import Browse, BrowserStep, Call, Command, Rule
from flyball.core.time import MINUTE, SECOND, Span
from flyball.runtimes import guardian
from flyball.runtimes.process import kernel
from flyball.runtimes.rule.actions import DOING
from flyball.runtimes.rule.actions.browser import PREFIX, place, sweep
from flyball.runtimes.rule.browser import find_browser
from flyball.runtimes.rule.deed import TIMED_OUT, ActionFailed, Scene
from flyball.runtimes.rule.firing import Firing
from flyball.runtimes.rule.marks import of_worker
from tests.runtimes.rule.pages import served

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_browser(os.environ) is None, reason="no Chromium here: apt-get install chromium"),
]

WITHIN = 60.0


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Pages on this machine."""
    with served() as address:
        yield address


class Nobody:
    """Units that no test here starts or stops."""

    async def start(self, unit: str, *, by: Firing) -> None:
        raise NotImplementedError

    async def stop(self, unit: str, *, by: Firing) -> None:
        raise NotImplementedError


def make_scene(folder: Path, run: str) -> Scene:
    return Scene(
        rule=Rule(name="shopping", triggers=(Command(),), actions=()),
        firing=Firing(id=run, rule="shopping", trigger="command", at=0),
        run=f"{run}.1",
        logs=folder / "logs",
        sockets=folder,
        units=Nobody(),
        notify=lambda *_: None,
    )


@contextlib.asynccontextmanager
async def run_of(scene: Scene) -> AsyncIterator[Scene]:
    """The life of a run: what it began is ended with it."""
    try:
        yield scene
    finally:
        while scene.ends:
            await scene.ends.pop()()


async def browse(scene: Scene, *steps: BrowserStep, seconds: float = WITHIN) -> Any:
    return await DOING[Browse](scene, Browse(steps=steps), seconds)


def step(verb: str, target: str, timeout: Span = MINUTE, name: str = "") -> BrowserStep:
    return BrowserStep(verb=verb, target=target, timeout=timeout, name=name)


def belonging(scene: Scene) -> set[int]:
    """All living processes of the run's worker: by their mark, by the folder of the browser that they name, and what
    descends from those."""
    said = os.fsencode(f"FLYBALL_RUN={of_worker(scene.run)}")
    names = [os.fsencode(scene.folder)] if scene.folder is not None else []
    found = set()
    for pid in kernel.everybody():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                continue
            line, env = Path(f"/proc/{pid}/cmdline").read_bytes(), Path(f"/proc/{pid}/environ").read_bytes()
            if said in env.split(b"\0") or any(name in line for name in names):
                found.add(pid)
    for pid in list(found):
        found.update(map(int, kernel.children(pid)))
    return found


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if (stat := kernel.stat(pid)) is not None and not stat.dead}


async def done(scene: Scene, site: str) -> None:
    assert (await browse(scene, step("goto", f"{site}/shop")))["title"] == "The shop"
    assert (await browse(scene, step("extract", "h1", name="h1")))["h1"] == "Best price"


async def failed(scene: Scene, site: str) -> None:
    with pytest.raises(ActionFailed) as caught:
        await browse(scene, step("goto", f"{site}/shop"), step("click", "#buy-old", SECOND // 10))
    assert (caught.value.error, caught.value.target) == ("SelectorNotFound", "#buy-old")


async def timed_out(scene: Scene, site: str) -> None:
    """On a page that is loading for ever."""
    await browse(scene, step("goto", f"{site}/shop"))
    with pytest.raises(ActionFailed) as caught:
        await browse(scene, step("goto", f"{site}/endless"), seconds=1.0)
    assert caught.value.error == TIMED_OUT
    assert belonging(scene) == set()


async def cancelled(scene: Scene, site: str) -> None:
    await browse(scene, step("goto", f"{site}/hangs"))
    task = asyncio.create_task(browse(scene, step("click", "#go"), step("wait", "#never")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert belonging(scene) == set()


async def after_a_call(scene: Scene, site: str) -> None:
    """The worker was begun before there was a folder, by a function that needs an event loop; and so does the next."""
    for _ in range(2):
        called = await DOING[Call](scene, Call(function="asyncio:sleep", arguments={"delay": 0, "result": 5}), WITHIN)
        assert called == {"result": 5}
        assert (await browse(scene, step("goto", f"{site}/shop")))["title"] == "The shop"


ENDS: dict[str, Callable[[Scene, str], Awaitable[None]]] = {
    "done": done,
    "failed": failed,
    "timed out": timed_out,
    "cancelled": cancelled,
    "after a call": after_a_call,
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow if case in ("failed", "after a call") else ()) for case in ENDS]
)
def test_nothing_is_left(case: str, site: str, tmp_path: Path) -> None:
    """When the run is over there is no browser, no driver and no folder of its any more."""

    async def main() -> tuple[Scene, set[int]]:
        begun: set[int] = set()
        async with run_of(make_scene(tmp_path, f"left-{case.replace(' ', '-')}")) as scene:

            async def watch() -> None:
                while True:
                    begun.update(belonging(scene))
                    await asyncio.sleep(0.1)

            watching = asyncio.create_task(watch())
            await ENDS[case](scene, site)
            begun.update(belonging(scene))
            watching.cancel()
            assert scene.folder is not None
            assert scene.folder.exists()
        return scene, begun

    scene, begun = asyncio.run(main())
    assert len(begun) >= 4  # the worker, the driver, the browser and its helpers
    assert alive(begun) == set()
    assert belonging(scene) == set()
    assert scene.folder is not None
    assert not scene.folder.exists()


@pytest.mark.slow
def test_attempt_after_a_timeout(site: str, tmp_path: Path) -> None:
    """What hung was ended; another attempt in the same run has a new browser."""

    async def main() -> None:
        async with run_of(make_scene(tmp_path, "again")) as scene:
            await timed_out(scene, site)
            await done(scene, site)

    asyncio.run(main())


KILLED = """
    import asyncio, sys
    from pathlib import Path
    from flyball.config.rules import Browse, BrowserStep
    from flyball.core.time import MINUTE
    from flyball.runtimes.rule.actions import DOING
    from tests.runtimes.rule.test_browser_run import browse, make_scene, step

    async def main():
        scene = make_scene(Path(sys.argv[1]), "killed")
        await browse(scene, step("goto", sys.argv[2] + "/hangs"))
        print(scene.folder, flush=True)
        await browse(scene, step("click", "#go"), step("wait", "#never"))

    asyncio.run(main())
"""


def test_daemon_is_killed(site: str, tmp_path: Path) -> None:
    """The guardian leaves no process alive, also while the page hangs; the folder is removed by the next daemon, which
    does not touch one that is in use."""
    script = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), site]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(guardian.command(script), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as guard:
        assert guard.stdout is not None
        said = guard.stdout.readline().decode().strip()
        assert said, guard.communicate()
        folder = Path(said)
        scene = make_scene(tmp_path, "killed")
        scene.folder = folder
        begun = belonging(scene)
        assert len(begun) >= 4
        sweep(place())
        assert folder.exists()
        [supervisor] = map(int, kernel.children(guard.pid))
        os.kill(supervisor, signal.SIGKILL)
        guard.communicate(timeout=WITHIN)
    assert alive(begun) == set()
    assert belonging(scene) == set()
    assert folder.exists()
    sweep(place())
    assert not folder.exists()


def test_sweep_is_careful(tmp_path: Path) -> None:
    """Only folders of that name are removed, and no link is followed."""
    other, ours, file = tmp_path / "other", tmp_path / f"{PREFIX}x", tmp_path / f"{PREFIX}file"
    other.mkdir()
    ours.mkdir()
    (ours / "Default").mkdir()
    file.write_text("")
    (tmp_path / f"{PREFIX}link").symlink_to(other)
    sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"other", f"{PREFIX}file", f"{PREFIX}link"}

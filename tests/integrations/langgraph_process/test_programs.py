"""Programs that run a graph, and are killed or interrupted: nothing of the graph outlives them."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.integrations.langgraph_process.scene import is_alive, wait_for

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]

PROGRAM = """
    import os, pathlib, subprocess, sys, time
    import flyball
    from flyball.integrations.langgraph import guard
    from tests.integrations.langgraph_process.graphs import line_of

    folder = pathlib.Path(sys.argv[1])

    def hangs(state):
        started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(10**6)"])
        (folder / "pids.new").write_text(f"{os.getpid()} {started.pid}")
        (folder / "pids.new").rename(folder / "pids")
        time.sleep(10**6)

    with flyball.open("program", state_dir=folder / "state") as opened:
        try:
            guard(line_of(("hangs", hangs)), guard=opened).invoke({"notes": []})
        except KeyboardInterrupt:
            print("interrupted")
            sys.exit(130)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_a_program_that_ends(number: signal.Signals, tmp_path: Path) -> None:
    """However the program ends, the process of its graph ends with it, and so does what that has started. Ctrl-C is
    the program's: it is passed on."""
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM), encoding="utf-8")
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    program = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        wait_for(lambda: (tmp_path / "pids").exists() or program.poll() is not None)
        pids = [int(pid) for pid in (tmp_path / "pids").read_text(encoding="utf-8").split()]
        assert all(is_alive(pid) for pid in pids)
        program.send_signal(number)
        said, _ = program.communicate(timeout=30)
        wait_for(lambda: not any(is_alive(pid) for pid in pids))
    finally:
        program.kill()
        program.communicate()
    if number is signal.SIGINT:
        assert (program.returncode, said) == (130, b"interrupted\n")
    else:
        assert program.returncode == -number

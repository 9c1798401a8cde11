"""What differs from page to page, and what cannot be done here. This is the file to add a line to.

A command that a page shows is typed in the world of `world.py`, and must end with 0. If it is not so:

- it needs something in that world: a `Page` of its own, in PAGES; or, if many pages need it, in `world.py`;
- it ends with another code, and the page says so: a line in CODES;
- it cannot be done where tests run: a line in EXCEPTED, which says why, and which test does it instead, if one does.

Every line here is needed: one that fits nothing any more fails a test.
"""

import gzip
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from tests.control.fleet import run_on, three_hosts
from tests.control.scene import Scene
from tests.docs.pages import Command, blocks
from tests.docs.world import SECRET, everything


class Excepted(NamedTuple):
    """Commands that are not typed."""

    pattern: str
    why: str
    test: str = ""
    """The test file that does the same, if there is one."""


EXCEPTED: Final = (
    Excepted(r"docker ", "there is no container engine"),
    Excepted(r"kubectl ", "there is no cluster; what it applies is read by a test", "tests/test_deploy.py"),
    Excepted(r"(systemctl|journalctl) ", "the first process here is not systemd"),
    Excepted(r"(createuser|createdb) ", "there is no PostgreSQL of the machine's own; tests bring one without these"),
    Excepted(r"temporal ", "Temporal's own; the reset by its API", "tests/integrations/temporal/test_kills.py"),
    Excepted(r"python examples/agents/budget\.py", "done there", "tests/durability/test_money.py"),
    Excepted(r"python examples/fleet/three_hosts\.py", "takes half a minute", "tests/fleet/test_example.py"),
    Excepted(
        r"flyball drill\b(?!.*--list)", "two safeguards are out of reach in this world", "tests/drill/test_drill.py"
    ),
    Excepted(r"FLYBALL_FLEET_SEEDS=100 ", "takes hours; CI runs fewer seeds", "tests/fleet/test_schedules.py"),
    Excepted(r"python examples/deliberation --model ", "needs a model that is paid for; --offline is the same program"),
)

CODES: Final[Mapping[tuple[str, str], int]] = {
    ("docs/how-to/after-a-timeout.md", "flyball resume --user ann"): 1,  # one of them is out of resumes, and stays held
    ("docs/how-to/agent-cli-overnight.md", "flyball run"): 75,  # the page is about what is held in the end
    ("docs/how-to/deliberation.md", "DELIBERATION_TIMEOUT_SECONDS=2"): 3,  # timed_out
    ("docs/how-to/terminal.md", "flyball status --check"): 1,  # something needs a person
    ("docs/tutorial.md", "flyball run --name agent --deadline"): 75,  # the first time it is held in the end
}
"""Exit codes other than 0, by page and how the command begins."""


class Page(NamedTuple):
    """How the world of a page differs from that of all others."""

    past: Callable[[Scene], None] = everything
    programs: Mapping[str, str] = {}
    """Of the user, on the PATH."""
    files: Mapping[str, str | bytes] = {}
    """Of the user, in the folder that commands are typed in."""
    env: Mapping[str, str] = {}
    settings: Mapping[str, Any] = {}
    own_settings: bool = True
    """The settings that the page shows are in force."""
    daemon: bool = True
    """One runs, unless the page starts it itself."""
    first: Mapping[str, str] = {}
    """What is typed before a command that begins so: the page shows several ways, and goes on with one of them."""
    inside: bool = False
    """What is typed there is typed inside of a unit."""


def nothing(scene: Scene) -> None:
    """There is no past."""


def of_hosts(scene: Scene) -> None:
    """Hosts a, b and c, and what runs on b."""
    scene.at(0)
    three_hosts(scene)
    run_on(scene.governor, "b", "web", "gpu-1")


def of_temporal(scene: Scene) -> None:
    """An activity that is held."""
    everything(scene)
    scene.at(60_000_000)
    scene.flap("think@research-42.1", 7)


RUNS: Final = gzip.compress(
    b'{"source": "my-agent", "run": "1", "steps": [{"tool": "bash", "args": "ls", "result": "src", "reward": 0.0}]}\n'
)
SAVED: Final = [block.text for block in blocks("docs/tutorial.md") if block.language == "python"]
"""The programs that the tutorial has people save, as it shows them."""
STRICT: Final = "quarantine: {max_failures_before_quarantine: 3}\n"

PAGES: Final[Mapping[str, Page]] = {
    "README.md": Page(  # whoever types `init` has no settings yet, and names units in what it wrote
        first={"flyball init": "rm -f flyball.yaml", "flyball up": "cp my.yaml flyball.yaml"}
    ),
    "docs/how-to/agent-cli-overnight.md": Page(
        past=nothing, daemon=False, programs={"my-agent": "#!/bin/sh\nexit 3\n"}
    ),
    "docs/how-to/demo.md": Page(  # the demo ends where there is no terminal; these stand for its units
        settings={"units": {name: {"command": ["sleep", "1000"]} for name in ("invoice-parser", "mail-triage")}}
    ),
    "docs/how-to/fleet.md": Page(daemon=False),  # it has a PostgreSQL
    "docs/how-to/hosts.md": Page(past=of_hosts, daemon=False),
    "docs/how-to/http-api.md": Page(first={"TOKEN=": "flyball up -d"}),
    "docs/how-to/monitoring.md": Page(settings={"traces": {"exporter": "console"}}),  # the other one is not installed
    "docs/how-to/replay.md": Page(files={"strict.yaml": STRICT, "RUNS.jsonl.gz": RUNS}),
    "docs/how-to/report-from-a-child.md": Page(inside=True, env={"query": "owls", "hits": "3"}),
    "docs/how-to/session-units.md": Page(inside=True, files={"state.part": "{}"}, own_settings=False),
    "docs/how-to/temporal.md": Page(past=of_temporal),
    "docs/how-to/webhooks.md": Page(env={"HOOK_SECRET": SECRET, "HOOK_SECRET_NEW": SECRET}),
    "docs/tutorial.md": Page(
        past=nothing,
        daemon=False,
        own_settings=False,  # it writes them
        files=dict(zip(("agent.py", "listen.py"), SAVED, strict=True)),
        first={"flyball init": "rm -f flyball.yaml"},
    ),
}


def excepted(command: Command) -> Excepted | None:
    """Why it is not typed; nothing if it is."""
    return next((one for one in EXCEPTED if re.match(one.pattern, command.bare)), None)


def code_of(command: Command) -> int:
    """What it is to end with."""
    codes = [code for (page, begins), code in CODES.items() if page == command.page and command.bare.startswith(begins)]
    return codes[0] if codes else 0

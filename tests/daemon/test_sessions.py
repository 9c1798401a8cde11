"""Sessions as units: they pause, are resumed from their checkpoints by themselves, over all deaths, not for ever."""

import contextlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import apsw
import pytest

from flyball.core.event import Released
from flyball.governor import Governor
from flyball.policies import Session
from flyball.store.sqlite import SqliteStore
from tests.daemon.site import Site, has_ended, until

pytestmark = pytest.mark.slow

WORKER = Path(__file__).with_name("session_worker.py")
EXAMPLE = Path(__file__).parents[2] / "examples" / "sessions"


def session(stages: int, after: float = 0, then: str = "pauses", **more: Any) -> dict[str, Any]:
    """The settings of one."""
    command = [sys.executable, str(WORKER), str(stages), str(after), then]
    return {"kind": "session", "command": command, "cwd": ".", **more}


def runs(site: Site, name: str = "work") -> list[str]:
    """What each run found: resumed / checkpoint / content of its file."""
    file = site.folder / f"{name}.runs"
    return file.read_text().splitlines() if file.exists() else []


def events(site: Site, *kinds: str) -> list[dict[str, Any]]:
    """What the journal has of these."""
    return [event for event in site.ask("events", limit=1000)["events"] if event["event"] in kinds]


def starts(site: Site) -> list[str]:
    """Starts and resumes that were granted, in their order."""
    return [event["event"] for event in events(site, "start", "resume") if event["verb"] == "proceed"]


def counted(site: Site) -> int:
    """How many resumes the store has counted."""
    with apsw.Connection(
        f"file:{site.state / 'state.db'}?mode=ro", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    ) as connection:
        data = connection.execute("SELECT data FROM state WHERE policy = 'resumes' AND subject = 'work'").get
    return int(json.loads(data)["count"]) if data else 0


def ended(site: Site, name: str = "work") -> None:
    """Wait until its last run is over, and no other comes."""
    until(lambda: site.status()[name]["state"] == "finished", "the end of the work")


def kill_daemon(site: Site) -> None:
    """kill -9, and wait until the guardian has done its work."""
    found = site.ping()
    os.kill(found["pid"], signal.SIGKILL)
    until(lambda: has_ended(found["guardian"]), "the end of the guardian")


def test_pauses_and_is_resumed_until_it_is_done(site: Site) -> None:
    """S2-01: whatever its exit code, a run that said so is paused, and goes on by itself from what it kept; that is no
    restart. What is done stays so when the daemon comes again, and begins anew when a person starts it."""
    site.write({"work": session(3, 0.05)})
    site.flyball("up", "-d")
    ended(site)
    assert runs(site) == ["//", "1/1/1", "1/2/2"]
    assert starts(site) == ["start", "resume", "resume"]
    exits = events(site, "exited")
    assert [event["data"].get("pause") for event in exits] == ["rate_limit", "rate_limit", None]
    assert [(event["data"]["cause"], event["data"]["code"]) for event in exits] == [
        ("stopped", 3),
        ("stopped", 3),
        ("done", 0),
    ]
    assert site.status()["work"]["restarts"] == {"last_hour": 0, "total": 0, "by_hand": 0}
    assert "work: resume 2 of 3, from checkpoint 2" in site.log()
    site.down()
    assert not list((site.state / "sessions").iterdir()), "its file lives as long as somebody looks after it"
    site.flyball("up", "-d")
    assert site.status()["work"]["state"] == "finished"
    site.order("start", "work")
    until(lambda: len(runs(site)) == 6, "new work")
    assert runs(site)[3:] == ["//", "1/1/1", "1/2/2"], "nothing of the old work is left, nor of its count"


def test_the_fourth_resume_fails(site: Site) -> None:
    """S2-30, S2-32: resumes by themselves are counted, over daemons; the fourth is refused and no run begins. S2-08: so
    an agent that always pauses ends."""
    site.write({"work": session(100)})
    site.flyball("up", "-d")
    until(lambda: len(runs(site)) == 2, "a resume")
    site.down()
    site.flyball("up", "-d")
    refused = until(lambda: [event for event in events(site, "resume") if event["verb"] == "hold"], "a refusal")
    assert refused[-1]["reasons"][0]["code"] == "max_resume_attempts_exceeded"
    assert "(4/3)" in refused[-1]["reasons"][0]["text"]
    said = "work asked to resume; is held: Maximum resume attempts exceeded (4/3)"
    until(lambda: said in site.log(), "a line of the log")
    assert len(runs(site)) <= 4
    before = runs(site)
    kill_daemon(site)
    site.flyball("up", "-d")
    site.order("start", "work")
    assert runs(site) == before, "it has failed: neither a new daemon nor a start gives it another attempt"
    site.order("resume", "work")
    until(lambda: len(runs(site)) == len(before) + 3, "a person's new set of attempts")


@pytest.mark.parametrize("resumes", [0, 1])
def test_its_own_limit(resumes: int, site: Site) -> None:
    """S2-35: a unit may have a limit of its own; 0: it is never resumed."""
    site.write({"work": session(100, resumes=resumes)})
    site.flyball("up", "-d")
    until(lambda: [event for event in events(site, "resume") if event["verb"] == "hold"], "a refusal")
    assert len(runs(site)) == 1 + resumes


def test_a_daemon_that_is_killed_in_the_middle(site: Site) -> None:
    """kill -9 of the daemon: nothing is lost but the stage in work, and to go on is a resume like any other. So it is
    after `down`."""
    site.write({"work": session(100, 0, "waits")})
    site.flyball("up", "-d")
    until(lambda: events(site, "stepped"), "a checkpoint")
    kill_daemon(site)
    site.flyball("up", "-d")
    until(lambda: len(events(site, "stepped")) == 2, "another checkpoint")
    site.down()
    site.flyball("up", "-d")
    until(lambda: len(events(site, "stepped")) == 3, "a third one")
    assert runs(site) == ["//", "1/1/1", "1/2/2"]
    assert starts(site) == ["start", "resume", "resume"]
    assert "work: resume 2 of 3" in site.log()


def test_a_daemon_that_is_killed_during_a_pause(site: Site) -> None:
    """What is paused stays so until its time, whoever looks after it then."""
    after = 1.5
    site.write({"work": session(2, after)})
    site.flyball("up", "-d")
    until(lambda: events(site, "exited"), "a pause")
    kill_daemon(site)
    site.flyball("up", "-d")
    ended(site)
    assert runs(site) == ["//", "1/1/1"]
    (said,) = (event["at"] for event in events(site, "exited") if event["data"]["cause"] == "stopped")
    (resumed,) = (event["at"] for event in events(site, "resume") if event["verb"] == "proceed")
    # It said for how long before it exited, so a little less is left then.
    assert resumed - said > after - 0.5


@pytest.mark.parametrize("by_signal", [True, False])
def test_a_crash_is_resumed_and_counted(by_signal: bool, site: Site) -> None:
    """A run that is killed, or fails, goes on from its last checkpoint after its cooldown: by the same counter."""
    site.write({"work": session(100, 0, "waits" if by_signal else "crashes")})
    site.flyball("up", "-d")
    for number in range(4):
        until(lambda number=number: len(events(site, "stepped")) > number, "a checkpoint")  # type: ignore[misc]
        if by_signal:
            os.kill(site.ping()["pids"]["work"], signal.SIGKILL)
    until(lambda: [event for event in events(site, "resume") if event["verb"] == "hold"], "a refusal")
    assert runs(site) == ["//", "1/1/1", "1/2/2", "1/3/3"]


def test_by_priority(site: Site) -> None:
    """Sessions that may all be resumed at once, because a person said so while no daemon was there, are resumed one
    after the other: those with a higher priority first, not in the order of the file."""
    priorities = {"low": 0, "high": 50, "mid": 10, "top": 100}
    site.write({name: session(2, 0, "person", priority=priority) for name, priority in priorities.items()})
    site.flyball("up", "-d")
    until(lambda: len(events(site, "exited")) == len(priorities), "pauses")
    site.down()
    with contextlib.closing(SqliteStore(site.state / "state.db")) as store:
        governor = Governor([Session()], store)
        for name in priorities:
            governor.submit(Released(unit=name, policies=("session",), by="ann"))
    site.flyball("up", "-d")
    until(lambda: all(site.status()[name]["state"] == "finished" for name in priorities), "the end of all")
    resumed = [event["unit"] for event in events(site, "resume") if event["verb"] == "proceed"]
    assert resumed == ["top", "high", "mid", "low"]


def test_a_person_resumes_it_earlier(site: Site) -> None:
    """A person does not wait for the end of a pause, and may name the checkpoint to go on from; each is counted."""
    site.write({"work": session(3, 3600)})
    site.flyball("up", "-d")
    until(lambda: events(site, "exited"), "a pause")
    site.order("resume", "work")
    until(lambda: len(events(site, "exited")) == 2, "another pause")
    assert runs(site) == ["//", "1/1/1"]
    assert site.ask("resume", units=["work"], checkpoint="1")
    until(lambda: len(events(site, "exited")) == 3, "a third one")
    assert runs(site)[2] == "1/1/1"
    site.order("resume", "work")
    ended(site)
    assert runs(site)[3] == "1/3/2"
    assert "work: resume 3 of 3, from checkpoint 3" in site.log()


def test_a_person_pauses_it(site: Site) -> None:
    """What runs is ended, keeps its checkpoint, and waits; it goes on when the person says so: a resume."""
    site.write({"work": session(100, 0, "waits")})
    site.flyball("up", "-d")
    until(lambda: events(site, "stepped"), "a checkpoint")
    site.order("pause", "work")
    until(lambda: events(site, "exited"), "an exit")
    site.gone()
    site.order("resume", "work")
    until(lambda: len(runs(site)) == 2, "a resume")
    assert runs(site) == ["//", "1/1/1"]
    assert starts(site) == ["start", "resume"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_any_instant(seed: int, site: Site) -> None:
    """kill -9 of the daemon at random, in the middle of a stage, a checkpoint, a resume: no checkpoint that a run was
    told of is lost, every run but the first was counted as a resume before it began, and in the end it has failed."""
    dice = random.Random(seed)
    resumes = 12
    site.write({"work": session(1_000_000, 0, resumes=resumes)})
    site.flyball("up", "-d")
    kept = site.folder / "work.kept"
    for _ in range(6):
        time.sleep(dice.uniform(0, 0.6))  # the moment of the kill is what is varied
        kill_daemon(site)
        before, told = len(runs(site)), int(kept.read_text() or 0) if kept.exists() else 0
        granted = counted(site)
        assert before <= 1 + granted
        site.flyball("up", "-d")
        until(lambda before=before: len(runs(site)) > before or counted(site) == resumes, "a run")  # type: ignore[misc]
        assert all(int(line.rpartition("/")[2] or 0) >= told for line in runs(site)[before:])
    until(lambda: [event for event in events(site, "resume") if event["verb"] == "hold"], "a refusal")
    assert len(runs(site)) <= 1 + resumes
    assert len(starts(site)) == 1 + resumes


def test_one_that_outlives_its_daemon(site: Site) -> None:
    """`on_supervisor_death: keep`: the same run is adopted, its next checkpoint is heard, and it was not resumed."""
    site.write({"work": session(100, 0, "goes", on_supervisor_death="keep")})
    site.flyball("up", "-d")
    until(lambda: events(site, "stepped"), "a checkpoint")
    kill_daemon(site)
    site.flyball("up", "-d")
    (site.folder / "go").touch()
    ended(site)
    assert len(events(site, "stepped")) == 2
    assert (runs(site), starts(site)) == (["//"], ["start"])


def _damage(site: Site, *numbers: int) -> None:
    """Change what is stored, as a bad disk would."""
    change = """UPDATE state SET data = replace(data, '"text":"', '"text":"9')
        WHERE policy = 'checkpoint' AND subject = ?"""
    with apsw.Connection(str(site.state / "state.db")) as connection:
        for number in numbers:
            connection.execute(change, (f"work/{number:06}",))
            assert connection.changes() == 1


def test_a_damaged_checkpoint(site: Site) -> None:
    """The newest one is damaged: the last good one is used, and that is said. All are: no run begins, and the unit's
    last exit says why."""
    site.write({"work": session(100, 0, "waits")})
    site.flyball("up", "-d")
    until(lambda: events(site, "stepped"), "a checkpoint")
    os.kill(site.ping()["pids"]["work"], signal.SIGKILL)
    until(lambda: len(events(site, "stepped")) == 2, "another one")
    site.down()
    _damage(site, 2)
    site.flyball("up", "-d")
    until(lambda: len(runs(site)) == 3, "another run")
    assert runs(site)[2] == "1/1/1"
    assert "checkpoint 2 of work is damaged" in site.log()
    until(lambda: len(events(site, "stepped")) == 3, "a checkpoint after it")
    site.down()
    _damage(site, 1, 3)
    site.flyball("up", "-d")
    until(lambda: (site.status()["work"]["last_exit"] or {}).get("error") == "no checkpoint", "an exit that says so")
    assert len(runs(site)) == 3
    assert "all checkpoints of work (1, 2, 3) are damaged" in (site.state / "logs" / "work.log").read_text()


def test_a_checkpoint_that_cannot_be_kept(site: Site) -> None:
    """By the command: what is wrong is said, with exit code 2, and the last good checkpoint stands."""
    bad = (
        'echo good > "$FLYBALL_CHECKPOINT"; flyball report checkpoint --stage one --json || exit 9; '
        'ln -sf /etc/passwd "$FLYBALL_CHECKPOINT"; flyball report checkpoint; echo "code $?"; '
        "flyball report pause 'no name!'; echo \"code $?\"; flyball report pause person"
    )
    site.env["PATH"] = f"{Path(sys.executable).parent}:{site.env['PATH']}"
    site.write({"work": {"kind": "session", "command": ["sh", "-c", bad]}})
    site.flyball("up", "-d")
    until(lambda: events(site, "exited"), "an exit")
    printed = (site.state / "logs" / "work.log").read_text()
    assert '"verb": "proceed"' in printed
    assert "is a link" in printed
    assert "'no name!' is no name" in printed
    assert printed.count("code 2") == 2
    assert "root:" not in printed
    assert len(events(site, "stepped")) == 1
    # It waits for a person; who resumes it gives it back what it had kept.
    site.order("resume", "work")
    until(lambda: "resume 1 of 3, from checkpoint 1" in site.log(), "a resume")


def test_the_example(site: Site) -> None:
    """examples/sessions: two sources, a pause, two more."""
    for file in EXAMPLE.iterdir():
        if file.suffix in (".sh", ".yaml"):
            (site.folder / file.name).write_text(file.read_text())
    site.env |= {"PATH": f"{Path(sys.executable).parent}:{site.env['PATH']}", "WORK_SECONDS": "0", "PAUSE": "0s"}
    site.flyball("up", "-d")
    ended(site, "digest")
    printed = (site.state / "logs" / "digest.log").read_text().splitlines()
    assert printed == ["read north", "read east", "resumed after 2 sources", "read south", "read west", "done"]

"""What a process is started with, and what is said when it cannot be started: never by raising."""

import contextlib
import errno
import grp
import os
import pwd
import resource
import signal
import stat
from typing import Any

import pytest

from flyball.core.event import Cause
from flyball.core.time import SECOND
from flyball.runtimes.driver import Ending
from flyball.runtimes.process import ProcessHands, spawn
from tests.runtimes.process.stage import HANGS, Stage, needs_root, run


def printed(stage: Stage, script: str, **settings: Any) -> str:
    """What a shell prints that is started so."""
    ending = run(stage.ending(stage.shell(script, **settings)))
    assert ending.cause is Cause.DONE, ending
    return stage.log.decode().strip()


def refused(stage: Stage, *command: str, **settings: Any) -> Ending:
    ending = run(stage.ending(stage.hands(*command, **settings)))
    assert (ending.code, ending.signal) == (None, None)
    assert ending.fingerprint
    return ending


def test_environment(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit's environment lies on top of the supervisor's; the unit, the run and what is given extra are told."""
    monkeypatch.setenv("OUTER", "outer")
    monkeypatch.setenv("BOTH", "outer")
    monkeypatch.setenv("NOTIFY_SOCKET", "of the supervisor")
    monkeypatch.setenv("FLYBALL_GUARDIAN", "3")
    spawn.inherited.cache_clear()
    script = 'echo "$OUTER $BOTH $FLYBALL_UNIT $FLYBALL_RUN $GIVEN ${NOTIFY_SOCKET-none} ${FLYBALL_GUARDIAN-none}"'
    unit = stage.shell(script, env={"BOTH": "inner"}).unit
    hands = ProcessHands(unit, logs=stage.logs, extra_env={"GIVEN": "given"})
    run(stage.ending(hands))
    spawn.inherited.cache_clear()
    assert stage.log.decode().split() == ["outer", "inner", stage.name, f"{stage.name}.1", "given", "none", "none"]


def test_what_is_withheld(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that is not for units is inherited by none; one whose own settings give it has it all the same."""
    for name in ("TOKEN", "OTHER"):
        monkeypatch.setenv(name, "outer")
    spawn.inherited.cache_clear()
    assert "TOKEN" in spawn.inherited()
    spawn.withhold(["TOKEN", "OTHER", "NOT_THERE"])
    found = printed(stage, 'echo "${TOKEN-none} ${OTHER-none}"', env={"OTHER": "own"})
    assert found.split() == ["none", "own"]


def test_folder(stage: Stage) -> None:
    """It runs where the unit says."""
    (stage.folder / "place").mkdir()
    assert printed(stage, "pwd", cwd=str(stage.folder / "place")) == str(stage.folder / "place")


def test_nothing_is_inherited(stage: Stage) -> None:
    """It reads nothing, and has no file of the supervisor's open, inheritable or not."""
    descriptor = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    try:
        out = printed(stage, "cat; readlink /proc/self/fd/0; exec ls /proc/self/fd")
    finally:
        os.close(descriptor)
    assert out.split() == ["/dev/null", "0", "1", "2", "3"], "3 is the folder that ls looks at"


def test_signals_are_as_usual(stage: Stage) -> None:
    """Python ignores SIGPIPE; its children do not."""
    before = signal.getsignal(signal.SIGPIPE)
    assert before is signal.SIG_IGN
    ignored = int(printed(stage, "grep SigIgn /proc/self/status").split()[1], 16)
    assert not ignored & 1 << (signal.SIGPIPE - 1)


def test_limits_are_in_force_from_the_start(stage: Stage) -> None:
    """Memory and open files are bounded before the first instruction, and for all that it starts."""
    out = printed(stage, "ulimit -v; ulimit -n; sh -c 'ulimit -n'", memory_max=512 * 1024 * 1024, files_max=64)
    assert out.split() == [str(512 * 1024), "64", "64"]


def test_memory_limit_ends_what_is_greedy(stage: Stage) -> None:
    """What wants more than its limit fails, and the failure says so."""
    hands = stage.hands("python3", "-c", "x = bytearray(1 << 30)", memory_max=256 * 1024 * 1024)
    ending = run(stage.ending(hands))
    assert (ending.code, ending.error) == (1, "MemoryError")


def test_a_limit_never_lifts_ours(stage: Stage) -> None:
    """A limit above our own hard one is not asked for: ours is stricter, and asking would fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if os.geteuid() != 0 and hard != resource.RLIM_INFINITY:
        assert printed(stage, "ulimit -n", files_max=hard + 1) == str(hard)
    assert soft <= hard or hard == resource.RLIM_INFINITY


def test_nice(stage: Stage) -> None:
    """It is as nice as it was told to be."""
    assert printed(stage, "until [ $(nice) = 7 ]; do :; done; nice", nice=7) == "7"


@needs_root()
def test_nice_without_the_right(stage: Stage) -> None:
    """Where nice may not be set, nothing runs."""

    def forbidden(which: int, who: int, nice: int) -> None:
        raise PermissionError(errno.EACCES, "no")

    patch = pytest.MonkeyPatch()
    patch.setattr(os, "setpriority", forbidden)
    try:
        ending = refused(stage, "/bin/sleep", "60", nice=-5)
    finally:
        patch.undo()
    assert (ending.cause, ending.error) == (Cause.ERROR, "no right to change nice")


@needs_root()
def test_user(stage: Stage) -> None:
    """It runs as that user, with its groups and its home, and its output is still kept."""
    who = pwd.getpwnam("nobody")
    stage.folder.chmod(0o755)
    out = printed(stage, "id -u; id -g; echo $HOME $USER", user="nobody", cwd="/")
    assert out.split() == [str(who.pw_uid), str(who.pw_gid), who.pw_dir, "nobody"]
    assert printed(stage, "id -u", user=str(who.pw_uid), cwd="/").split()[-1] == str(who.pw_uid)


@needs_root()
def test_group(stage: Stage) -> None:
    """A group alone can be changed."""
    assert printed(stage, "id -g", group="nogroup", cwd="/") == str(grp.getgrnam("nogroup").gr_gid)


def test_own_user_needs_no_right(stage: Stage) -> None:
    """To run as who we are is nothing to ask for."""
    name = pwd.getpwuid(os.geteuid()).pw_name
    assert printed(stage, "id -un", user=name) == name


def test_continue_args_after_a_failure_only(stage: Stage) -> None:
    """The arguments that continue are added to a restart after a failure: not to a first start, not after a clean exit;
    after the supervisor's own death, because then the run was lost."""

    async def play() -> list[str]:
        script = 'echo "$0 $*" >> args; read code < code; exit $code'
        hands = stage.hands("/bin/sh", "-c", script, "first", continue_args=("--continue",))
        for again, code in ((False, 1), (True, 0), (True, 0), (False, 1), (False, 0), (True, 0)):
            (stage.folder / "code").write_text(f"{code}\n")
            await stage.ending(hands, again=again)
        anew = stage.hands("/bin/sh", "-c", script, "first", continue_args=("--continue",))
        await stage.ending(anew, again=True)
        return (stage.folder / "args").read_text().splitlines()

    on, off = "first --continue", "first "
    assert run(play()) == [off, on, off, off, off, off, on]


LIMITED: list[dict[str, Any]] = [{}, {"files_max": 64}]


@pytest.mark.parametrize("settings", LIMITED, ids=["plain", "limited"])
@pytest.mark.parametrize("command", ["no-such-command", "./no-such-command", "/no/such/command"])
def test_command_not_found(stage: Stage, command: str, settings: dict[str, Any]) -> None:
    """What is not there is an error that names it, also when a shell sets limits first."""
    ending = refused(stage, command, **settings)
    assert (ending.cause, ending.error) == (Cause.ERROR, "command not found")
    assert command in ending.detail
    assert stage.name in ending.detail
    assert ending.detail.encode() in stage.log, "where people look first"


def test_a_closed_folder_in_path(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in PATH that may not be entered does not make a command that is nowhere look like one that is there."""

    def forbidden(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "no", "no-such-command")

    monkeypatch.setattr("subprocess.Popen", forbidden)
    assert refused(stage, "no-such-command").error == "command not found"


@pytest.mark.parametrize("settings", LIMITED, ids=["plain", "limited"])
def test_not_executable(stage: Stage, settings: dict[str, Any]) -> None:
    """A file that is no program, or a folder, is another error."""
    (stage.folder / "data").write_text("#!/bin/sh\n")
    first = refused(stage, "./data", **settings)
    folder = refused(stage, str(stage.folder), **settings)
    assert (first.error, folder.error) == ("not executable", "not executable")
    assert first.fingerprint not in (folder.fingerprint, refused(stage, "./gone", **settings).fingerprint)


def test_interpreter_not_found(stage: Stage) -> None:
    """A script whose first line names what is not there is itself there."""
    script = stage.folder / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(stat.S_IRWXU)
    assert refused(stage, "./script").error == "interpreter not found"


@pytest.mark.parametrize("settings", LIMITED, ids=["plain", "limited"])
def test_bad_folder(stage: Stage, settings: dict[str, Any]) -> None:
    """A folder that is not there, or is none, is named; the command is not blamed."""
    (stage.folder / "file").touch()
    for folder in ("/no/such/folder", str(stage.folder / "file")):
        ending = refused(stage, "/bin/true", cwd=folder, **settings)
        assert ending.error == "bad folder"
        assert folder in ending.detail


@pytest.mark.parametrize("settings", [{"user": "no-such-user"}, {"user": "99999999"}, {"group": "no-such-group"}])
def test_unknown_user(stage: Stage, settings: dict[str, Any]) -> None:
    """A user or group that is not known here is named, and nothing runs."""
    ending = refused(stage, "/bin/true", **settings)
    assert ending.error in ("unknown user", "unknown group")
    assert next(iter(settings.values())) in ending.detail


def test_no_right_to_change_user(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not change users is told so."""

    def forbidden(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EPERM, "no")

    monkeypatch.setattr("subprocess.Popen", forbidden)
    assert refused(stage, "/bin/true", user="nobody").error == "no right to change user"


def test_starved(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too few processes or files is not the command's fault: the machine is starved."""

    def full(*_: Any, **__: Any) -> None:
        raise BlockingIOError(errno.EAGAIN, "no")

    monkeypatch.setattr("subprocess.Popen", full)
    assert refused(stage, "/bin/true").cause is Cause.STARVED
    monkeypatch.setattr("os.pipe", full)
    assert refused(stage, "/bin/true").cause is Cause.STARVED


@pytest.mark.parametrize("command", [(), ("",), ("/bin/echo", "a\0b")])
def test_not_a_command(stage: Stage, command: tuple[str, ...]) -> None:
    """What can be no command is an error like any other."""
    assert refused(stage, *command).error in ("no command", "bad command")


def test_secrets_are_in_no_error(stage: Stage) -> None:
    """The values of the environment appear in no error, also when they are what is wrong, and not in the detail of a
    failure that printed them."""
    secret = "hunter2-hunter2"  # noqa: S105 - it is what must not be seen
    assert secret not in str(refused(stage, "/bin/true", env={"KEY": f"{secret}\0"}))
    assert secret not in str(refused(stage, "no-such-command", env={"KEY": secret}))
    ending = run(stage.ending(stage.shell('echo "error: bad key $KEY"; exit 1', env={"KEY": secret})))
    assert secret not in str(ending)
    assert "error: bad key ***" in ending.detail


def test_the_same_refusal_has_the_same_fingerprint(stage: Stage) -> None:
    """So that a unit that can never start is quarantined."""
    assert refused(stage, "./gone").fingerprint == refused(stage, "./gone").fingerprint
    assert refused(stage, "./gone").fingerprint != refused(stage, "./other").fingerprint


def test_no_descriptor_is_lost(stage: Stage) -> None:
    """Runs and refusals give everything back."""

    async def play() -> tuple[int, int]:
        hands, missing = stage.shell("echo x; exit 1"), stage.hands("no-such-command")
        await stage.ending(hands)
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the number is what counts
        for _ in range(10):
            await stage.ending(hands)
            await stage.ending(missing)
            life = await stage.begin(stage.shell(HANGS))
            await life.end(SECOND)
        return before, len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    before, after = run(play())
    assert after == before


def test_terminal(stage: Stage) -> None:
    """A terminal that it is given is its own: the controlling one of its session, for input and output."""
    master, slave = os.openpty()

    async def play() -> Ending:
        hands = stage.shell("tty; echo hello > /dev/tty; read line; echo got $line; exit 3", files_max=64)
        hands.terminal = os.ttyname(slave)
        life = await stage.begin(hands)
        os.write(master, b"typed\n")
        ending = await life.ended()
        life.hear(b"said\n")
        return ending

    try:
        assert run(play()).code == 3
        shown = ""
        os.set_blocking(master, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                shown += os.read(master, 4096).decode()
    finally:
        os.close(slave)
        os.close(master)
    assert "/dev/pts/" in shown
    assert "hello" in shown
    assert "got typed" in shown
    assert stage.log == b"said\n"

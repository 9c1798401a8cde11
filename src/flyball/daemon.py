"""The daemon: one fleet, its socket, its signals. Started by a guardian, and only by one.

It ends when it is told to (`flyball down`, SIGTERM, SIGINT, SIGQUIT), and when its guardian is gone. It changes its
settings when it is told to (`flyball reload`, SIGHUP), and only to good ones. Signals that mean nothing to it do not
end it: that would end all units.
"""

import asyncio
import contextlib
import logging
import os
import pwd
import signal
import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from flyball import app
from flyball.config.plan import Plan
from flyball.config.planning import ask_for_plan
from flyball.config.sources import SourceWatch, same_but_rules
from flyball.control.client import SOCKET
from flyball.control.commands import check_version, find, not_ok, ok, parse, perform
from flyball.control.context import Args, Caller, CommandError, Context, Right, unknown_unit
from flyball.control.past import Past
from flyball.control.server import Server
from flyball.control.trail import Trail
from flyball.errors import FlyballError
from flyball.fleet import Changes, Fleet, pids
from flyball.plane import Own, Plane
from flyball.runtimes.guardian import READY, Guard
from flyball.runtimes.holder import is_gone
from flyball.runtimes.process import spawn
from flyball.runtimes.process.output import log_path

if TYPE_CHECKING:
    from flyball.rulebook import Rulebook

log = logging.getLogger(__name__)

ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
MEANINGLESS: Final = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that would kill a process that does not expect them, and that people send to have a log opened anew. Ours
needs no such thing."""
LOOK_EVERY: Final = 1.0
"""Seconds between looks whether files of rules changed."""
DOWN_SOON: Final = 0.05
"""Seconds between being told to end and beginning to."""
SAME_SIGNAL: Final = 0.5
"""Seconds within which two signals are one: a terminal sends it to the guardian too, which passes it on."""


class Daemon:
    """Runs until it is told to end."""

    def __init__(self, plan: Plan, env: Mapping[str, str], config: Path | None) -> None:
        self._plan = plan
        self._config = config
        self._env = env
        self._folder = app.state_dir(env)
        self._guard = Guard(env)
        self._past, self._seen = Past(), Past()
        """What was read of the journal, by orders and by looks."""
        self._turn, self._looking = asyncio.Lock(), asyncio.Lock()
        """One order at a time, and one look: each share what was read."""
        self._trail = Trail()
        self._own: Final[Mapping[str, Own]] = {
            "ping": self._ping,
            "down": self._down,
            "reload": self._reloaded,
            "trigger": self._trigger,
            "forget_firings": self._forget,
        }
        self._changing = asyncio.Lock()
        """One reload, or the end, at a time. Both wait for units to end; commands do not wait for that."""
        self._reloading = asyncio.Lock()
        """One reload at a time, from the reading on: what was read later is what counts."""
        self._ending = asyncio.Event()
        self._told_at = 0.0
        self._orphaned = False
        self._rules: Rulebook | None = None
        """None: there were none yet."""
        self._complaint = ""
        """Why the settings in the files are not those in force."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """From the first look at the store to the last unit's end; the exit code."""
        self._loop = asyncio.get_running_loop()
        spawn.seal()
        spawn.withhold(self._plan.withheld)
        self._governor = await asyncio.to_thread(app.open_planned, self._plan, self._env)
        self._fleet = Fleet(self._plan, self._governor, self._folder, self._guard)
        self._plane = Plane(
            self._governor,
            self._plan,
            self._folder,
            ask=self.ask,
            context=self._context,
            store_trouble=lambda: self._fleet.trouble,
        )
        server = Server(self._folder / SOCKET, self._serve)
        try:
            await server.open()
            self._listen()
            await self._plane.open()
            await self._fleet.begin()
            await self._begin_rules(booting=True)
            await self._plane.ready()
            self._say_ready()
            await self._ending.wait()
            await self._end()
        finally:
            await self._plane.close()
            await server.close()
            await asyncio.to_thread(self._governor.store.close)
        if self._orphaned:
            # What is kept lives on, and nothing here may end it on the way out.
            logging.shutdown()
            os._exit(0)
        return 0

    def _listen(self) -> None:
        for number in ENDING:
            self._loop.add_signal_handler(number, self._told_to_end, number.name)
        for number in MEANINGLESS:
            self._loop.add_signal_handler(number, log.info, "%s means nothing to the daemon", number.name)
        outlives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        if sys.stdin is not None and sys.stdin.isatty() and not outlives:
            self._loop.add_signal_handler(signal.SIGHUP, self._told_to_end, "SIGHUP")
        else:
            self._loop.add_signal_handler(signal.SIGHUP, self._reload_soon)
        self._loop.add_reader(self._guard.pipe, self._guardian_gone)

    def _say_ready(self) -> None:
        rules = len(self._plan.rules)
        log.info("up: %d units%s", len(self._fleet.posts), f", {rules} rule{'s' * (rules > 1)}" if rules else "")
        number = self._env.get(READY)
        if number:
            with contextlib.suppress(OSError):
                os.write(int(number), b"ready\n")
                os.close(int(number))

    # The end.

    def _told_to_end(self, why: str) -> None:
        now = self._loop.time()
        if self._ending.is_set():
            if now - self._told_at > SAME_SIGNAL:
                log.info("%s again: what is left is killed", why)
                self._fleet.hurry()
            return
        log.info("%s: ending all units", why)
        self._told_at = now
        self._ending.set()

    def _guardian_gone(self) -> None:
        self._loop.remove_reader(self._guard.pipe)
        self._orphaned = True
        self._told_to_end("the guardian is gone")

    async def _end(self) -> None:
        await self._plane.hear_nobody()
        async with self._changing:
            for task in self._tasks:
                task.cancel()
            if self._rules is not None:
                await self._rules.end()
            await self._fleet.end(spare_kept=self._orphaned)
        log.info("down")

    # Requests.

    async def _serve(self, uid: int, line: bytes) -> bytes:
        """Answer a line that came over the socket. Whoever could connect is the owner, or root."""
        number = 0
        try:
            request = parse(line)
            number = request.id
            check_version(request)
            return ok(number, await self.ask(Caller(_name_of(uid), "socket"), request.verb, request.args))
        except FlyballError as error:
            return not_ok(number, error)

    async def ask(self, caller: Caller, verb: str, args: Args) -> Any:
        """Carry out a verb, whoever asks and through whatever; its answer. CommandError if it cannot be done. Looks do
        not wait for orders, which wait for units."""
        command = find(verb)
        looks = command.right is Right.LOOK
        context = self._context(caller, self._seen if looks else self._past)
        own = self._own.get(verb) or self._plane.own.get(verb)
        if own is None:
            async with self._looking if looks else self._turn:
                return await asyncio.to_thread(perform, context, verb, args)
        try:
            data = await own(caller.who, command.checked(context, args))
        except FlyballError as error:
            if not looks:
                await asyncio.to_thread(self._trail.failed, context, command, args, error)
            raise
        if not looks and not args.get("unit"):  # what a unit asks for is in the journal as its own
            await asyncio.to_thread(self._trail.done, context, command, args, data)
        return data

    def _context(self, caller: Caller, past: Past) -> Context:
        return Context(
            governor=self._governor,
            settings=self._fleet.plan,
            who=caller.who,
            channel=caller.channel,
            right=caller.right,
            poke=self._poke,
            gone=is_gone,
            past=past,
            trail=self._trail,
            says=self._says,
            log_of=lambda unit: log_path(self._folder / "logs", unit),
            problems=self._plane.problems,
            trouble=self._trouble,
            firings=self._rules.counts if self._rules is not None else (lambda _: {}),
        )

    @property
    def _trouble(self) -> str:
        return self._fleet.trouble or self._complaint or self._plane.trouble

    def _says(self, unit: str) -> str:
        return self._fleet.says(unit) or (self._rules.says(unit) if self._rules is not None else "")

    # What only a daemon can do.

    async def _ping(self, _who: str, _args: Args) -> dict[str, Any]:
        return {"pid": os.getpid(), "guardian": os.getppid(), "pids": pids(self._fleet.posts)}

    async def _down(self, who: str, _args: Args) -> dict[str, Any]:
        # Soon, and not at once: whoever asks is answered first, and the store still takes the line of the audit trail.
        self._loop.call_later(DOWN_SOON, self._told_to_end, f"down by {who}")
        return {"pid": os.getpid(), "guardian": os.getppid(), "effect": "all units end, then the daemon"}

    async def _reloaded(self, _who: str, _args: Args) -> dict[str, Any]:
        changes = await self._reload()
        return {**changes._asdict(), "later": self._plane.later, "effect": _summary(changes)}

    async def _forget(self, who: str, args: Args) -> dict[str, Any]:
        rule = self._known_rule(args)
        forgotten = await self._rulebook.forget(rule, who)
        return {"rule": rule, "forgotten": forgotten, "effect": f"forgot {forgotten} firings"}

    def _poke(self, unit: str, verb: str) -> None:
        """Called in another thread, while a command is carried out: then the command says what became of it."""
        asyncio.run_coroutine_threadsafe(self._ordered(unit, verb), self._loop).result()

    async def _ordered(self, unit: str, verb: str) -> None:
        await self._fleet.ordered(unit, verb)
        if self._rules is not None:
            await self._rules.ordered(unit, verb)

    # Rules.

    async def _begin_rules(self, *, booting: bool) -> None:
        """What runs rules is in memory only where there are any, and only then their files are looked at."""
        if self._fleet.plan.rules:
            from flyball.rulebook import Rulebook  # noqa: PLC0415 - as above

            changes = self._folder / app.CHANGES
            rules = Rulebook(
                self._fleet, self._governor, self._folder, self._guard, changes=changes, tell=self._plane.tell
            )
            await rules.begin(booting=booting)
            self._rules = rules
            self._keep(self._watch_files())

    @property
    def _rulebook(self) -> "Rulebook":
        assert self._rules is not None  # noqa: S101 - of a rule that is known
        return self._rules

    async def _trigger(self, who: str, args: Args) -> dict[str, Any]:
        rule = self._known_rule(args)
        unit, run = str(args.get("unit") or ""), str(args.get("run") or "")
        fate, firing = await self._rulebook.trigger(rule, args.get("data"), who, unit=unit, run=run)
        return {"rule": rule, "fate": fate, "id": firing, "effect": f"{fate} {firing}".strip()}

    def _known_rule(self, args: Mapping[str, Any]) -> str:
        rule, rules = args.get("rule"), self._rules.names if self._rules is not None else ()
        if self._rules is None and any(rule == known.name for known in self._fleet.plan.rules):
            text = "the daemon is starting, and looks after no rules yet"
            raise CommandError("starting", text, remedy="Try again in a moment.")
        if not isinstance(rule, str) or rule not in rules:
            remedy = "`flyball rules` lists all rules."
            raise unknown_unit(str(rule or ""), list(rules), remedy=remedy, text="no rule {!r}")
        return rule

    async def _watch_files(self) -> None:
        """Apply the rules of files that changed, as soon as they are at rest. Bad ones are told of, and change
        nothing."""
        watch = SourceWatch(self._fleet.plan)
        while True:
            await asyncio.sleep(LOOK_EVERY)
            watch.use(self._fleet.plan)
            if not self._fleet.plan.limits.auto_reload or not await asyncio.to_thread(watch.has_changed):
                continue
            try:
                await self._reload(rules_only=True)
            except CommandError:
                pass  # it is in the log already, and people are shown it
            except FlyballError as error:
                log.error("not reloaded: %s. %s", error, error.remedy)
            except Exception:  # a fault of ours is the end of this reload, and not of looking
                log.exception("not reloaded")

    # Other settings.

    async def _reload(self, *, rules_only: bool = False) -> Changes:
        """Apply what changed in the settings; or the rules alone, if nothing else changed."""
        async with self._reloading:
            return await self._read_and_apply(rules_only=rules_only)

    async def _read_and_apply(self, *, rules_only: bool) -> Changes:
        source = self._fleet.plan.source
        try:
            plan = await asyncio.to_thread(ask_for_plan, Path(source) if source else self._config, self._env)
        except FlyballError as error:
            text = "\n".join([*str(error).splitlines(), "the settings that are in force stay"])
            log.warning("reload refused: %s", error)
            self._complaint = f"The settings in force stay, because the files are wrong: {error}"
            raise CommandError("bad_settings", text, remedy="Put it right, then reload again.") from None
        self._complaint = ""
        async with self._changing:
            if self._ending.is_set():
                raise CommandError("ending", "the daemon is ending", remedy="Start it anew: `flyball up -d`.")
            if rules_only and not same_but_rules(plan, self._fleet.plan):
                text = "more than rules changed in the settings; nothing is applied before `flyball reload`"
                log.warning("%s", text)
                self._complaint = f"{text[:1].upper()}{text[1:]}."
                raise CommandError("not_rules_alone", text, remedy="Apply it: `flyball reload`.")
            spawn.withhold(plan.withheld)
            changes = await self._fleet.change(plan)
            if self._rules is not None:
                changes = changes.and_those(await self._rules.change(plan))
            else:
                await self._begin_rules(booting=False)
                changes = changes.and_those(Changes(tuple(rule.name for rule in plan.rules), (), (), 0))
            await self._plane.change(plan)
        log.info("reloaded: %s", _summary(changes))
        return changes

    def _reload_soon(self) -> None:
        async def reload() -> None:
            try:
                await self._reload()
            except CommandError:
                pass  # it is in the log already
            except FlyballError as error:
                log.error("not reloaded: %s. %s", error, error.remedy)

        self._keep(reload())

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        """Do that meanwhile. What is not done when the daemon ends is not done any more."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _summary(changes: Changes) -> str:
    parts = [
        f"{len(names)} {word}"
        for word, names in (("added", changes.added), ("removed", changes.removed), ("changed", changes.changed))
        if names
    ]
    return ", ".join([*parts, f"{changes.unchanged} unchanged"])


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def run(plan: Plan, env: Mapping[str, str], config: Path | None) -> int:
    """Be the daemon; the exit code. `config` is the file that was named, if one was."""

    async def main() -> int:
        return await Daemon(plan, env, config).run()

    return asyncio.run(main())

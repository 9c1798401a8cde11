"""The daemon: one fleet, its socket, its signals. Started by a guardian, and only by one.

On a store that many hosts share it is one host of them: it runs what is placed on it, for as long as its lease lasts.

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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from flyball import __version__, app
from flyball.config.plan import Plan
from flyball.config.planning import ask_for_plan
from flyball.config.sources import SourceWatch, same_but_rules
from flyball.control.client import SOCKET
from flyball.control.commands import check_version, find, not_ok, ok, parse, perform
from flyball.control.context import Args, Caller, CommandError, Context, Right, unknown_unit
from flyball.control.forwarding import FORWARD, FORWARDED, forward, take
from flyball.control.past import Past
from flyball.control.server import Server
from flyball.control.trail import Trail
from flyball.core.time import SECOND
from flyball.errors import FlyballError, StoreError
from flyball.fleet import Changes, Fleet, pids
from flyball.plane import Own, Plane
from flyball.runtimes.guardian import ANEW, LEASE_LOST, READY, Guard
from flyball.runtimes.process import spawn
from flyball.runtimes.process.output import log_path

if TYPE_CHECKING:
    from flyball.membership import Membership
    from flyball.placing.items import Item
    from flyball.rulebook import Rulebook
    from flyball.runtimes.host.deadman import Deadman

log = logging.getLogger(__name__)

ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
MEANINGLESS: Final = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that would kill a process that does not expect them, and that people send to have a log opened anew. Ours
needs no such thing."""
LOOK_EVERY: Final = 1.0
"""Seconds between looks whether files of rules changed."""
DOWN_SOON: Final = 0.05
"""Seconds between having told whoever wants it that all ends, and beginning to."""
DOWN_MAX: Final = 2.0
"""Seconds between being told to end and beginning to, at most: a store that takes no line does not keep it alive."""
STORE_WAIT: Final = 1.0
"""Seconds between looks at a store that is away."""
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
        self._downing: asyncio.TimerHandle | None = None
        """When it begins to end, once that was asked for."""
        self._orphaned = False
        self._rules: Rulebook | None = None
        """None: there were none yet, or another host of the fleet has them."""
        self._member: Membership | None = None
        """None: there are no other hosts."""
        self._deadman: Deadman | None = None
        self._left: dict[str, asyncio.Event] = {}
        """Of what one host does for all, and this one does: set when it is to leave that to another."""
        self._away = ""
        """Why the store cannot be opened yet."""
        self._complaint = ""
        """Why the settings in the files are not those in force."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """From the first look at the store to the last unit's end; the exit code."""
        self._loop = asyncio.get_running_loop()
        spawn.seal()
        spawn.tie(self._guard.line)
        spawn.withhold(self._plan.withheld)
        server = Server(self._folder / SOCKET, self._serve)
        if ANEW in self._env:
            self._away = "The daemon was begun anew, because it had lost its lease."
            await server.open()
            self._listen()
            if not await self._wait_for_store():
                await server.close()
                return 0
        else:
            self._governor = await asyncio.to_thread(app.open_planned, self._plan, self._env)
        member = self._member = self._membership()
        if member is None:
            self._fleet = Fleet(self._plan, self._governor, self._folder, self._guard)
        else:
            self._fleet = Fleet(
                self._plan,
                self._governor,
                self._folder,
                self._guard,
                placed=True,
                may_begin=member.lease.holds,
                gone=member.gone,
            )
        self._plane = Plane(
            self._governor,
            self._plan,
            self._folder,
            ask=self.ask,
            context=self._context,
            store_trouble=lambda: self._fleet.trouble,
            speaks=member is None,
        )
        self._away = ""
        try:
            if ANEW not in self._env:
                await server.open()
                self._listen()
            if member is not None:
                await member.join()
            await self._plane.open()
            await self._fleet.begin(others=member.company if member is not None else 0)
            await self._begin(member)
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

    async def _begin(self, member: "Membership | None") -> None:
        """Begin with what only this daemon does, or with what is placed here."""
        if member is None:
            await self._begin_rules(booting=True)
        else:
            member.served_at(self._plane.address)
            await member.begin(self._take, self._leave)

    # One host of many.

    async def _wait_for_store(self) -> bool:
        """The daemon before this one lost its lease, perhaps because the store is away. Nothing is to be done without
        it, so it is waited for. False if this one is told to end meanwhile."""
        with contextlib.suppress(FlyballError):  # what was reloaded meanwhile is in the file alone
            self._plan = await asyncio.to_thread(self._read_plan, self._plan)
            spawn.withhold(self._plan.withheld)
        told = False
        while not self._ending.is_set():
            try:
                self._governor = await asyncio.to_thread(app.open_planned, self._plan, self._env)
            except StoreError as error:
                if not told:
                    log.error("%s %s It is waited for; nothing runs until then.", error, error.remedy)
                told = True
                self._away = f"{error}. {error.remedy} It is waited for; nothing runs here until then."
            else:
                return True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), STORE_WAIT)
        return False

    def _membership(self) -> "Membership | None":
        if not self._plan.store:
            return None
        from flyball.membership import Membership  # noqa: PLC0415 - only where there are other hosts
        from flyball.placing.placing import load_engine  # noqa: PLC0415 - as above
        from flyball.runtimes.host.deadman import Deadman  # noqa: PLC0415 - as above

        if self._guard.deadline is not None:
            self._deadman = Deadman(self._guard.deadline)
        load_engine()
        return Membership(
            self._governor,
            self._plan,
            version=__version__,
            deadman=self._deadman,
            obey=self._ordered,
            losing=self._lose,
        )

    async def _lose(self) -> None:
        """The lease is lost. Whatever runs here is ended while it still is this host's, and all else is left as it is:
        others tell what became of it. The guardian begins a new daemon."""
        assert self._member is not None  # noqa: S101 - it is what calls
        grace = self._member.lease.grace
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._fleet.abandon(grace // 2), grace / SECOND)
        # What rules run, and what took longer, is ended by the guardian; or by the deadman, if that does not move.
        logging.shutdown()
        os._exit(LEASE_LOST)

    async def _take(self, item: "Item") -> None:
        """Run what is placed here; returns when it was left."""
        from flyball.placing.items import RULES, VOICE  # noqa: PLC0415 - as above

        assert self._member is not None  # noqa: S101 - it is what calls
        log.info("%s is taken by this host", item.name)
        if item.name not in (RULES, VOICE):
            self._keep(self._member.see_to_moves())
            await self._fleet.take(item)
            return
        left = self._left[item.name] = asyncio.Event()
        if item.name == RULES:
            await self._begin_rules(booting=True)
            await left.wait()
            rules, self._rules = self._rules, None
            if rules is not None:
                await rules.end()
        else:
            await self._plane.speak()
            await left.wait()
            await self._plane.fall_silent()

    async def _leave(self, item: "Item") -> None:
        left = self._left.pop(item.name, None)
        if left is not None:
            left.set()
        else:
            await self._fleet.leave(item)

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
        if self._deadman is not None:
            self._deadman.last()
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
            if self._member is not None:
                await self._member.leave_all()
            if self._rules is not None:
                await self._rules.end()
            await self._fleet.end(spare_kept=self._orphaned and self._member is None)
        if self._member is not None:
            # Only now, when it is certain that nothing runs here. Who ends in another way is fenced.
            await self._member.leave()
        log.info("down")

    # Requests.

    async def _serve(self, uid: int, line: bytes) -> bytes:
        """Answer a line that came over the socket. Whoever could connect is the owner, or root."""
        number = 0
        try:
            request = parse(line)
            number = request.id
            check_version(request)
            if self._away and request.verb == "ping":
                return ok(number, await self._ping("", {}))
            if self._away:
                raise CommandError("store_away", self._away, remedy="See that the database is up and reachable.")
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
        try:
            if not looks and not args.get("unit"):  # what a unit asks for is in the journal as its own
                await asyncio.to_thread(self._trail.done, context, command, args, data)
        finally:
            if verb == "down" and self._downing is not None:
                self._downing.cancel()
                self._downing = self._loop.call_later(DOWN_SOON, self._told_to_end, f"down by {caller.who}")
        return data

    def _context(self, caller: Caller, past: Past) -> Context:
        return Context(
            governor=self._governor,
            settings=self._fleet.plan,
            who=caller.who,
            channel=caller.channel,
            right=caller.right,
            poke=self._poke,
            gone=self._fleet.gone,
            host=self._member.name if self._member is not None else "",
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
        running = {} if self._away else pids(self._fleet.posts)
        return {"pid": os.getpid(), "guardian": os.getppid(), "pids": running, "version": __version__}

    async def _down(self, who: str, _args: Args) -> dict[str, Any]:
        # Not at once: whoever asks is answered first, and the store still takes the line of the audit trail.
        self._downing = self._loop.call_later(DOWN_MAX, self._told_to_end, f"down by {who}")
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
        if verb == FORWARD:
            await self._take_forwarded()
            return
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
            if self._member is not None:
                self._keep(self._take_forwarded())

    @property
    def _rulebook(self) -> "Rulebook":
        assert self._rules is not None  # noqa: S101 - of a rule that is known
        return self._rules

    async def _take_forwarded(self) -> None:
        """Do what was asked for on hosts that do not look after the rules."""
        if self._rules is None:
            return
        for order in await asyncio.to_thread(take, self._governor):
            try:
                await self._own[order.verb](order.who, order.args)
            except FlyballError as error:
                log.warning("%s by %s on another host: %s", order.verb, order.who, error)

    async def _forwarded(self, who: str, rule: str, args: Args) -> dict[str, Any]:
        """Another host looks after the rules: leave it to that one."""
        assert self._member is not None  # noqa: S101 - of a fleet on many hosts
        leave = partial(forward, self._governor, "trigger", args, who, rule=rule, host=self._member.name)
        return {"rule": rule, "fate": FORWARDED, "id": await asyncio.to_thread(leave), "effect": "left to another host"}

    async def _trigger(self, who: str, args: Args) -> dict[str, Any]:
        elsewhere = self._member is not None and self._rules is None
        if elsewhere and any(args.get("rule") == known.name for known in self._fleet.plan.rules):
            return await self._forwarded(who, str(args["rule"]), args)
        rule = self._known_rule(args)
        unit, run = str(args.get("unit") or ""), str(args.get("run") or "")
        fate, firing = await self._rulebook.trigger(rule, args.get("data"), who, unit=unit, run=run)
        return {"rule": rule, "fate": fate, "id": firing, "effect": f"{fate} {firing}".strip()}

    def _known_rule(self, args: Mapping[str, Any]) -> str:
        rule, rules = args.get("rule"), self._rules.names if self._rules is not None else ()
        there = any(rule == known.name for known in self._fleet.plan.rules)
        if self._rules is None and there and self._member is not None:
            text = "another host of the fleet looks after the rules"
            raise CommandError("elsewhere", text, remedy="Ask that one: `flyball hosts` shows all of them.")
        if self._rules is None and there:
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

    def _read_plan(self, before: Plan) -> Plan:
        return ask_for_plan(Path(before.source) if before.source else self._config, self._env)

    async def _read_and_apply(self, *, rules_only: bool) -> Changes:
        try:
            plan = await asyncio.to_thread(self._read_plan, self._fleet.plan)
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
            if self._member is not None:
                await self._member.change(plan)
            if self._rules is not None:
                changes = changes.and_those(await self._rules.change(plan))
            elif self._member is None:
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

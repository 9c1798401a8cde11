"""The control plane of a daemon: all through which people look at it, order, and are told. The page and its API,
alerts, the Telegram bot, metrics, traces.

Each is in memory only where the settings want it: what it is made of is imported then. None of them runs units, and
none is needed to run them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from flyball import app
from flyball.config.plan import OFF, Plan
from flyball.control.alerts import inbox
from flyball.control.alerts.records import forget
from flyball.control.board import PROBLEMS_MAX, Board
from flyball.control.context import Args, Caller, CommandError, Context, Right
from flyball.control.past import Past
from flyball.control.problems import Problem
from flyball.control.web import ADDRESS
from flyball.control.web.tokens import Tokens
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.runtimes.doorbell import doorbell
from flyball.store import Store

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from flyball.config.telegram import Telegram
    from flyball.control.alerts.service import AlertService
    from flyball.control.metrics.metrics import Metrics
    from flyball.control.metrics.traces import Tracer
    from flyball.control.telegram.bot import TelegramBot
    from flyball.control.web.listener import Web

log = logging.getLogger(__name__)

WATCHER: Final = Caller("", "board", Right.LOOK)
"""Whoever watches: not to be told from each other, and nothing is ordered by watching."""

LATER: Final = "the settings of `http` changed; they hold when the daemon is started anew"
Own = Callable[[str, Args], Awaitable[dict[str, Any]]]
"""Carries out a verb that only a daemon can: who asks, and its arguments."""


class Plane:
    """All of it. It is also what the web knows of a daemon."""

    def __init__(
        self,
        governor: Governor,
        plan: Plan,
        folder: Path,
        *,
        ask: Callable[[Caller, str, Args], Awaitable[Any]],
        context: Callable[[Caller, Past], Context],
        store_trouble: Callable[[], str],
        speaks: bool = True,
    ) -> None:
        """`speaks`: whether it is this daemon that tells people, and listens to its bot. Of a fleet on many hosts one
        does: see `speak`."""
        self._governor, self._plan, self._folder = governor, plan, folder
        self._begun_with: Final = plan.http
        self._ask, self._context, self._store_trouble = ask, context, store_trouble
        self._speaks, self._is_ready = speaks, False
        self._loop = asyncio.get_running_loop()
        past = Past()
        self.board: Final = Board(lambda: context(WATCHER, past).look(), lambda: context(WATCHER, past).trouble)
        self.own: Final[Mapping[str, Own]] = {
            "watch": self._watch,
            "login_link": self._login_link,
            "token_add": self._add_token,
            "token_remove": self._remove_token,
        }
        self._web: Web | None = None
        self._metrics: Metrics | None = None
        """None: they are off, both."""
        self._alerts: AlertService | None = None
        """None: there is no channel to tell anybody by."""
        self._listens_to = ""
        """The token of the bot whose buttons alerts may have."""
        self._telegram: TelegramBot | None = None
        self._tracer: Tracer | None = None
        self._owed: asyncio.Task[None] | None = None
        """What the daemon before this one owes people."""

    async def open(self) -> None:
        """Before the units: an address that is taken is told by `up`, and what happens from now on is counted and
        told."""
        await self._open_web()
        await self._begin_traces(self._plan.traces)
        if self._speaks:
            await self._use_alerts(self._plan)
        elif self._plan.alerts.channels:
            self._owed = self._loop.create_task(self._tell_back())

    async def ready(self) -> None:
        """The units are begun: now there is something to order."""
        self._is_ready = True
        if self._speaks:
            await self._use_telegram(self._plan.telegram)
        if self._web is not None:
            self._web.ready()

    async def speak(self) -> None:
        """From now on it is this host that tells people, and listens to its bot."""
        self._speaks = True
        await self._use_alerts(self._plan)
        if self._is_ready:
            await self._use_telegram(self._plan.telegram)

    async def fall_silent(self) -> None:
        """From now on it is another one."""
        self._speaks = False
        await self._use_telegram(None)
        await self._end_alerts()

    async def change(self, plan: Plan) -> None:
        """Other settings. Those of the page are read at the start alone."""
        self._plan = plan
        if self.later:
            log.warning("%s", self.later)
        if self._speaks:
            await self._use_telegram(plan.telegram)
            await self._use_alerts(plan)
        if self._metrics is not None:
            self._metrics.reserve(self._context(WATCHER, Past()).named)

    async def hear_nobody(self) -> None:
        """The units end: nobody orders anything any more. What happens is still told."""
        await self._close_web()
        await self._use_telegram(None)

    async def close(self) -> None:
        await self.hear_nobody()
        tracer, self._tracer = self._tracer, None
        if tracer is not None:
            await asyncio.to_thread(tracer.stop)
        if self._owed is not None:
            self._owed.cancel()
        await self._end_alerts()

    @property
    def trouble(self) -> str:
        return self._telegram.trouble if self._telegram is not None else ""

    @property
    def address(self) -> str:
        """Where the page is; nothing: there is none."""
        return self._web.address if self._web is not None else ""

    @property
    def later(self) -> str:
        """What changed in the settings and does not hold yet."""
        return LATER if self._plan.http != self._begun_with else ""

    def problems(self) -> Sequence[Problem] | None:
        """Those of the board, unless it has more than it lists."""
        self.board.refresh()
        found = self.board.problems()
        return found if len(found) < PROBLEMS_MAX else None

    def tell(self, rule: str, text: str) -> None:
        """What a rule wants people to know. What it asks them is in the journal already."""
        if not rule:
            return
        if self._alerts is not None:
            self._alerts.tell(rule, text)
        elif self._plan.alerts.channels:  # it is for the host that speaks
            inbox.put(self._governor, unit=rule, text=text)

    # What the web knows of a daemon.

    @property
    def store(self) -> Store:
        return self._governor.store

    async def ask(self, caller: Caller, verb: str, args: Args) -> Any:
        return await self._ask(caller, verb, args)

    def doorbell(self, ring: Callable[[], None]) -> Callable[[], None]:
        """Ring in the running loop whenever the journal grows, until what this returns is called."""
        return doorbell(self.store, self._folder / app.CHANGES, ring, events=()).close

    @property
    def metrics(self) -> Callable[[], bytes] | None:
        return self._metrics.render if self._metrics is not None else None

    @property
    def act(self) -> "Sequence[BaseRoute]":
        """Links that are out stay good when the settings change: whether there are new ones is the alerts' business."""
        from flyball.control.links import Links, key_of  # noqa: PLC0415 - it comes with the web
        from flyball.control.web.act import routes  # noqa: PLC0415 - as above

        links: Links | None = None
        try:
            links = Links(self._governor, key_of(self._folder), "")
        except FlyballError as error:
            log.error("links in alerts cannot be used: %s. %s", error, error.remedy)
        return routes(links, self.ask, self._loop)

    # Verbs.

    async def _watch(self, _who: str, args: Args) -> dict[str, Any]:
        def look() -> dict[str, Any]:
            self.board.refresh()
            return msgspec.json.decode(self.board.frame(args["since"], args["epoch"]), type=dict[str, Any])

        return await asyncio.to_thread(look)

    async def _login_link(self, _who: str, args: Args) -> dict[str, Any]:
        if self._web is None:
            raise CommandError("no_page", "this daemon serves no page", remedy="Set `http.listen`, then restart it.")
        link, name = self._web.link(args["token"] or "")
        return {"link": link, "address": self._web.address, "token": name, "effect": f"a link for {name}"}

    async def _add_token(self, _who: str, args: Args) -> dict[str, Any]:
        made = await asyncio.to_thread(Tokens(self._folder).add, args["name"], args["role"])
        return {**made.shown(), "token": made.token, "effect": f"{made.name} may {made.role}"}

    async def _remove_token(self, _who: str, args: Args) -> dict[str, Any]:
        gone = await asyncio.to_thread(Tokens(self._folder).remove, args["name"])
        return {**gone.shown(), "effect": f"{gone.name} is out"}

    # Its parts.

    async def _open_web(self) -> None:
        (self._folder / ADDRESS).unlink(missing_ok=True)  # of one that was killed
        if self._plan.http.listen != OFF:
            from flyball.control.web.listener import Web  # noqa: PLC0415 - see above

            self._metrics = self._measured()
            web = Web(self, self._plan.http, self._folder)
            await web.start()
            self._web = web

    def _measured(self) -> "Metrics":
        """Made before the units are begun: what is found then is counted."""
        from flyball.control.metrics.alerts import of_alerts  # noqa: PLC0415 - see above
        from flyball.control.metrics.metrics import Metrics  # noqa: PLC0415 - see above
        from flyball.control.metrics.picture import BoardPicture  # noqa: PLC0415 - see above
        from flyball.control.metrics.readings import Reading  # noqa: PLC0415 - see above

        def of_web() -> list[Reading]:
            web = self._web
            if web is None:
                return []
            return [
                Reading("flyball_http_streams", web.streams),
                Reading("flyball_logins_failed_total", web.failed_logins),
            ]

        return Metrics(
            self._governor,
            BoardPicture(self.board),
            named=self._context(WATCHER, Past()).named,
            trouble=self._store_trouble,
            sources=(lambda: of_alerts(self.store), of_web),
        )

    async def _close_web(self) -> None:
        web, self._web = self._web, None
        if web is not None:
            await web.stop()

    async def _begin_traces(self, exporter: str) -> None:
        """Before the units. What makes them is in memory only where somebody asked for them."""
        if exporter:
            from flyball.control.metrics.traces import Tracer, Traces, exporter_of  # noqa: PLC0415 - see above

            traces = await asyncio.to_thread(lambda: Traces(self.store, exporter_of(exporter)))
            self._tracer = Tracer(traces)
            self._tracer.start()

    async def _use_telegram(self, settings: "Telegram | None") -> None:
        """Let the bot that these settings want be the one that listens."""
        if self._telegram is not None and self._telegram.settings != settings:
            await self._telegram.stop()
            self._telegram = None
        if self._telegram is None and settings is not None:
            from flyball.control.telegram.bot import TelegramBot  # noqa: PLC0415 - in memory only where there is one

            self._telegram = TelegramBot(settings, self.ask, self._governor)
            self._telegram.start()

    async def _use_alerts(self, plan: Plan) -> None:
        """Let people be told as these settings want it."""
        settings = plan.alerts
        token = plan.telegram.token if plan.telegram is not None else ""
        if self._alerts is not None and (self._alerts.settings, self._listens_to) != (settings, token):
            await self._end_alerts()
        self._listens_to = token
        if not settings.channels:
            await asyncio.to_thread(forget, self._governor)
        elif self._alerts is None:
            from flyball.control.alerts.opening import open_service  # noqa: PLC0415 - in memory only where it is used

            self._alerts = open_service(
                self._governor,
                settings,
                self._folder,
                bot=token,
                trouble=self._store_trouble,
                who=self._context(WATCHER, Past()).host,
                lease=plan.host.lease if plan.store else 0,
            )
            await self._alerts.start()

    async def _tell_back(self) -> None:
        """Meanwhile: a channel may be slow, and nobody waits for it."""
        from flyball.control.alerts.opening import tell_back  # noqa: PLC0415 - in memory only where there are alerts

        who = self._context(WATCHER, Past()).host
        try:
            await tell_back(self._governor, self._plan.alerts, self._folder, who)
        except Exception:  # a fault of ours must not be found at the daemon's end
            log.exception("that the store is back could not be told")

    async def _end_alerts(self) -> None:
        alerts, self._alerts = self._alerts, None
        if alerts is not None:
            await alerts.stop()

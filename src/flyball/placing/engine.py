"""The engine: DBOS, on the database of the store, by its public names only. Synchronous, and knows nothing of units: it
has one workflow, which is an item that some host keeps.

An item has one workflow for as long as it is in the settings, and the workflow moves: it waits on a queue, a host takes
it and is its executor until it leaves the item, and then it waits on a queue again. `resume_workflows` does that in one
transaction, for an item of one's own and for those of a dead host alike. What runs here meanwhile is a coroutine on the
engine's own loop that waits: no thread for an item.

Only one engine can be in a process. Asking it goes by a client, which raises when the database is away; the engine
itself waits for the database, for as long as it takes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import psycopg
import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions, error
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from flyball.errors import StoreError
from flyball.placing.chores import KEPT, OVER, WAITING, Placement
from flyball.placing.quiet import hush
from flyball.store.address import without_password

NAME: Final = "flyball"
SCHEMA: Final = "flyball_placing"
"""Beside the store's own tables, and beside those of a DBOS that somebody uses for themselves."""
VERSION: Final = "1"
"""Of what a workflow is. An item that waits is taken by hosts of the same version only: it stays as it is when flyball
is upgraded, or nobody would take what others left."""
WORKFLOW: Final = "flyball.keep"
POOL_MAX: Final = 4
"""Connections to the database. Each queue that is listened to asks for one a few times a second, and gives it back."""
THREADS_MAX: Final = 4
"""Of the engine, for workflows that are not coroutines: there are none."""
CONNECT_TIMEOUT: Final = 5
"""Seconds."""
SILENT_MAX: Final = 10
"""Seconds without an answer after which a connection counts as cut."""
LIMITS: Final = {"statement_timeout": 30, "lock_timeout": 5, "idle_in_transaction_session_timeout": 5}
"""Seconds that the server gives. A statement may be one of those that make the tables. Who waits for a lock waits for
another host, which holds it for milliseconds; unless it is frozen: then its transaction is ended."""
LISTED_MAX: Final = 100_000
"""Workflows that are looked at in one go. A fleet with more items has to be split."""
PUT_TOGETHER: Final = 100
"""Workflows that are made in one transaction. Others wait for it that put the same."""
RESUMED_TOGETHER: Final = 1000
"""Workflows that are put back in one transaction."""


Keeps = Callable[[str, str], Awaitable[None]]
"""Keeps an item for as long as this host has it, on the engine's loop: item, workflow."""

_keeps: Keeps | None = None


@DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)  # it is taken as often as hosts come and go
async def keep(item: str) -> None:
    """An item, for as long as this host has it."""
    keeps, workflow = _keeps, DBOS.workflow_id
    if keeps is not None and workflow is not None:
        await keeps(item, workflow)
    # Whoever left it wrote already what becomes of it, by the client. The engine is to write nothing: it would wait for
    # the database for ever, and keep the process from ending.
    raise asyncio.CancelledError


class Engine:
    """The one engine of this process."""

    def __init__(self, url: str, holder: str) -> None:
        self._url, self._holder = url, holder
        self._pool: sa.Engine | None = None
        self._client: DBOSClient | None = None

    # From the beginning to the end.

    def open(self, keeps: Keeps, queues: Sequence[str]) -> None:
        """Make what it needs in the database, and take from these queues from now on. StoreError if it cannot be."""
        global _keeps  # noqa: PLW0603 - the engine is one of the process, and so is this
        hush()
        pool = self._pool = sa.create_engine(
            "postgresql+psycopg://", creator=self._connect, pool_size=POOL_MAX, max_overflow=0
        )
        config: DBOSConfig = {
            "name": NAME,
            "system_database_engine": pool,
            "dbos_system_schema": SCHEMA,
            "executor_id": self._holder,
            "application_version": VERSION,
            "max_executor_threads": THREADS_MAX,
            "use_listen_notify": False,  # nothing of it is used, and it takes a connection for good
            "notification_listener_polling_interval_sec": 0.2,  # it has nothing to look for: the end waits for it
            "scheduler_polling_interval_sec": 3600.0,  # there are no schedules
            "log_level": "WARNING",
        }
        _keeps = keeps
        try:
            with pool.connect():  # or the engine waits for the database for as long as it takes
                pass
            DBOS(config=config)
            DBOS.listen_queues(queues)
            DBOS.launch()
        except (SQLAlchemyError, error.DBOSException) as failed:
            self.stop()
            self.close()
            raise self._away(failed) from None
        self._client = DBOSClient(
            system_database_engine=pool,
            dbos_system_schema=SCHEMA,
            application_name=NAME,
            retry_connection_errors=False,
            lazy=True,
        )

    def stop(self) -> None:
        """Take nothing any more. Whatever is kept here stays with this holder until it is put back."""
        global _keeps  # noqa: PLW0603 - as above
        DBOS.destroy()
        _keeps = None

    def close(self) -> None:
        """Ask nothing any more, after `stop`."""
        client, self._client = self._client, None
        if client is not None:
            client.destroy()
        if self._pool is not None:
            self._pool.dispose()

    def _connect(self) -> psycopg.Connection[Any]:
        options = psycopg.conninfo.conninfo_to_dict(self._url).get("options", "")
        return psycopg.connect(
            self._url,
            application_name=f"{NAME} placing",
            connect_timeout=CONNECT_TIMEOUT,
            keepalives_idle=SILENT_MAX // 2,
            keepalives_interval=1,
            keepalives_count=SILENT_MAX // 2,
            tcp_user_timeout=SILENT_MAX * 1000,
            options=f"{options} {' '.join(f'-c {name}={seconds}s' for name, seconds in LIMITS.items())}",
        )

    # Queues.

    def register(self, queue: str, *, every: float, share: int | None = None) -> None:
        """Have that queue, be asked so often (seconds), with at most so many of its items on one host."""
        self._ask(
            lambda client: client.register_queue(
                queue, worker_concurrency=share, polling_interval_sec=every, on_conflict="always_update"
            )
        )

    # Items.

    def placements(self, holder: str = "") -> list[Placement]:
        """Where all items are; or what one holder has."""
        found = self._ask(
            lambda client: client.list_workflows(
                name=WORKFLOW,
                status=KEPT if holder else [WAITING, KEPT, *OVER],
                executor_id=holder or None,
                limit=LISTED_MAX,
                load_input=False,
                load_output=False,
            )
        )
        places = []
        for one in found:
            item, _, turn = one.workflow_id.rpartition("#")
            has_it = (one.executor_id or "") if one.status == KEPT else ""
            places.append(Placement(item, int(turn), one.workflow_id, one.status, one.queue_name or "", has_it))
        return places

    def put(self, puts: Iterable[tuple[str, int, str]]) -> None:
        """Have items wait on their queues: item, turn, queue. What was put for that turn already stays as it is."""
        ordered = sorted(puts)  # all hosts in the same order: they may put the same, and wait for each other
        for first in range(0, len(ordered), PUT_TOGETHER):
            some = ordered[first : first + PUT_TOGETHER]
            self._ask(partial(self._put, some))

    def _put(self, some: Sequence[tuple[str, int, str]], client: DBOSClient) -> None:
        assert self._pool is not None  # noqa: S101 - as long as there is a client
        with self._pool.begin() as connection:
            for item, turn, queue in some:
                options: EnqueueOptions = {
                    "workflow_name": WORKFLOW,
                    "queue_name": queue,
                    "workflow_id": f"{item}#{turn}",
                    "app_version": VERSION,
                }
                client.enqueue_in_transaction(connection, options, item)

    def put_back(self, workflows: Sequence[str], queue: str) -> None:
        """Have them wait there, whoever had them. What is over stays so."""
        for first in range(0, len(workflows), RESUMED_TOGETHER):
            some = list(workflows[first : first + RESUMED_TOGETHER])
            self._ask(partial(DBOSClient.resume_workflows, workflow_ids=some, queue_name=queue))

    def withdraw(self, workflows: Iterable[str]) -> None:
        """They are not to be taken any more."""
        gone = list(workflows)
        if gone:
            self._ask(lambda client: client.cancel_workflows(gone))

    def forget(self, workflows: Iterable[str]) -> None:
        """Delete what is over."""
        gone = list(workflows)
        if gone:
            self._ask(lambda client: client.delete_workflows(gone))

    def _ask(self, question: Callable[[DBOSClient], Any]) -> Any:
        client = self._client
        if client is None:
            raise StoreError("the placement of units is closed")
        try:
            try:
                return question(client)
            except DBAPIError as failed:
                if not failed.connection_invalidated:
                    raise
                return question(client)  # that connection was cut long ago; whatever is asked may be asked twice
        except (SQLAlchemyError, error.DBOSException) as failed:
            raise self._away(failed) from None

    def _away(self, failed: Exception) -> StoreError:
        text = str(getattr(failed, "orig", None) or failed).strip().partition("\n")[0]
        return StoreError(
            f"{without_password(self._url)}: where units run cannot be read or written: {text}",
            remedy="See that the database is up and reachable; it is tried again.",
        )

"""Real workers on a real broker: what kills them is counted before it starts, and ends at the limit."""

from collections.abc import Iterator

import pytest

from flyball.core.decision import Verb
from flyball.core.event import Cause, Exited, Held, Released, Start
from flyball.integrations.celery import STARTS_MAX, TaskOptions
from tests.integrations.celery.scene import Shop, a_shop
from tests.servers.valkey import ValkeyServer, valkey

pytestmark = pytest.mark.slow  # real servers, and workers that are killed


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    """One broker for all."""
    with valkey() as server:
        yield server


@pytest.fixture(scope="module")
def shop(server: ValkeyServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A worker with two children, for all who do not kill it."""
    with a_shop(tmp_path_factory.mktemp("shop"), server.url(0), guarded=True) as shop:
        shop.worker(at_once=2)
        yield shop


def test_without_a_guard_it_goes_on_for_ever(server: ValkeyServer, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Plain Celery delivers what killed its worker again, and counts nothing: twice the limit is passed at once."""
    with a_shop(tmp_path_factory.mktemp("bare"), server.url(1), guarded=False) as bare:
        result = bare.send("kills_child")
        bare.worker()
        bare.wait(lambda: len(bare.began("kills_child")) > 2 * STARTS_MAX)
        assert not result.ready()


def test_what_kills_its_child_is_begun_as_often_as_allowed(shop: Shop) -> None:
    """A message that kills the process that runs it is begun three times; each is counted before, and found as lost.
    Then it has failed, with the reason; `status` shows it, and how a person lets go of it."""
    result = shop.send("kills_child")
    error = shop.failed(result)
    assert type(error).__name__ == "TaskRefused"
    assert "3 failures of lost" in str(error)
    assert result.id in str(error)
    assert len(shop.began("kills_child")) == STARTS_MAX
    events = shop.events("shop.kills_child", result.id)
    assert [type(event) for event in events] == [Start, Exited] * STARTS_MAX
    assert {event.cause for event in events if isinstance(event, Exited)} == {Cause.LOST}
    assert "$ flyball resume shop.kills_child" in shop.flyball("status")
    asks = Start(unit="shop.kills_child", labels={"message": result.id})
    with shop.guard() as guard:
        guard.governor.panel.put(asks.unit, TaskOptions().policies(guard.settings))
        assert guard.governor.look(asks).verb is Verb.HOLD
        shop.flyball("resume", "shop.kills_child")
        assert guard.governor.look(asks).proceeds


def test_messages_that_do_well_do_not_make_it_forgotten(shop: Shop) -> None:
    """A message that kills is held at its own limit, though others of the same task are done in between; and those are
    not held with it."""
    kills = shop.send("either", True)
    good = 0
    while not kills.ready():
        shop.done(shop.send("either", False))
        good += 1
    assert type(shop.failed(kills)).__name__ == "TaskRefused"
    assert len(shop.began("either True")) == STARTS_MAX
    assert len(shop.began("either False")) == good
    assert good > 1


def test_what_kills_the_whole_worker_is_begun_as_often_as_allowed(
    server: ValkeyServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A message that kills the worker's main process too is begun three times, by three workers; a fourth refuses it,
    and goes on with others."""
    with a_shop(tmp_path_factory.mktemp("killed"), server.url(2), guarded=True) as killed:
        result = killed.send("kills_worker")
        for number in range(1, STARTS_MAX + 1):
            killed.worker().wait()
            assert len(killed.began("kills_worker")) == number, killed.log()
            killed.deliver_again()
        killed.worker()
        assert "3 failures of lost" in str(killed.failed(result))
        assert killed.done(killed.send("unguarded")) == "done"
        assert len(killed.began("kills_worker")) == STARTS_MAX


def test_retries_of_celery_count_as_failures(shop: Shop) -> None:
    """A task that asks Celery for a hundred retries is begun three times: the limit is flyball's."""
    result = shop.send("retries")
    # Its result may say "retry" in the end: Celery writes that of a retry which another process has refused meanwhile.
    shop.wait(lambda: f"TaskRefused: message {result.id} of shop.retries may not start: 3 failures" in shop.log())
    assert len(shop.began("retries")) == STARTS_MAX


def test_a_wait_takes_no_retry(shop: Shop) -> None:
    """Of two messages of a task that runs one at a time, the second waits, is sent again, and is done; no retry of
    Celery's is used up, of which there are none."""
    results = [shop.send("fine", 0.3), shop.send("fine", 0.3)]
    assert [shop.done(result) for result in results] == [0, 0]
    events = shop.events("shop.fine")
    assert [type(event) for event in events] == [Start, Exited] * 2


def test_an_exception_is_one_failure_of_its_unit(shop: Shop) -> None:
    """A task that raises has failed as Celery says it; the unit that the task names has one failure, with the stack
    trace, and nothing is remembered of the message, which never comes again."""
    result = shop.send("fails")
    assert isinstance(shop.failed(result), ValueError)
    exited = shop.events("till", result.id)[-1]
    assert isinstance(exited, Exited)
    assert (exited.cause, exited.error) == (Cause.ERROR, "ValueError: no such coin")
    assert "in fails" in exited.detail
    with shop.guard() as guard:
        assert result.id not in {key.subject for key in guard.governor.store.states("redelivery")}


def test_a_deadline_ends_what_does_not_end(shop: Shop) -> None:
    """A task that is over its deadline is interrupted, and its process lives on; the result says why."""
    result = shop.send("slow")
    error = shop.failed(result)
    assert type(error).__name__ == "TaskRefused"
    assert "was ended" in str(error)
    exited = shop.events("shop.slow", result.id)[-1]
    assert isinstance(exited, Exited)
    assert exited.cause is Cause.TIMEOUT


def test_a_person_holds_and_releases(shop: Shop) -> None:
    """While a person holds the task, its messages fail with that person's reason and its code does not begin; when it
    is released, they may be sent again."""
    shop.done(shop.send("either", False))
    before = len(shop.began("either False"))
    with shop.guard() as guard:
        guard.governor.submit(Held(unit="shop.either", by="ann", note="stock-taking"))
        assert "paused by ann: stock-taking" in str(shop.failed(shop.send("either", False)))
        assert len(shop.began("either False")) == before
        guard.governor.submit(Released(unit="shop.either", by="ann"))
    assert shop.done(shop.send("either", False)) == "done"


def test_what_is_left_out_by_name_is_not_guarded(shop: Shop) -> None:
    """A task in `skip` runs as it always did, and the journal knows nothing of it."""
    assert shop.done(shop.send("unguarded")) == "done"
    assert shop.events("shop.unguarded") == []

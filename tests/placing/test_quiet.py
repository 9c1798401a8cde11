"""The engine's log in ours: what is new, in one line, and no more often than that."""

import logging

import pytest

from flyball.placing.quiet import SAME_EVERY, TEXT_MAX, Quiet, hush


@pytest.fixture
def engine_log() -> logging.Logger:
    """A logger as the engine's, with a clock that stands still unless it is moved."""
    logger = logging.Logger("engine")
    logger.addHandler(Quiet(lambda: NOW[0]))
    NOW[0] = 1000.0
    return logger


NOW = [1000.0]


def test_the_same_is_said_once_a_minute(engine_log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    """From one place of the engine; from another place it is something else."""

    def warn(text: str) -> None:
        engine_log.warning(text)

    warn("one")
    warn("two")
    engine_log.warning("elsewhere")
    NOW[0] += SAME_EVERY
    warn("three")
    assert caplog.messages == ["placement: one", "placement: elsewhere", "placement: three"]


def test_that_the_database_is_away_is_said_once_by_all(
    engine_log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    """Each thread finds that out, in its own words."""
    engine_log.warning("queue a: (psycopg.OperationalError) refused")
    engine_log.warning("queue b: (psycopg.OperationalError) refused")
    engine_log.error("schedules: Traceback\n(psycopg.errors.AdminShutdown) terminating")
    assert caplog.messages == ["placement: queue a: (psycopg.OperationalError) refused"]


@pytest.mark.parametrize(
    ("level", "text", "said"),
    [
        (logging.WARNING, "bad\n[SQL: SELECT 1]", ["placement: bad"]),
        (logging.WARNING, "x" * 1000, ["placement: " + "x" * TEXT_MAX]),
        (logging.INFO, "launched", []),
        (logging.WARNING, "Asyncio task cancelled for workflow or step f", []),
        (logging.ERROR, "DBOS failed to launch:", []),
    ],
)
def test_a_line_each(
    level: int, text: str, said: list[str], engine_log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    """Warnings, without statements of SQL; nothing of what is meant to happen."""
    engine_log.log(level, text)
    assert caplog.messages == said


def test_nothing_goes_to_the_terminal() -> None:
    """The engine finds that there is a way for its log already, and makes none of its own."""
    hush()
    hush()
    logger = logging.getLogger("dbos")
    assert [type(handler) for handler in logger.handlers if isinstance(handler, Quiet)] == [Quiet]
    assert not logger.propagate

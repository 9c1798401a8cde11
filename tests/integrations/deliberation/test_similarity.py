"""Readings of a round: how alike, how new, how agreed."""

import importlib.util
import itertools
import logging
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flyball.errors import FlyballError
from flyball.integrations.deliberation import (
    Embedding,
    Measure,
    agreement,
    choose_measure,
    convergence,
    embedding,
    lexical,
    novelty,
)
from flyball.integrations.deliberation.similarity import VOICES_MAX

MEASURES: dict[str, Callable[[], Measure]] = {"words": lambda: lexical, "meaning": choose_measure}

TEXTS = st.text(st.characters(categories=("L", "N", "P", "Zs")), max_size=60)
SAID = st.lists(TEXTS, max_size=4)


@pytest.fixture(params=list(MEASURES))
def measure(request: pytest.FixtureRequest) -> Measure:
    return MEASURES[request.param]()


@pytest.mark.parametrize("measured", list(MEASURES))
@given(one=TEXTS, other=TEXTS)
@settings(max_examples=150, deadline=None)
def test_a_measure(measured: str, one: str, other: str) -> None:
    """A measure is symmetric, between 0 and 1, and 1.0 for a text and itself (0.0 if there is nothing in it)."""
    alike = MEASURES[measured]()
    assert alike(one, other) == alike(other, one)
    assert 0.0 <= alike(one, other) <= 1.0
    assert alike(one, one) in (0.0, 1.0)
    assert alike(f"word {one}", f"word {one}") == 1.0


@given(now=SAID, before=SAID)
@settings(max_examples=150, deadline=None)
def test_convergence_is_a_reading(now: list[str], before: list[str]) -> None:
    """Between 0 and 1, and the same whoever speaks first."""
    reading = convergence(now, before, lexical)
    assert 0.0 <= reading <= 1.0
    assert convergence(now[::-1], before[::-1], lexical) == reading


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [
        (["buy the firm"] * 3, ["buy the firm"] * 3, 1.0),
        (["buy the firm"] * 3, [], 1.0),
        (["buy the firm"], ["buy the firm"], 1.0),
        (["buy a firm", "paint roofs", "sing songs"], ["buy a firm", "paint roofs", "sing songs"], 0.0),
        (["buy a firm"] * 3, ["paint roofs", "paint roofs", "sing songs"], 0.0),
        (["buy"], [], 0.0),
        ([], ["buy"], 0.0),
        ([], [], 0.0),
        (["", ""], ["", ""], 0.0),
    ],
    ids=["all", "first-round", "one-voice", "deadlock", "moved-together", "alone", "silence", "nothing", "empty"],
)
def test_convergence(now: list[str], before: list[str], expected: float, measure: Measure) -> None:
    """S1-54: only voices that say the same, and said so before, have converged."""
    assert convergence(now, before, measure) == pytest.approx(expected, abs=0.35 if expected == 0 else 0)


def test_convergence_is_bounded() -> None:
    """Of very many contributions the latest are compared."""
    asked = itertools.count()

    def alike(one: str, other: str) -> float:
        next(asked)
        return 1.0

    assert convergence(["x"] * 1_000, ["x"] * 1_000, alike) == 1.0
    assert next(asked) <= VOICES_MAX * VOICES_MAX * 3 // 2


SAME = (
    "Migrate to the new database in stages, with a rollback plan; start with the billing service.",
    "I agree: a staged migration to the new database, billing first, and a plan to roll back.",
)
OTHER = "Cost is the main concern. Licences are three times as expensive, and nobody has done the sums."


def test_meaning_orders(measure: Measure) -> None:
    """S1-54: the same proposal in other words is more alike than another one, by either measure."""
    assert measure(*SAME) > 0.3 > measure(SAME[0], OTHER)


def test_meaning_sees_more_than_words() -> None:
    """S1-54: two ways of saying it share no word: the model sees it, the words do not."""
    one, other = (
        "Launch in Europe first because regulation is clear.",
        "Start with the EU market, as rules are known there.",
    )
    assert choose_measure()(one, other) > 2 * lexical(one, other)


@pytest.mark.parametrize(
    ("one", "other", "least", "most"),
    [
        ("Buy the FIRM, now!", "buy the firm now", 1.0, 1.0),
        ("staged migrations", "stage migration", 0.3, 1.0),
        ("we raise 3 percent", "we raise 5 percent", 0.3, 0.95),
        ("我们应该买下这家公司", "我们应该收购这家公司", 0.5, 0.95),
        ("ＢＵＹ", "buy", 1.0, 1.0),
        ("!!! ...", "!!! ...", 0.0, 0.0),
        ("the of and", "the of and migration database", 0.0, 0.6),
    ],
    ids=["case", "endings", "numbers-differ", "no-spaces", "width", "no-words", "short-words"],
)
def test_words(one: str, other: str, least: float, most: float) -> None:
    """Words are compared as what they are, not as they are written."""
    assert least <= lexical(one, other) <= most


def test_long_texts() -> None:
    """A text without end costs no time without end."""
    assert lexical("word " * 10**6, "word " * 10**6) == 1.0


def test_novelty(measure: Measure) -> None:
    """S1-55: what was said before is not new, what nobody said is, and there is something in between."""
    assert novelty(OTHER, [], measure) == 1.0
    assert novelty(OTHER, [SAME[0], OTHER], measure) == 0.0
    assert novelty(OTHER, [SAME[0]], measure) > novelty(SAME[1], [SAME[0]], measure) > 0.0


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ({"cfo": "buy", "cto": "Buy ", "ceo": "sell"}, 2 / 3),
        (["buy", "buy", "buy", "buy", "sell"], 0.8),
        ([True, True, True, False], 0.75),
        ([False, False], 0.0),
        (["buy", None, None, None], 0.25),
        ([True, None], 0.5),
        ([None, None], 0.0),
        (["", " ", ""], 0.0),
        (["buy", ""], 0.5),
        ([], 0.0),
        ([1, 1, 2], 2 / 3),
    ],
)
def test_agreement(votes: object, expected: float) -> None:
    """S1-16: the share of voices that agree; whoever takes no position agrees with nobody, and all who disagree are no
    agreement."""
    assert agreement(votes) == pytest.approx(expected)  # type: ignore[arg-type]  # a matrix of all kinds


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, words are compared; whoever asks for the model is told what to install."""
    monkeypatch.setattr(embedding, "PACKAGE", "no_such_package")
    choose_measure.cache_clear()
    try:
        assert choose_measure() is lexical
        with pytest.raises(FlyballError, match="not installed") as raised:
            Embedding()
        assert "flyball-governor[embeddings]" in raised.value.remedy
    finally:
        choose_measure.cache_clear()


def test_files_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of the package without the files is named, and what to do."""
    monkeypatch.setattr(embedding, "WEIGHTS", "weights/another.safetensors")
    with pytest.raises(FlyballError, match="does not carry") as raised:
        Embedding()
    assert "lexical" in raised.value.remedy


OFFLINE = """
import logging, socket, sys
def refuse(*args, **kwargs): raise OSError("no network here")
socket.socket.connect = refuse
socket.create_connection = refuse
socket.getaddrinfo = refuse
from flyball.integrations.deliberation import choose_measure, lexical
measure = choose_measure()
assert measure is not lexical
assert measure("we should buy it", "let us acquire it") > 0.1
assert "wordllama" not in sys.modules
assert not logging.getLogger().handlers
"""


def test_model_is_local() -> None:
    """The model is read from the wheel: without a network, and without the package that would set up logging."""
    assert importlib.util.find_spec("wordllama") is not None
    done = subprocess.run([sys.executable, "-c", OFFLINE], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert logging.getLogger("wordllama").level == logging.NOTSET

"""Fingerprints: the same failure has the same name, another one another."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.failure import (
    FINGERPRINT_LENGTH,
    FRAMES_MAX,
    MESSAGE_MAX,
    call_fingerprint,
    digest,
    fingerprint,
    normalise,
    result_fingerprint,
    text_fingerprint,
)

BASE: dict[str, Any] = {"unit": "shop", "error": "SelectorNotFound", "target": "#buy", "message": "no such element"}


def named(**changes: Any) -> str:
    """The name of the base case with changes."""
    return fingerprint(**{**BASE, **changes})


def test_same_is_same() -> None:
    """Same type, unit, target and context: same fingerprint. (S0-04)"""
    assert named() == named()
    assert len(named()) == FINGERPRINT_LENGTH


@pytest.mark.parametrize(
    "changes",
    [
        {"unit": "other"},
        {"error": "Timeout"},
        {"target": "#sell"},
        {"message": "no such page"},
        {"code": 1},
        {"signal": 9},
        {"status": 429},
        {"errno": 2},
        {"frames": ("a.py:f",)},
    ],
    ids=repr,
)
def test_each_field_counts(changes: dict[str, Any]) -> None:
    """Another selector, unit, type or number: another fingerprint."""
    assert named(**changes) != named()


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"code": 137}, {"code": 1}),
        ({"status": 429}, {"status": 500}),
        ({"code": 9}, {"signal": 9}),
        ({"code": 0}, {}),
        ({"message": "3 failed"}, {"message": "2 failed"}),
        ({"message": "HTTP 429"}, {"message": "HTTP 500"}),
        ({"message": "exit code 137"}, {"message": "exit code 1"}),
        ({"message": "port 8080"}, {"message": "port 9090"}),
        ({"message": "deadbeef"}, {"message": "cafebabe"}),
        ({"unit": "a:b", "error": "c"}, {"unit": "a", "error": "b:c"}),
        ({"unit": "a|b", "error": "c"}, {"unit": "a", "error": "b|c"}),
        ({"unit": "ab", "error": "c"}, {"unit": "a", "error": "bc"}),
        ({"frames": ("a", "b")}, {"frames": ("b", "a")}),
    ],
    ids=repr,
)
def test_what_differs(one: dict[str, Any], two: dict[str, Any]) -> None:
    """Exit codes, signals, statuses and plain numbers tell failures apart; and fields do not run into each other."""
    assert named(**one) != named(**two)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("no 3f2504e0-4f89-41d3-9a0c-0305e82c3301", "no 7d444840-9dc0-11d1-b245-5ffdce74fad2"),
        ("no 3F2504E0-4F89-41D3-9A0C-0305E82C3301", "no 7d444840-9dc0-11d1-b245-5ffdce74fad2"),
        ("at 2026-11-15T22:40:41.123Z", "at 2025-01-02T03:04:05+02:00"),
        ("at 2026-11-15 22:40:41,123", "at 2025-01-02 03:04:05"),
        ("on 2026-11-15", "on 2025-01-02"),
        ("22:40:41 failed", "03:04:05.678 failed"),
        ("object at 0x7f3a2c", "object at 0xdeadbeef01"),
        ("commit 0123456789ab", "commit fedcba9876543210"),
        ("id 123456789012", "id 9876543210987654"),
        ("after 1.5s", "after 20 seconds"),
        ("after 300 ms", "after 2 min"),
        ("open /tmp/abc123/x.log failed", "open /tmp/zz/y.log failed"),
        ("open /var/folders/ab/T/x failed", "open /private/var/folders/cd/T/y failed"),
        ("open /dev/shm/abc failed", "open /var/tmp/x/y failed"),
        ("C:\\Users\\a\\Temp\\x1 failed", "D:\\b\\temp\\y2 failed"),
        ("call toolu_01AbCdEf99 failed", "call toolu_02XyZwVu11 failed"),
        ("Mon Nov 16 01:31:17 UTC 2026", "Mon Nov  9 23:00:01 UTC 2026"),
        ("Mon, 16 Nov 2026 01:31:17 GMT", "Mon, 09 Nov 2026 11:00:00 GMT"),
        ("[16/Nov/2026:01:31:17 +0000] GET", "[09/Dec/2026:11:00:00 +0100] GET"),
        ("-rw-r--r-- 1 a a 12 Nov 16 01:31 f", "-rw-r--r-- 1 a a 12 Dec  1  2025 f"),
        ("on Nov 16, 2026 1:02 PM", "on December 3, 2026 11:59 AM"),
        ("real 0m8.619s", "real 1m0.002s"),
        ("took 1h2m3s", "took 2 m 3 s"),
        ("now 1700000000.123", "now 1800000000.4"),
        ("id 01ARZ3NDEKTSV4RRFFQ69G5FAV", "id 01BX5ZZKBKACTAV9WEVGEMMVRZ"),
        ("made home/tmpab12cd_9/y", "made home/tmpz9y8x7w6/y"),
        ("killed pid 123", "killed pid=4567"),
        pytest.param(
            "request req-a1b2c3d4 failed",
            "request req-z9y8x7w6 failed",
        ),
        ("spaces  and\n\tlines", "spaces and lines"),
    ],
)
def test_what_is_volatile_does_not_count(one: str, two: str) -> None:
    """Ids, hex of 12 and more, times, durations, addresses, temporary paths: gone from the message."""
    assert normalise(one) == normalise(two)
    assert named(message=one) == named(message=two)
    assert result_fingerprint(one) == result_fingerprint(two)


def test_what_an_agent_says() -> None:
    """The same words at another time are the same; others are not, and words are no call and no result."""
    assert text_fingerprint("It is 12:00:01. I begin.") == text_fingerprint("It is 12:00:59. I begin.")
    assert text_fingerprint("I begin.") != text_fingerprint("I end.")
    assert text_fingerprint("I begin.") not in (result_fingerprint("I begin."), call_fingerprint("", "I begin."))


@pytest.mark.parametrize(
    "text",
    [
        *("3 failed", "HTTP 429", "abcdef", "task_list", "run_tests", "/etc/passwd", "12345678901", "decade", "v1.2.3"),
        *("you may 3 times", "internationalization20", "1700000000 bytes", "tmpfilename", "Mar 3 of 4"),
    ],
)
def test_what_stays(text: str) -> None:
    """Words, plain numbers, short hex and lasting paths are what a failure is about."""
    assert normalise(text) == text


def test_only_the_innermost_frames_count() -> None:
    """The road to a bug does not matter, and frames stand in for the message."""
    inner = tuple(f"m.py:f{n}" for n in range(FRAMES_MAX))
    assert named(frames=("main.py:main", *inner)) == named(frames=("other.py:go", *inner), message="else")
    assert named(frames=inner) != named(frames=(*inner[:-1], "m.py:g"))


def test_only_the_beginning_of_a_message_counts() -> None:
    """A message without an end costs no more than one with."""
    assert named(message="x" * 50_000_000) == named(message="x" * MESSAGE_MAX + " tail")


@pytest.mark.parametrize("fill", ["a", "0", "a1", "C:\\", "0x", "run_", "1 ", "/tmp/", "12:", "req-1a "])
def test_no_message_takes_long(fill: str) -> None:
    """No text sends a pattern astray: it is done before a test would time out, and once more gives the same."""
    text = normalise(fill * MESSAGE_MAX)
    assert text == normalise(fill * MESSAGE_MAX)
    assert len(text) <= MESSAGE_MAX * 4


@given(st.text(st.characters(), max_size=200))
def test_any_text_has_a_name(text: str) -> None:
    """Empty, odd, or with lone surrogates: there is a fingerprint, and normalising again changes nothing."""
    assert len(fingerprint("u", "e", message=text)) == FINGERPRINT_LENGTH
    assert len(call_fingerprint("tool", text)) == FINGERPRINT_LENGTH


@pytest.mark.parametrize("odd", ["\udcff", "\ud800\udc00", "", "\x00", "é" * 3_000])
def test_odd_texts(odd: str) -> None:
    """What is no proper text is told apart all the same."""
    assert named(target=odd) != named(target=odd + "x")


@pytest.mark.parametrize("arguments", [b'{"a":1}', b"\xff\xfe", b""])
def test_calls_are_named_letter_for_letter(arguments: bytes) -> None:
    """Arguments are not normalised: a call for another page is another call."""
    assert call_fingerprint("get", arguments) == call_fingerprint("get", arguments.decode("utf-8", "surrogateescape"))
    assert call_fingerprint("get", arguments) != call_fingerprint("get", arguments + b"1")
    assert call_fingerprint("get", arguments) != call_fingerprint("put", arguments)
    assert call_fingerprint("get", "id 123456789012") != call_fingerprint("get", "id 123456789013")


def test_digest_is_of_fields() -> None:
    """Fields are prefixed with their length, so moving a border gives another name; the name itself is for ever."""
    assert digest(["a:b", "c"]) != digest(["a", "b:c"])
    assert digest(["", "a"]) != digest(["a", ""])
    assert digest(["1:a"]) != digest(["a"])
    assert fingerprint("shop", "SelectorNotFound", target="#buy") == "ea01c4c67ebb9f82"


def test_an_id_at_the_cut_does_not_count() -> None:
    """Where a long message is cut, half an id is left: it must not make each failure a new one."""
    head = "x " * (MESSAGE_MAX // 2 - 5)
    assert named(message=head + "3f2504e0-4f89-41d3-9a0c-0305e82c3301") == named(
        message=head + "7d444840-9dc0-11d1-b245-5ffdce74fad2"
    )

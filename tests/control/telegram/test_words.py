"""How the bot reads: whatever comes from outside, Telegram takes it, and it means nothing but itself."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.control.telegram import words

HOSTILE = st.text(max_size=600) | st.sampled_from(
    ["<b>", "</b>", "&amp;", "<a href='x'>", "\x00\x1b[2J", "𝔘" * 500, "\n" * 50]
)


class _Reader(HTMLParser):
    """Reads as Telegram does: tags of a few kinds, each closed."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ("b", "i", "code")
        assert not attrs
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def _read(text: str) -> str:
    """What people see of it. Fails where Telegram would refuse it."""
    assert len(text.encode("utf-16-le", "surrogatepass")) // 2 <= words.TEXT_MAX
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert not reader.open
    return reader.text


@given(text=HOSTILE)
def test_plain(text: str) -> None:
    """A text from outside becomes one line that is not too long, and is shown as it is."""
    shown = _read(words.bold(text))
    assert len(shown) <= words.PART_MAX
    assert shown == "" or shown.isprintable()
    if text.isprintable() and len(text) <= words.PART_MAX:
        assert shown == text.strip()


@given(lines=st.lists(HOSTILE.map(words.plain) | HOSTILE.map(words.code), max_size=60))
def test_message(lines: list[str]) -> None:
    """A message is never too long; lines that do not fit are counted, and none is cut."""
    text = words.message(lines)
    _read(text)
    kept = text.split("\n")
    if text != "\n".join(lines):
        assert kept[:-1] == lines[: len(kept) - 1]
        assert kept[-1].startswith(f"… {len(lines) - len(kept) + 1} more line")


@given(text=HOSTILE)
def test_buttons_and_toasts(text: str) -> None:
    """They are short, and never empty where Telegram wants something."""
    assert 1 <= len(words.label(text)) <= words.LABEL_MAX
    assert len(words.toast(text)) <= words.TOAST_MAX


@given(text=HOSTILE, remedy=HOSTILE)
def test_error(text: str, remedy: str) -> None:
    """An error is taken, whatever it says."""
    assert _read(words.error(text, remedy)).startswith("Not done:")


@pytest.mark.parametrize("count", [0, 1, 3, 500])
def test_status(count: int) -> None:
    """A large fleet fits into one message, and says how much is left out."""
    unit = {"state": "quarantined", "held": True, "reasons": [], "failures": [_failure("<x> " * 200)]}
    fleet = {
        "state": "running",
        "running": 0,
        "units": count,
        "counts": {"quarantined": count},
        "reasons": [{"text": "r" * 5000}] * 30,
        "breakers": [{"name": "provider:x", "state": "open"}] * 30,
        "hosts": [{"name": "<b>", "state": "lost"}] * 30,
    }
    data = {"fleet": fleet, "units": [{"name": f"u{n}", **unit} for n in range(count)], "trouble": "t" * 9000}
    problems = [{"acknowledged": False, "snoozed_until": None}] * count
    text = _read(words.status(data, problems))
    assert text.startswith(f"running: 0 of {count} unit")
    assert "Trouble:" in text
    if count > words.LISTED_MAX:
        assert "… " in text


def _failure(error: str) -> dict[str, object]:
    return {"error": error, "count": 6, "fingerprint": "f" * 16, "quarantined": True}


@given(said=st.lists(st.tuples(HOSTILE, st.floats(-1, 1e9)), min_size=1, max_size=120))
def test_dropped(said: list[tuple[str, float]]) -> None:
    """What came too late is listed."""
    assert "Not done" in _read(words.dropped(said, 60.0))

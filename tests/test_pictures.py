"""Pictures in the docs are made from the real thing, and load nothing from anywhere."""

import os
import re
import sys
from pathlib import Path

import pytest
from tools.simulate_pictures import pictures
from tools.terminal_picture import Shown, draw, run

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"


def test_terminal(tmp_path: Path) -> None:
    """What a command prints on a terminal of some width is in the picture, with its colours."""
    program = "import os; print(chr(27) + '[31mred' + chr(27) + '[0m', os.get_terminal_size().columns, os.isatty(1))"
    printed = run([sys.executable, "-c", program], env=os.environ, cwd=tmp_path, columns=77)
    assert printed == "\x1b[31mred\x1b[0m 77 True\n"
    picture = draw([Shown("python program.py", printed)], 77)
    assert re.search(r'class="terminal-r\d+"[^>]*>red<', picture)
    assert "#ff7b72" in picture


@pytest.mark.parametrize("picture", sorted(PICTURES.glob("*.svg")), ids=lambda path: path.name)
def test_nothing_is_fetched(picture: Path) -> None:
    """No font, no script, no picture from elsewhere; and nobody's folder is in it."""
    text = picture.read_text()
    assert set(re.findall(r"https?://[^\"' )<]+", text)) <= {"http://www.w3.org/2000/svg", "https://shop.example/login"}
    assert "<script" not in text
    assert not re.search(r"/(home|root|tmp)/", text)


def test_every_simulation_has_its_picture() -> None:
    """The page about tuning names commands and pictures, and the pictures are there."""
    named = [picture for _, picture in pictures()]
    assert len(named) == 5
    assert [picture.name for picture in named if not picture.exists()] == []

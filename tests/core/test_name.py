"""Names: one rule, for files and for commands."""

import pytest
from pydantic import ValidationError

from flyball.cli.run import _name
from flyball.config.settings import Settings
from flyball.core.name import NAME_MAX, is_name, name_from

GOOD = ("a", "_a", "web-1", "web@2", "c++", "a.b", "0", "A" * NAME_MAX)
BAD = ("", "-a", ".a", "@a", "a/b", "../a", "a b", "ä", "a\n", "A" * (NAME_MAX + 1))


@pytest.mark.parametrize("name", GOOD)
def test_good(name: str) -> None:
    """What is a name for a command is one in a file."""
    assert is_name(name)
    assert _name(None, None, name) == name  # type: ignore[arg-type]  # neither is looked at
    settings = Settings.model_validate({"units": {name: {"command": "true"}}})
    assert settings.units[0].name == name


@pytest.mark.parametrize("name", BAD)
def test_bad(name: str) -> None:
    """So it is with what is none."""
    assert not is_name(name)
    with pytest.raises(Exception, match="is no name"):
        _name(None, None, name)  # type: ignore[arg-type]  # neither is looked at
    with pytest.raises(ValidationError, match="a name has at most 64"):
        Settings.model_validate({"units": {name: {"command": "true"}}})


@pytest.mark.parametrize(
    ("text", "name"),
    [("my agent.py", "my-agent.py"), ("..hidden", "hidden"), ("--", "it"), ("", "it"), ("x" * 99, "x" * NAME_MAX)],
)
def test_made_of_text(text: str, name: str) -> None:
    """Whatever the text, what comes out is a name."""
    assert name_from(text, "it") == name
    assert is_name(name)

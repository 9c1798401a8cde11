"""What is found in a page, and what becomes of it when it is typed: no command is overlooked, no failure either."""

import pytest

from tests.docs.pages import Block, Command, blocks_of, commands_of
from tests.docs.typist import Typist
from tests.docs.world import World

PAGE = """\
Text with `flyball status`.

```
flyball up -d   # a daemon
curl -d x \\
     http://127.0.0.1:8910
case $? in
  0) ;;
esac
```

- In a list:

    ```yaml
    units:
      web: {command: [serve]}
    ```

```console
$ flyball status
UNIT  STATE
    $ flyball reset 7f3a
$ flyball why web
```

```text
flyball: web exited
```
"""


def test_blocks() -> None:
    """Each with its first line, and without the indentation of its list."""
    found = blocks_of(PAGE, "p")
    assert [(block.where, block.language) for block in found] == [
        ("p:4", ""),
        ("p:15", "yaml"),
        ("p:20", "console"),
        ("p:27", "text"),
    ]
    assert found[1].text == "units:\n  web: {command: [serve]}\n"
    assert [block.is_commands for block in found] == [True, False, True, False]


def test_a_block_without_an_end() -> None:
    """It would swallow all that comes after it."""
    with pytest.raises(ValueError, match="p:1: this block has no end"):
        blocks_of("```sh\nflyball up\n", "p")


def test_commands() -> None:
    """What is typed at once is one command; of a transcript the rest is its answer."""
    first, _, third, _ = blocks_of(PAGE, "p")
    typed = commands_of(first)
    assert [command.bare.split()[0] for command in typed] == ["flyball", "curl", "case"]
    assert typed[0].bare == "flyball up -d"
    assert [(command.line, command.text, command.shown) for command in commands_of(third)] == [
        (20, "flyball status", "UNIT  STATE\n    $ flyball reset 7f3a\n"),
        (23, "flyball why web", ""),
    ]


def test_requests_are_no_commands() -> None:
    """They go to the socket."""
    block = Block("p", 1, "", '{"v": 1, "id": 1, "verb": "problems"}\n')
    assert (block.is_commands, block.is_requests) == (False, True)


@pytest.mark.parametrize(
    ("typed", "code"),
    [("flyball statsu", 2), ("flyball status --jsno", 2), ("no-such-program", 127), ("false | true; exit 3", 3)],
)
def test_what_fails_is_seen(typed: str, code: int) -> None:
    """A command, an option or a program that there is not."""
    with World() as world:
        assert Typist(world).type(Command("p", 1, typed)).code == code


def test_what_is_set_holds() -> None:
    """For the lines after it: variables, the folder, and how the last one ended."""
    with World() as world:
        typist = Typist(world)
        for typed in ("NAME=web", "mkdir there", "cd there", "false"):
            typist.type(Command("p", 1, typed))
        done = typist.type(Command("p", 1, "echo $? $NAME $(basename $PWD)"))
        assert done.out == "1 web there\n"

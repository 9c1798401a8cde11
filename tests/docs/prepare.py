"""The world of a page, as it is before anything is typed."""

from collections.abc import Sequence
from typing import Any

import yaml

from flyball.config.settings import Settings
from tests.docs.pages import Command, blocks
from tests.docs.tables import PAGES, Page
from tests.docs.typist import Typist
from tests.docs.world import FILES, PROGRAMS, SETTINGS, World


def prepare(world: World, page: str = "", commands: Sequence[Command] = ()) -> Typist:
    """Make it, for these commands of it. A daemon runs, unless they start one. Without a page: that of all others."""
    given = PAGES.get(page, Page())
    world.has({**PROGRAMS, **given.programs})
    for name, text in {**FILES, **given.files}.items():
        (world.folder / name).write_bytes(text if isinstance(text, bytes) else world.here(text).encode())
    world.settle(SETTINGS, *(settings_of(page) if given.own_settings else ()), given.settings)
    world.env |= given.env
    past = world.past()
    given.past(past)
    past.governor.store.close()
    (world.state / "logs").mkdir()
    (world.state / "logs" / "coder-3.log").write_text("here we go\n")
    typist = Typist(world)
    if given.daemon and not any(command.bare.startswith("flyball up") for command in commands):
        done = typist.type(Command(page, 0, "flyball up -d"))
        assert done.code == 0, done
        world.ask("raise", fleet=True, more="1.00")  # so that there is an order to look at
    return Typist(world, world.inside()) if given.inside else typist


def settings_of(page: str) -> list[dict[str, Any]]:
    """What the page shows of a settings file, where that is whole sections of it."""
    shown = blocks(page) if page else ()
    found = [yaml.safe_load(block.text) for block in shown if block.language == "yaml"]
    whole = [given for given in found if isinstance(given, dict) and given]
    return [given for given in whole if given.keys() <= Settings.model_fields.keys()]

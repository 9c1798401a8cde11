"""Brings docs/architecture.md up to date: who may import whom is made from the contract that import-linter keeps.

    python tools/architecture_reference.py

`make docs` runs it; a test sees when the page is stale.
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "architecture.md"
LINE: Final = re.compile(r"^`cli > .* > errors`\.$", re.MULTILINE)


def page() -> str:
    """The whole page."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    line = f"`{' > '.join(layers).replace('flyball.', '')}`."
    return LINE.sub(line, PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.name} is up to date\n")

"""Brings docs/reference/metrics.md up to date: the paragraph right under the name of each metric says its kind, its
labels and what it counts, made from the table of metrics. What is below that is written by hand, and left as it is.

    python tools/metrics_reference.py

`make docs` runs it; a test sees when the page is stale. A new metric needs a heading with its name.
"""

import re
import sys
from pathlib import Path
from typing import Final

from flyball.control.metrics.names import METRICS

PAGE: Final = Path(__file__).parent.parent / "docs" / "reference" / "metrics.md"
SECTION: Final = re.compile(r"^### `(?P<name>[a-z_]+)`\n\n(?:(?!#).+\n)*", re.MULTILINE)
"""The heading of a metric and the paragraph under it."""


def page() -> str:
    """The whole page, with every such paragraph as it should be."""
    return SECTION.sub(
        lambda found: f"### `{found['name']}`\n\n{_said(found['name'])}\n", PAGE.read_text(encoding="utf-8")
    )


def _said(name: str) -> str:
    metric = METRICS.get(name)
    if metric is None:
        return f"There is no metric {name}."
    by = f", by {', '.join(f'`{label}`' for label in metric.labels)}" if metric.labels else ""
    return f"{metric.kind.capitalize()}{by}. {' '.join(metric.help.split())}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.name} is up to date\n")

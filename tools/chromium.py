"""A browser for the tests of browser actions: finds Chromium, or installs it where that is possible without asking.

    python -m tools.chromium

Where it is not possible, it says what to do. Nothing fails here: without a browser its tests are skipped, and say why.
"""

import os

from tools.debian import can_install, install

from flyball.runtimes.rule.browser import VARIABLE, find_browser

BY_HAND = f"Install Chromium by hand, or set {VARIABLE} to its path. Until then the tests of the browser are skipped."


def main() -> None:
    """Find it, or install it, or say what to do."""
    if find_browser(os.environ) is not None:
        return
    if not can_install() or os.environ.get(VARIABLE):
        print(f"There is no Chromium here, and it cannot be installed without asking. {BY_HAND}")
        return
    print("There is no Chromium here: it is installed, for the tests of the browser.")
    if not install("chromium"):
        print(f"It could not be installed. {BY_HAND}")


if __name__ == "__main__":
    main()

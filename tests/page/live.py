"""A daemon that serves its page, and a person who is logged in there."""

from pathlib import Path
from typing import Any

from tests.daemon.site import Site, until


class LiveSite(Site):
    """A daemon's place whose page listens at any free port."""

    def __init__(self, folder: Path, **env: str) -> None:
        super().__init__(folder, FLYBALL_HTTP__LISTEN="127.0.0.1:0", **env)

    def login(self, token: str = "") -> tuple[str, str]:
        """The page's address, and the path that logs a browser in, once."""
        said = self.ask("login_link", **({"token": token} if token else {}))
        address = str(said["address"])
        return address, str(said["link"]).removeprefix(address)

    def wait(self, unit: str, **fields: Any) -> dict[str, Any]:
        """Wait until `status` says this of a unit; what it says."""

        def there() -> dict[str, Any]:
            found: dict[str, Any] = self.status().get(unit, {})
            return found if all(found.get(name) == value for name, value in fields.items()) else {}

        return until(there, f"{unit}: {fields}")

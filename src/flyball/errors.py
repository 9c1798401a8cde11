"""What an exception means here. A refusal is not an exception: it is a decision.

Each error says what was wrong, where, and what to do. The command line prints it without a traceback. Each kind of
error has a topic, which never changes: `flyball explain TOPIC` is its page.
"""


class FlyballError(Exception):
    """Something is wrong that a person can put right. The text says what and where, `remedy` what to do."""

    remedy: str = ""
    topic: str = ""
    """By which its page is found; nothing: its text says all there is. A kind of error has its own name: StoreFull has
    `store_full`."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "topic" not in cls.__dict__:
            cls.topic = "".join(f"_{char.lower()}" if char.isupper() else char for char in cls.__name__).lstrip("_")

    def __init__(self, text: str, *, remedy: str = "") -> None:
        super().__init__(text)
        self.remedy = remedy or type(self).remedy


class StoreError(FlyballError):
    """The store cannot do what it was asked; nothing was half-written."""

    remedy = "Look at the file and its disk, then try again."
    passes = True
    """It may be over soon, by itself or because somebody made room: whoever can wait may try again."""


class StoreFull(StoreError):
    """No room left on the disk."""

    remedy = "Free some disk space and try again; nothing was lost."


class StoreReadOnly(StoreError):
    """The file or its folder cannot be written."""

    remedy = "Check the owner and mode of the file and its folder, and that the disk is not mounted read-only."


class StoreCorrupt(StoreError):
    """The file is damaged, or is not one of ours."""

    passes = False
    remedy = "Move the file away and restore a copy, or start with a new one; flyball has not changed it."


class StoreTooNew(StoreError):
    """The file was written by a newer flyball."""

    passes = False
    remedy = "Upgrade flyball, or use another state folder; the file was left untouched."


class StoreAway(StoreError):
    """The database of a fleet cannot be reached."""

    remedy = "See that the database runs and can be reached from here; it is tried again by itself."


class StoreUnsure(StoreAway):
    """The connection broke in mid-commit, and the database could not be asked since: it is written whole, or not at
    all."""

    remedy = "See what the journal says once the database is back: `flyball events`."


class StoreUnsafe(StoreError):
    """The SQLite library at hand is known to lose data."""

    passes = False
    remedy = "Install a current apsw: `pip install --upgrade apsw`."


class StoreClosed(StoreError):
    """The store was closed, or its writer has ended."""

    passes = False
    remedy = "Open it again."


class SettingsError(FlyballError):
    """A settings file is wrong: `problems` has one line each, with file, line and column."""

    remedy = "Put that right, then try again."

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems

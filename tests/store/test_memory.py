"""The store in memory."""

from pathlib import Path

from flyball.store import Store
from flyball.store.memory import MemoryStore
from flyball.testing.conformance import StoreConformance


class TestMemoryStore(StoreConformance):
    """It is a store like any other."""

    def open_store(self, folder: Path) -> Store:
        return MemoryStore()

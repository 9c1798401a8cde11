"""Checkpoints, for the runtimes. They are records of the store, and what people see reads them too: so they live beside
it (`flyball.store.checkpoints`), and here is only the name by which runtimes know them."""

from flyball.store.checkpoints import (
    BYTES_MAX,
    KEPT_MAX,
    Checkpoint,
    CheckpointChanged,
    CheckpointDamaged,
    CheckpointError,
    CheckpointNotFound,
    CheckpointRefused,
    Kept,
    Rows,
    add,
    choose,
    chosen,
    chosen_key,
    cleared,
    load,
    read_index,
    rows,
)

__all__ = [
    "BYTES_MAX",
    "KEPT_MAX",
    "Checkpoint",
    "CheckpointChanged",
    "CheckpointDamaged",
    "CheckpointError",
    "CheckpointNotFound",
    "CheckpointRefused",
    "Kept",
    "Rows",
    "add",
    "choose",
    "chosen",
    "chosen_key",
    "cleared",
    "load",
    "read_index",
    "rows",
]

"""Records of runs that outlive their supervisor: which process it is, and which run. The guardian spares what is
written here, and the next supervisor adopts it."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

FOLDER = "kept"


class Record(msgspec.Struct, frozen=True):
    """One run that is to be kept."""

    unit: str
    pid: int
    started: int
    """When that process started, as the kernel counts: with its pid, this is no other process."""
    run: str
    holder: str
    """Who held it, as the journal has it."""
    log: str = ""
    """Where its output goes."""


def write(folder: Path, record: Record) -> None:
    """Make the record last: whole or not at all, also when the machine stops."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{record.unit}.json"
    new = folder / f"{record.unit}.new"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, msgspec.json.encode(record))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    new.replace(path)
    opened = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def forget(folder: Path, unit: str) -> None:
    """The run is over."""
    with contextlib.suppress(OSError):
        (folder / f"{unit}.json").unlink()


def read(folder: Path) -> Iterator[Record]:
    """All records. One that cannot be read says nothing: its run is lost when its lease has run out."""
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            yield msgspec.json.decode(path.read_bytes(), type=Record)

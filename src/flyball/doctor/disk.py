"""The disk that the state folder is on: room, files, rights, and whether its kind is one to keep a store on."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flyball.doctor.finding import Finding, bad, ok, warning
from flyball.doctor.scene import Scene

FREE_LEAST: Final = 100 * 2**20
"""Bytes below which it is a matter of minutes: the store may grow by 64 MiB between two clean-ups."""
FREE_ENOUGH: Final = 2**30
"""Bytes below which a night of logs may fill it: one unit keeps up to 50 MiB of them by default."""
FILES_LEAST: Final = 1_000
"""Files that can still be made: units, logs and sockets need a few each."""
REMOTE: Final = frozenset(
    ("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "gpfs", "vboxsf", "prl_fs", "drvfs")
)
"""Kinds of disks on which locks, or shared memory between processes, do not do what SQLite needs."""
REMOTE_BY_FUSE: Final = ("fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.ceph")
FLEETING: Final = frozenset(("tmpfs", "ramfs"))
LAYER: Final = frozenset(("overlay", "aufs"))
LOCAL_DISK: Final = "Set FLYBALL_STATE_DIR to a folder on a local disk."


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """What the system says of a disk."""

    path: str
    free: int
    total: int
    files_free: int = 0
    files_total: int = 0
    """0: it does not count them."""
    read_only: bool = False
    writable: bool = True
    """By who asks."""
    kind: str = ""
    """ext4, nfs4, …; nothing: not known."""
    contained: bool = False
    """In a container."""


def check(scene: Scene) -> Iterator[Finding]:
    """Where there is no state folder yet, the disk that it will be made on."""
    there = nearest(scene.folder)
    yield from judge(seen(there), shared=bool(scene.fallback.store))


def judge(disk: Disk, *, shared: bool) -> Iterator[Finding]:
    """Whether states can be kept on it. `shared`: the store itself is in a database elsewhere."""
    kind = f" ({disk.kind})" if disk.kind else ""
    if disk.read_only:
        yield bad(f"the disk of {disk.path}{kind} is mounted read-only", f"Mount it for writing. {LOCAL_DISK}")
        return
    if not disk.writable:
        yield bad(f"{disk.path} cannot be written by you", f"Check its owner and mode. {LOCAL_DISK}")
    free = f"{disk.free / 2**30:.1f} of {disk.total / 2**30:.1f} GiB are free on the disk of {disk.path}{kind}"
    if disk.free < FREE_LEAST:
        yield bad(free, "Free some space: what cannot be written down is not started.")
    elif disk.free < FREE_ENOUGH:
        yield warning(free, "Free some space before a long run: logs of units and the journal grow.")
    else:
        yield ok(free)
    if disk.files_total and disk.files_free < FILES_LEAST:
        text = f"only {disk.files_free} of {disk.files_total} files can still be made on the disk of {disk.path}"
        yield bad(text, "Remove files there: small ones count as much as large ones.")
    if disk.kind in REMOTE or disk.kind in REMOTE_BY_FUSE:
        text = f"{disk.path} is on a disk of the network or of another system ({disk.kind})"
        if shared:
            yield warning(f"{text}: its locks and sockets may not work", LOCAL_DISK)
        else:
            yield bad(f"{text}: SQLite's locks are not safe there, and the store may be damaged", LOCAL_DISK)
    elif disk.kind in FLEETING:
        text = (
            f"{disk.path} is in memory ({disk.kind}): holds, counts and budgets are forgotten when the machine restarts"
        )
        yield warning(text, LOCAL_DISK)
    elif disk.kind in LAYER and disk.contained:
        text = f"{disk.path} is in the container's own layer ({disk.kind}): all of it is gone with the container"
        yield warning(text, "Mount a volume there, or set FLYBALL_STATE_DIR to one.")


def nearest(path: Path) -> Path:
    """The folder itself, or the first one above it that is there."""
    while not os.path.exists(path) and path != path.parent:  # noqa: PTH110 - that of pathlib raises where it may not look
        path = path.parent
    return path


def seen(path: Path) -> Disk:
    """What the system says."""
    stat = os.statvfs(path)
    return Disk(
        path=str(path),
        free=stat.f_bavail * stat.f_frsize,
        total=stat.f_blocks * stat.f_frsize,
        files_free=stat.f_favail,
        files_total=stat.f_files,
        read_only=bool(stat.f_flag & os.ST_RDONLY),
        writable=os.access(path, os.W_OK | os.X_OK),
        kind=kind_of(path),
        contained=Path("/.dockerenv").exists() or Path("/run/.containerenv").exists(),
    )


def kind_of(path: Path, table: Path = Path("/proc/self/mountinfo")) -> str:
    """What kind of disk it is on; nothing where the system does not tell."""
    try:
        lines = table.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    found, real = ("", ""), str(path.resolve())
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        point = fields[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(found[0]):  # the later one is mounted over the earlier one
            found = (point, after.split()[0])
    return found[1]

"""Which file system a directory is on, and whether SQLite's locks work there."""

import os
import re
from pathlib import Path

from kip30.errors import StoreError

_TABLE = Path("/proc/self/mountinfo")
_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|9p|ceph|afs|coda|ncpfs|lustre|gfs2?|ocfs2|beegfs|glusterfs"
    r"|gpfs|pvfs2|orangefs|vboxsf|vmhgfs|prl_fs|virtiofs|fakeowner|davfs2?"
    r"|fuse\.(grpcfuse|sshfs|s3fs|gcsfuse|glusterfs|ceph(-fuse)?|rclone|davfs2?|curlftpfs|smbnetfs"
    r"|vmhgfs-fuse|juicefs|goofys|mount-s3|seaweedfs|lizardfs|moosefs|hdfs.*)"
)


def refuse_network(directory: Path) -> None:
    """Raise `StoreError` if *directory* is on a network file system. Nothing was done."""
    try:
        table = _TABLE.read_text(errors="surrogateescape")
    except OSError:
        return
    kind = file_system(os.path.realpath(directory), table)
    if _NETWORK.fullmatch(kind):
        raise StoreError(
            f"{directory} is on a network file system ({kind}), where file locks are not reliable:"
            " set plugin.embedded.directory to a local one"
        )


def file_system(path: str, table: str) -> str:
    """Return the type of the file system *path* is on, by a table like mountinfo; or ``""``."""
    best, kind = "", ""
    for line in table.splitlines():
        place, found = _mount(line)
        if _holds(place, path) and len(place) >= len(best):
            best, kind = place, found
    return kind


def _mount(line: str) -> tuple[str, str]:
    left, _, right = line.partition(" - ")
    fields = left.split(" ")
    place = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4])
    return place, right.split(" ")[0]


def _holds(place: str, path: str) -> bool:
    return path == place or path.startswith(place.rstrip("/") + "/")

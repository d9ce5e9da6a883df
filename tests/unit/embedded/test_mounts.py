"""Network file systems are recognised by the mount table."""

from pathlib import Path

import pytest

from kip30.errors import StoreError
from kip30_backends.embedded import database_file

TABLE = """\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 21 0:25 / /home rw,relatime shared:2 - nfs4 server:/home rw,vers=4.2
31 30 0:26 / /home/me/local rw,relatime - xfs /dev/vdb rw
32 21 0:27 / /mnt/with\\040blank rw - cifs //server/share rw
33 21 0:28 / /mnt/ssh rw,nosuid - fuse.sshfs me@host: rw
34 21 0:29 / /home2 rw - tmpfs none rw
35 34 0:30 / /home2 rw - 9p share rw
36 21 0:31 / /host rw - virtiofs share rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/", "ext4"),
        ("/home/me", "nfs4"),
        ("/home", "nfs4"),
        ("/homely", "ext4"),
        ("/home/me/local/state", "xfs"),
        ("/mnt/with blank/x", "cifs"),
        ("/mnt/ssh/x", "fuse.sshfs"),
        ("/home2/x", "9p"),
        ("/host/x", "virtiofs"),
    ],
)
def test_the_deepest_and_last_mount_counts(path: str, kind: str) -> None:
    assert database_file.file_system(path, TABLE) == kind


@pytest.mark.parametrize("path", ["/home/me", "/mnt/with blank", "/mnt/ssh", "/home2", "/host"])
def test_a_network_file_system_is_refused_by_name(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    monkeypatch.setattr(database_file, "_MOUNT_TABLE", table)
    with pytest.raises(
        StoreError, match=r"\((nfs4|cifs|fuse.sshfs|9p|virtiofs)\).*plugin.embedded.directory"
    ):
        database_file.refuse_network(Path(path))


@pytest.mark.parametrize("path", ["/var/lib", "/home/me/local", "/nowhere"])
def test_a_local_one_is_taken(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    monkeypatch.setattr(database_file, "_MOUNT_TABLE", table)
    database_file.refuse_network(Path(path))
    monkeypatch.setattr(database_file, "_MOUNT_TABLE", tmp_path / "no such table")
    database_file.refuse_network(Path(path))

"""A state directory that another user may change: refused by name, and nothing in it is touched."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kip30.driver.records import Condition, Write
from kip30.errors import StoreError
from kip30.names import Key
from kip30_backends.embedded.database_file import refuse_untrusted_file
from tests.unit.removed_files import removed_again_and_again

NOBODY = 65534
ENTRIES = ["doorbell", "create.lock", "kip30.db", "kip30.db-wal", "kip30.db-shm", "sessions"]


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Make a path another user's; without the rights for that, become another user."""

    def give(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: NOBODY)

    return give


@pytest.fixture
def used(open_backend: Any, directory: Path) -> Path:
    """A directory with everything in it that kip30 makes."""
    backend = open_backend()
    backend.storage.write(Write(Key("", "key"), "n", b"v", Condition.ANY)).result()
    return directory


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
@pytest.mark.parametrize("entry", ["", *ENTRIES])
def test_a_path_that_other_users_may_write_is_refused(
    open_backend: Any, used: Path, entry: str, mode: int
) -> None:
    path = used / entry
    path.chmod(mode)
    before = contents(used)
    with pytest.raises(StoreError, match=rf"{path} can be written by other users: `chmod go-w"):
        open_backend()
    assert contents(used) == before
    path.chmod(mode & ~0o1022)
    open_backend()


@pytest.mark.parametrize("entry", ["", *ENTRIES])
def test_a_path_of_another_user_is_refused(
    open_backend: Any, used: Path, entry: str, give_away: Callable[[Path], None]
) -> None:
    path = used / entry
    give_away(path)
    with pytest.raises(StoreError, match=r"belongs to user \d+: run as that user") as refused:
        open_backend()
    assert str(path) in str(refused.value) or os.geteuid() == NOBODY


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("leads_to", ["a file", "a folder", "nothing"])
def test_a_link_in_the_directory_is_not_followed(
    open_backend: Any, used: Path, tmp_path: Path, entry: str, leads_to: str
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "key").write_bytes(b"secret")
    (victim / "other.lock").write_bytes(b"pid 1")
    before = contents(victim)
    target = {"a file": victim / "key", "a folder": victim, "nothing": victim / "new"}[leads_to]
    path = used / entry
    path.rename(tmp_path / "moved")
    path.symlink_to(target)
    with pytest.raises(StoreError, match=rf"{path} is (a symbolic link|not a directory)"):
        open_backend()
    assert contents(victim) == before


def test_a_directory_may_be_reached_by_links_of_ones_own(
    open_backend: Any, used: Path, tmp_path: Path
) -> None:
    (tmp_path / "parent").symlink_to(used.parent)
    (tmp_path / "itself").symlink_to(used)
    for path in (tmp_path / "parent" / used.name, tmp_path / "itself"):
        backend = open_backend(directory=path)
        assert backend.storage.read([Key("", "key")]).result() != [None]
        assert backend.describe()["file"] == str(used / "kip30.db")


def test_a_link_of_another_user_to_a_directory_is_refused(
    open_backend: Any, used: Path, tmp_path: Path, give_away: Callable[[Path], None]
) -> None:
    link = tmp_path / "link"
    link.symlink_to(used)
    give_away(link)
    with pytest.raises(StoreError, match=rf"{link} belongs to user \d+"):
        open_backend(directory=link)


def test_nothing_is_made_in_a_directory_that_is_refused(open_backend: Any, directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o777)
    with pytest.raises(StoreError):
        open_backend()
    assert list(directory.iterdir()) == []


def test_a_pipe_in_place_of_the_doorbell_does_not_block(open_backend: Any, used: Path) -> None:
    (used / "doorbell").unlink()
    os.mkfifo(used / "doorbell", 0o600)
    with pytest.raises(StoreError, match="doorbell is not a file: move it away"):
        open_backend()


def test_a_log_that_sqlite_removes_meanwhile_is_missing(tmp_path: Path) -> None:
    log = tmp_path / "kip30.db-wal"
    with removed_again_and_again(log):
        for _ in range(20_000):
            refuse_untrusted_file(log)

"""The archive of classes: which file Java is given, and what Java does with it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kip30.cli._exit_codes import Status
from kip30.cli._schema import SCHEMA
from kip30.errors import ConfigError
from kip30.pipeline.spark import class_archive
from kip30.pipeline.spark.class_archive import (
    archive_folder,
    archive_name,
    finish,
    options_of_archive,
)
from kip30_conformance.polling import time_scale

_SECONDS = 300.0
_USER = """
import sys
from pathlib import Path
from kip30.pipeline.spark.session import java_process, running_session
conf = dict(one.split("=", 1) for one in sys.argv[1:])
with running_session("local[1]", conf=conf):
    maps = Path(f"/proc/{java_process().pid}/maps").read_text()
    print("uses" if "spark-" in maps and ".jsa" in maps.split("spark-", 1)[1] else "does not use")
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the user's caches, of the test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def archive(cache: Path) -> Path:
    """Return a file that is whole, in the place of the archive."""
    folder = cache / "kip30"
    folder.mkdir(mode=0o700, parents=True)
    file = folder / archive_name()
    file.write_bytes(b"classes")
    finish(file)
    return file


def test_an_archive_of_the_user_is_used(archive: Path) -> None:
    assert options_of_archive() == (
        f'-Xshare:auto "-XX:SharedArchiveFile={archive}" -Xlog:cds*=off'
    )
    archive.unlink()
    assert options_of_archive() == ""


def test_an_archive_that_another_user_could_have_written_is_not(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is code."""
    for place, mode in ((archive, 0o620), (archive, 0o602), (archive.parent, 0o777)):
        before = place.stat().st_mode
        place.chmod(mode)
        assert options_of_archive() == ""
        place.chmod(before)
    assert options_of_archive()
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    monkeypatch.setenv("KIP30_TRUSTED_USERS", str(other - 1))
    assert options_of_archive() == ""


def test_an_archive_without_its_end_is_not(archive: Path) -> None:
    """Java would crash."""
    whole = archive.read_bytes()
    for content in (whole[:-1], whole[:3], b""):
        archive.write_bytes(content)
        assert options_of_archive() == ""


@pytest.mark.usefixtures("archive")
def test_an_archive_of_another_spark_or_java_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "java_version", lambda _: "99.1/2 x")
    assert archive_name().endswith("-java-99.1_2_x.jsa")
    assert options_of_archive() == ""
    monkeypatch.setattr(class_archive, "java_version", lambda _: "")
    assert options_of_archive() == ""
    with pytest.raises(ConfigError, match="versions of Spark and Java are not known"):
        archive_name()


@pytest.mark.parametrize(("folder", "told"), [("cache", "is absolute"), ("/a:b", "no ':'")])
def test_a_folder_that_java_cannot_be_given(
    monkeypatch: pytest.MonkeyPatch, folder: str, told: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", folder)
    with pytest.raises(ConfigError, match=told):
        archive_folder()
    assert options_of_archive() == ""


def _run(*words: object, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | more,
        timeout=_SECONDS * time_scale(),
    )


def _prepare(**more: str) -> "subprocess.CompletedProcess[str]":
    return _run("-m", "kip30", "pipeline", "prepare", "--json", **more)


@pytest.mark.usefixtures("cache")
def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    """Before Java starts."""
    (tmp_path / "file").touch()
    ended = _prepare(XDG_CACHE_HOME=str(tmp_path / "file"))
    assert ended.returncode == Status.SYSTEM
    assert "Not a directory" in json.loads(ended.stderr.splitlines()[-1])["error"]["message"]
    ended = _prepare(XDG_CACHE_HOME="here")
    assert ended.returncode == Status.USAGE
    assert "set XDG_CACHE_HOME" in json.loads(ended.stderr.splitlines()[-1])["error"]["message"]


@pytest.mark.large
@pytest.mark.timeout(4 * _SECONDS)
def test_java_uses_what_was_prepared(cache: Path, tmp_path: Path) -> None:
    """Unless another Spark or options of the user's own need other classes; without a word."""
    cache = cache / "a \"b' \\c"  # as Spark and a shell read it
    found = {"XDG_CACHE_HOME": str(cache)}
    ended = _prepare(**found)
    assert ended.returncode == Status.OK, ended.stderr
    (line,) = ended.stdout.splitlines()
    prepared = json.loads(line)
    assert prepared.keys() == {field.name for field in SCHEMA["pipeline prepare"]}
    (archive,) = (cache / "kip30").iterdir()
    assert (str(archive), archive.stat().st_size) == (prepared["file"], prepared["bytes"])
    assert ((cache / "kip30").stat().st_mode & 0o777, archive.stat().st_mode & 0o777) == (
        0o700,
        0o600,
    )
    user = tmp_path / "user.py"
    user.write_text(_USER)
    assert _run(user, **found).stdout == "uses\n"
    own = _run(user, "spark.driver.extraJavaOptions=-Dkip30.test=1", **found)
    assert own.stdout == "does not use\n"
    # A folder in front of the jars is like other jars to Java.
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").touch()
    other = _run(user, **found, SPARK_CONF_DIR=str(tmp_path / "conf"))
    assert (other.returncode, other.stdout) == (0, "does not use\n")
    assert "cds" not in other.stderr


@pytest.mark.large
@pytest.mark.timeout(4 * _SECONDS)
def test_an_archive_that_java_cannot_write_is_named(cache: Path, tmp_path: Path) -> None:
    """A folder in the class path has no place in an archive. Nothing is left."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").touch()
    ended = _prepare(SPARK_CONF_DIR=str(tmp_path / "conf"))
    message = json.loads(ended.stderr.splitlines()[-1])["error"]["message"]
    assert ended.returncode == Status.SYSTEM
    assert message.startswith("Java wrote no archive")
    assert list((cache / "kip30").iterdir()) == []

"""The job ``bundle``: kip30 as one file for the machines of a cluster."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from kip30 import __version__
from kip30.errors import StoreError

_PACKAGES = ("kip30", "kip30_backends", "kip30_command")
_ZIP_NAME = "kip30.zip"
_JOB_NAME = "kip30-job.py"
_LEFT_OUT = ("__pycache__",)
_DATE = (1980, 1, 1, 0, 0, 0)
_JOB = '''\
"""The command line of kip30 for spark-submit: its arguments are those after ``kip30``."""

from kip30_command import main

main()
'''


class Bundle(NamedTuple):
    """The files that were written, and how to use them."""

    files: Sequence[Path]
    command: str


def write_bundle(folder: Path) -> Bundle:
    """Write ``kip30.zip`` and ``kip30-job.py`` into *folder*, in place of earlier ones.

    Raises:
        StoreError: kip30 is not installed as files.
        OSError: The folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    archive, job = folder / _ZIP_NAME, folder / _JOB_NAME
    with ZipFile(archive, "w", ZIP_DEFLATED) as new:
        for name, content in _members():
            # A constant date: the same kip30 makes the same file.
            new.writestr(ZipInfo(name, _DATE), content, ZIP_DEFLATED)
    job.write_text(_JOB)
    return Bundle((archive, job), _command(archive, job))


def _command(archive: Path, job: Path) -> str:
    files = (shlex.quote(str(one)) for one in (archive, job))
    return (
        "spark-submit --master URL --py-files {} {}"
        " pipeline snapshot STORE.properties --out RUN".format(*files)
    )


def _members() -> Iterator[tuple[str, bytes]]:
    for package in _PACKAGES:
        root = _folder_of(package)
        for file in sorted(_files(root)):
            yield f"{package}/{file.relative_to(root).as_posix()}", file.read_bytes()
    about = f"kip30-{__version__}.dist-info"
    yield f"{about}/METADATA", _metadata().encode()
    yield f"{about}/entry_points.txt", _entry_points().encode()


def _folder_of(package: str) -> Path:
    spec = find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places or not Path(places[0]).is_dir():
        raise StoreError(f"{package} is not installed as files, so it cannot be bundled")
    return Path(places[0])


def _files(root: Path) -> Iterator[Path]:
    for file in root.rglob("*"):
        if file.is_file() and not set(file.parts) & set(_LEFT_OUT):
            yield file


def _metadata() -> str:
    return f"Metadata-Version: 2.1\nName: kip30\nVersion: {__version__}\n"


def _entry_points() -> str:
    """Return the entry points by which the stores are found inside the zip, too."""
    points = metadata.distribution("kip30").entry_points
    groups = sorted({point.group for point in points})
    return "\n".join(_section(group, points.select(group=group)) for group in groups)


def _section(group: str, points: Iterable[metadata.EntryPoint]) -> str:
    lines = (f"{point.name} = {point.value}\n" for point in sorted(points))
    return f"[{group}]\n{''.join(lines)}"

"""The archive of Spark's classes that the JVM of a local master starts with, if there is one.

Half of the time of a small job goes into loading some 11,000 classes and checking their code. Java
can write them, as they are once loaded, into an archive (class-data sharing) and map that into
memory at its next start. It compares the archive with its own build and with the names, sizes and
times of all jars, and loads the classes from the jars if anything differs. It does not notice
that the archive has lost its end, and then crashes; so an archive ends with a mark.
"""

import os
import re
from importlib import metadata
from pathlib import Path

from kip30.config import untrusted_chain_reason
from kip30.errors import ConfigError
from kip30.pipeline.spark.requirements import java_program, java_version

_FOLDER = "kip30"
_SUFFIX = ".jsa"
_END = b"kip30: whole\n"
_OTHERS = 0o022
_ODD = re.compile(r"[^\w.+-]", re.ASCII)
_SEPARATOR = ":"
"""What stands between the parts of an archive that has several, for Java."""


def archive_folder() -> Path:
    """Return the folder of archives, which may not be there.

    Raises:
        ConfigError: There is no home directory, or Java cannot be given the name.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        folder = Path(cache).expanduser() / _FOLDER
    except RuntimeError:
        raise ConfigError("there is no home directory: set XDG_CACHE_HOME to a folder") from None
    if not folder.is_absolute() or _SEPARATOR in str(folder):
        raise ConfigError(
            f"{folder} cannot have an archive for Java: set XDG_CACHE_HOME to a folder whose path"
            f" is absolute and has no {_SEPARATOR!r}"
        )
    return folder


def archive_name() -> str:
    """Return the name of the archive for the Spark and the Java that are here.

    Raises:
        ConfigError: Their versions are not known.
    """
    program = java_program()
    java = java_version(program) if program else ""
    try:
        spark = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        spark = ""
    if not (spark and java):
        raise ConfigError("the versions of Spark and Java are not known, which an archive is for")
    return _ODD.sub("_", f"spark-{spark}-java-{java}") + _SUFFIX


def options_of_archive() -> str:
    """Return the options with which Java uses the archive; empty if there is none to trust."""
    try:
        folder = archive_folder()
        if not any(folder.glob(f"*{_SUFFIX}")):
            return ""  # Before Java is asked for its version, which may take a process.
        file = folder / archive_name()
        if not (_is_own(file) and _is_whole(file)):
            return ""
    except (ConfigError, OSError):
        return ""
    # Java says on standard output why it does not use an archive.
    return f"-Xshare:auto {_quoted(f'-XX:SharedArchiveFile={file}')} -Xlog:cds*=off"


def options_of_writing(file: Path) -> str:
    """Return the options with which Java writes the archive *file* at its end.

    It says on standard error why it cannot.
    """
    return f"{_quoted(f'-XX:ArchiveClassesAtExit={file}')} -Xlog:cds*=off -Xlog:cds*=error:stderr"


def finish(file: Path) -> None:
    """Mark *file*, which Java has written, as whole, once it is on the disk.

    Raises:
        OSError: It cannot be written.
    """
    file.chmod(0o600)
    with file.open("ab") as archive:
        os.fsync(archive)
        archive.write(_END)
        archive.flush()
        os.fsync(archive)


def _is_own(file: Path) -> bool:
    """Return whether only this user can have written *file*: it is code."""
    status = file.stat()
    is_own = status.st_uid == os.geteuid() and not status.st_mode & _OTHERS
    return is_own and not untrusted_chain_reason(file)


def _is_whole(file: Path) -> bool:
    with file.open("rb") as archive:
        archive.seek(-len(_END), os.SEEK_END)
        return archive.read() == _END


def _quoted(option: str) -> str:
    """Return *option* as Spark reads one among others."""
    return '"{}"'.format(option.replace("\\", "\\\\").replace('"', '\\"'))

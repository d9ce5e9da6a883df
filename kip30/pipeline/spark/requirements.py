"""The requirements of jobs besides kip30 itself, checked before any of them is imported."""

import os
import re
import shutil
import subprocess
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from kip30.config.extras import how_to_install
from kip30.errors import UsageError

LOWEST_JAVA = 17
_NEEDED = ("pyspark", "pandas", "pyarrow", "matplotlib", "jinja2", "xxhash")
_LOWEST_SPARK = (4, 2)
_FIRST_UNFIT_PANDAS = 3
_RELEASE = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_SHOWN = re.compile(r'version "([^"]+)"')
_PATIENCE_SECONDS = 20.0


def check_requirements(*, java: bool = True) -> None:
    """Require what jobs run on.

    Args:
        java: Whether Spark runs on this machine.

    Raises:
        UsageError: Something is missing, or of a version that does not fit; the message says which
            version was found and what to install.
    """
    _check_packages()
    if java:
        _check_java()


def _check_packages() -> None:
    for name in _NEEDED:
        if not _is_there(name):
            what = "" if name == "pyspark" else f", and {name} is not installed"
            raise UsageError(f"the pipeline needs Spark{what}; {how_to_install('spark')}")
    spark, pandas = _version("pyspark"), _version("pandas")
    if spark and _numbers(spark) < _LOWEST_SPARK:
        raise UsageError(
            f"the pipeline needs Spark 4.2 or newer, and {spark} is installed;"
            f" {how_to_install('spark')}"
        )
    if _numbers(pandas)[0] >= _FIRST_UNFIT_PANDAS:
        raise UsageError(
            f"the pipeline needs pandas older than 3, and {pandas} is installed;"
            f" {how_to_install('spark')}"
        )


def _check_java() -> None:
    program = java_program()
    if program is None:
        raise UsageError(
            f"the pipeline needs Spark, which needs Java {LOWEST_JAVA} or newer, and there is none:"
            " install it, and set JAVA_HOME or PATH"
        )
    version = java_version(program)
    if _java_major(version) < LOWEST_JAVA:
        raise UsageError(
            f"the pipeline needs Spark, which needs Java {LOWEST_JAVA} or newer, and {program} is"
            f" {version or 'of no known version'}: set JAVA_HOME or PATH to a newer one"
        )


def java_version(program: Path) -> str:
    """Return the version of the *program* ``java``, empty if it does not tell."""
    release = program.resolve().parent.parent / "release"
    try:
        # The file of every JDK since 7, which saves the start of a JVM.
        found = _RELEASE.search(release.read_text(errors="replace"))
    except OSError:
        found = _SHOWN.search(_version_output(program))
    return found[1] if found else ""


def _version_output(program: Path) -> str:
    try:
        ended = subprocess.run(  # noqa: S603  the Java that Spark would start
            [program, "-version"],
            capture_output=True,
            check=False,
            text=True,
            errors="replace",
            timeout=_PATIENCE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stderr


def java_program() -> Path | None:
    """Return the Java that Spark's scripts would start."""
    home = os.environ.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        return program if program.exists() else None
    found = shutil.which("java")
    return Path(found) if found else None


def _java_major(version: str) -> int:
    first, *others = [*_numbers(version), 0]
    return others[0] if first == 1 else first  # Java 8 calls itself 1.8


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:
        return False


def _version(package: str) -> str:
    """Return the version of *package*, empty if it does not tell, as beside spark-submit."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3])) or (0,)

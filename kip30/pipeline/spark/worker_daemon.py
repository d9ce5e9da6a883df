"""The daemon that forks the workers of a local master, in place of ``pyspark.daemon``.

Spark puts a zip file of PySpark before all else in the path of its workers. There is no compiled
code in it, so each daemon would compile PySpark anew, for 0.6 s; the PySpark that is installed here
is the same, and has its compiled code beside it.
"""

import sys
from pathlib import PurePath

_ZIPS = ("pyspark.zip", "py4j-*-src.zip")


def without_zips(path: list[str]) -> list[str]:
    """Return *path* without the zip files of PySpark and what belongs to it."""
    return [one for one in path if not any(map(PurePath(one).match, _ZIPS))]


def main() -> None:
    """Fork workers until Spark closes the standard input."""
    sys.path[:] = without_zips(sys.path)
    from pyspark.daemon import manager  # noqa: PLC0415  from the path as it is now

    manager()


if __name__ == "__main__":
    main()

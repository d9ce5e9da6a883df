"""The Python with which this process starts helpers of its own."""

import os
import sys
from pathlib import Path

from kip30.errors import UnsupportedError

_NAMES = ("python", "pypy")


def interpreter() -> str:
    """Return the path of a Python of this version, which takes Python's options.

    `sys.executable` is another program where Python is embedded, as in uWSGI: then it is the one
    that belongs to the library. A frozen program is its own `sys.executable`, and would start
    itself again.

    Raises:
        UnsupportedError: There is none. Nothing was started.
    """
    if not getattr(sys, "frozen", False):
        if any(name in Path(sys.executable).name.lower() for name in _NAMES):
            return sys.executable
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        beside = Path(sys.base_exec_prefix, "bin", version)
        if os.access(beside, os.X_OK):
            return str(beside)
    raise UnsupportedError(
        f"this needs a Python interpreter to start, and this program is not one"
        f" ({sys.executable or 'sys.executable is empty'}): use a program that is run by"
        " Python, not a frozen one"
    )

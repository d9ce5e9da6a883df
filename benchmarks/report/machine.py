"""The machine on which the figures were taken, in words, and its load."""

import os
import platform
import sqlite3
import sys
from pathlib import Path


def description() -> dict[str, str]:
    return {
        "processor": f"{_field(Path('/proc/cpuinfo'), 'model name')}, {os.cpu_count()} cores",
        "memory": _field(Path("/proc/meminfo"), "MemTotal"),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite": sqlite3.sqlite_version,
    }


def load() -> float:
    """Return how many processes have wanted a core in the last minute, on average."""
    return os.getloadavg()[0]


def _field(file: Path, name: str) -> str:
    if not file.exists():
        return sys.platform
    lines = (line.partition(":") for line in file.read_text().splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "unknown")

"""Opening embedded stores for measuring."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from kip30 import PluginLocator


def settings(directory: Path) -> dict[str, str]:
    return {"plugin.backend": "embedded", "plugin.embedded.directory": str(directory)}


def started(directory: Path) -> PluginLocator:
    return PluginLocator().startup(settings(directory))


@contextmanager
def scratch(parent: Path | None = None) -> Generator[Path]:
    with TemporaryDirectory(prefix="kip30-benchmark-", dir=parent) as folder:
        yield Path(folder)

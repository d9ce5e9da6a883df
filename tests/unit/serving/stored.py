"""A store whose looks are counted, and that is away when a test says so."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kip30 import PluginLocator, UnavailableError
from kip30.config import Properties, load
from kip30.serving import live_overview
from kip30_backends.embedded.scanning import EmbeddedScanner
from kip30_conformance.polling import eventually

PERIOD_SECONDS = 0.02
OBEYS_NOBODY = load({"plugin.operations": "false"})
"""Of a program whose members stay though they are banned."""


def group_of(members: int, *bans: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a group in an overview."""
    return {"members": members, "bans": list(bans)}


class Looked:
    """The embedded store of *config*, opened once for the test, with the looks at it.

    Attributes:
        looks: How often it was opened to be scanned, once for each look.
        error: What a look raises; None: nothing.
    """

    def __init__(
        self, config: Properties, locator: PluginLocator, patch: pytest.MonkeyPatch
    ) -> None:
        self.config = config
        self.locator = locator
        self.looks = 0
        self.error: Exception | None = None
        patch.setattr("kip30_backends.embedded.backend.EmbeddedScanner", self._open)
        # However slow they are, one follows the other.
        patch.setattr(live_overview, "_READ_SHARE", 1.0)

    def away(self) -> None:
        self.error = UnavailableError("no answer")

    def wait_for_looks(self, number: int = 2) -> None:
        """Wait until a look has ended that began after this call."""
        least = self.looks + number
        eventually(lambda: self.looks >= least, what="the store is read again")

    def _open(self, *args: Any) -> EmbeddedScanner:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return EmbeddedScanner(*args)


@contextmanager
def looked_at(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Looked]:
    """Open a store in *folder* whose leaders note their terms."""
    config = load(
        {
            "plugin.backend": "embedded",
            "plugin.embedded.directory": str(folder / "store"),
            "plugin.operations": "true",
        }
    )
    with PluginLocator().startup(config) as locator:
        yield Looked(config, locator, patch)

"""Settings for child processes, which may hold secrets."""

import os
from collections.abc import Mapping
from pathlib import Path

import javaproperties
from typing_extensions import override

from kip30.config.properties import Written, as_text
from kip30.driver.closeable import Closeable


class PrivateSettings(Closeable):
    """A properties file in memory, for child processes that inherit its descriptor.

    Every user may read the command line of a process. This file has no name, no other user may
    open it, and it is gone with the last process that holds it, however that ends.

    Attributes:
        descriptor: The descriptor for the child to inherit.
    """

    def __init__(self, properties: Mapping[str, Written]) -> None:
        """Write *properties*."""
        self.descriptor = os.memfd_create("kip30.properties")
        os.fchmod(self.descriptor, 0o600)
        content = javaproperties.dumps(
            {key: as_text(value, key) for key, value in properties.items()}
        )
        os.write(self.descriptor, content.encode())

    @property
    def path(self) -> Path:
        """The path for the child to open; each opening reads from the beginning."""
        return Path(f"/proc/self/fd/{self.descriptor}")

    @override
    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

"""An embedded store that does not keep what it declares of forks."""

import os

from kip30 import UnsupportedError
from kip30.driver import Context
from kip30_backends.embedded import EmbeddedBackend, EmbeddedSettings

_PROCESS = os.getpid()


class RefusesForks(EmbeddedBackend):
    """Declares `Capability.FORKING`, and cannot be opened in a forked child."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        if os.getpid() != _PROCESS:
            raise UnsupportedError("not in a forked child")
        super().__init__(context, settings)

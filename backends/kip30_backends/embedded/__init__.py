"""The embedded store: SQLite in a directory, for all processes of one machine.

Nothing to install or to run. It does not work over a network file system, and it
does not bridge time namespaces: processes that share a directory must see the
same boot clock.
"""

from kip30_backends.embedded.backend import EmbeddedBackend
from kip30_backends.embedded.settings import EmbeddedSettings

__all__ = ["EmbeddedBackend", "EmbeddedSettings"]

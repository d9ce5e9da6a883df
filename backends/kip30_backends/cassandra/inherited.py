"""What a forked child inherits of the driver, and must neither use nor end.

The driver notices a fork only when the child connects, and then closes what it finds: it takes
locks that a thread of the parent may have held, and calls back requests of the parent. At the end
of the process it shuts down all clusters, which waits for threads that the child does not have.
"""

import sys
import threading
from contextlib import suppress
from typing import Any

import cassandra.cluster

_cluster: Any = cassandra.cluster
_loops: list[Any] = []
"""The event loops of parents; none is ever deleted, for that would end its connections."""


def abandon(cluster: Any) -> None:
    """In a forked child: let go of *cluster* and of the connections, which stay the parent's."""
    _leave_event_loop()
    _cluster._discard_cluster_shutdown(cluster)  # noqa: SLF001  there is no other way to say so
    for one in (cluster, *list(cluster.sessions)):
        # When it is deleted the driver takes the lock before it looks at the flag.
        one._lock = threading.RLock()  # noqa: SLF001  a thread of the parent may hold it
        one.is_shutdown = True


def _leave_event_loop() -> None:
    """Make the driver begin with an event loop of its own, as if it had not been used before."""
    module: Any = sys.modules[_cluster.DefaultConnection.__module__]
    loop: Any = getattr(module, "_global_loop", None)
    if loop is None:
        return
    _loops.append(loop)
    module._global_loop = None  # noqa: SLF001  what the driver does itself, but for the closing
    for connection in list(getattr(loop, "_live_conns", ())):
        # Were it kept, the server would not see it end while the child lives.
        with suppress(Exception):
            connection._socket.close()  # noqa: SLF001  its own close waits

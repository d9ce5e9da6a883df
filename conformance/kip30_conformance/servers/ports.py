"""Allocates ports of the loopback interface that stay free for their servers.

They are drawn from below the range that the system gives to outgoing connections, so that a
server that was killed finds its port free when it starts again. A port on which no server listens
for a while is taken all the same: it is bound, and a new one is drawn from those that are not.
"""

import random
import socket

HOST = "127.0.0.1"
BEHIND = "127.0.0.2"
"""Address on which nodes listen to each other if they cannot listen on one port and be known by
another: the proxy before them has the same port on `HOST`."""
_RANGE = range(15_000, 32_000)
_chance = random.SystemRandom()


def listener() -> socket.socket:
    """Return a socket that listens on a free port, which stays its own if it stops listening."""
    kept = held()
    kept.listen()
    return kept


def held() -> socket.socket:
    """Return a socket that keeps a port for a server, which can listen there meanwhile."""
    while True:
        drawn = socket.socket()
        try:
            drawn.bind((HOST, _chance.choice(_RANGE)))
        except OSError:
            drawn.close()
            continue
        # From now on a server can share it, and it can be listened on again while connections of
        # before are still ending.
        drawn.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return drawn

"""Ports of the loopback interface that nothing else will take.

They are drawn from below the range that the system gives to outgoing connections, so that a
server that was killed finds its port free when it starts again.
"""

import random
import socket

HOST = "127.0.0.1"
_RANGE = range(15_000, 32_000)
_chance = random.SystemRandom()


def free_ports(count: int) -> list[int]:
    """Return so many different ports that nobody listens on."""
    found: set[int] = set()
    while len(found) < count:
        port = _chance.choice(_RANGE)
        if _is_free(port):
            found.add(port)
    return list(found)


def listener() -> socket.socket:
    """Return a socket that listens on a free port, which stays its own if it stops listening."""
    while True:
        try:
            return socket.create_server((HOST, _chance.choice(_RANGE)))
        except OSError:
            continue


def _is_free(port: int) -> bool:
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True

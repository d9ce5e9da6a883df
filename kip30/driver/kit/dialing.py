"""Connections to servers by a deadline, although nothing can interrupt the lookup of a name."""

import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future

from kip30.config import Address
from kip30.driver.kit.futures import Completed

Resolved = tuple[
    socket.AddressFamily,
    socket.SocketKind,
    int,
    str,
    tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes],
]
"""An address as `socket.getaddrinfo` returns it."""

_LEAST_SECONDS = 0.001


def dial(address: Address, until: float) -> socket.socket:
    """Return a connection; no single address may take more than its share of the time.

    Raises:
        OSError: None could be opened by *until*, a time of `time.monotonic`.
    """
    failure = OSError(f"{address.host!r} has no address")
    places = lookup(address).result(left(until))
    for number, where in enumerate(places):
        try:
            return _connected(where, left(until) / (len(places) - number))
        except OSError as error:
            failure = error
    raise failure


def lookup(address: Address) -> Future[Sequence[Resolved]]:
    """Return the future addresses of *address*; it fails with OSError if it has none.

    A name is resolved on a thread of its own, which stays until the name servers have answered or
    the system gives them up. Where no thread can be started, as when the interpreter ends, this
    waits for them: a late answer is better than none.
    """
    try:
        return Completed(_looked_up(address, socket.AI_NUMERICHOST))
    except OSError:
        return _looked_up_on_thread(address)


def _looked_up_on_thread(address: Address) -> Future[Sequence[Resolved]]:
    found: Future[Sequence[Resolved]] = Future()

    def run() -> None:
        try:
            found.set_result(_looked_up(address))
        except Exception as error:  # noqa: BLE001  a future carries any error
            found.set_exception(error)

    try:
        threading.Thread(target=run, name="kip30-name-lookup", daemon=True).start()
    except RuntimeError:
        run()
    return found


def _looked_up(address: Address, flags: int = 0) -> Sequence[Resolved]:
    try:
        return socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError as error:
        raise OSError(f"{address.host!r} is not a host name") from error


def _connected(where: Resolved, seconds: float) -> socket.socket:
    family, kind, protocol, _, place = where
    connecting = socket.socket(family, kind, protocol)
    try:
        connecting.settimeout(seconds)
        connecting.connect(place)
    except BaseException:
        connecting.close()
        raise
    return connecting


def left(until: float) -> float:
    """Return how many seconds are left; raises `TimeoutError` if none are."""
    seconds = until - time.monotonic()
    if seconds < 0:
        raise TimeoutError("no answer in time")
    return max(_LEAST_SECONDS, seconds)

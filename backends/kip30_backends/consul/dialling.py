"""Connecting to what a name stands for, by one deadline for finding and trying its addresses."""

import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from kip30.config import Address
from kip30_backends.consul.errors import LATE

Where = tuple[
    socket.AddressFamily,
    socket.SocketKind,
    int,
    str,
    tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes],
]

_LEAST_SECONDS = 0.001


def dial(address: Address, until: float) -> socket.socket:
    """Return a connection; none of the addresses may take more than its share of the time.

    Raises:
        OSError: There is none by *until*, a time of `time.monotonic`.
    """
    failure = OSError(f"{address.host!r} has no address")
    places = _resolved(address, until)
    for number, where in enumerate(places):
        try:
            return _connected(where, left(until) / (len(places) - number))
        except OSError as error:
            failure = error
    raise failure


def left(until: float) -> float:
    """Return how many seconds there are until then; raises `TimeoutError` if that is over."""
    seconds = until - time.monotonic()
    if seconds < 0:
        raise TimeoutError(LATE)
    return max(_LEAST_SECONDS, seconds)


def _connected(where: Where, seconds: float) -> socket.socket:
    family, kind, protocol, _, place = where
    connecting = socket.socket(family, kind, protocol)
    try:
        connecting.settimeout(seconds)
        connecting.connect(place)
    except BaseException:
        connecting.close()
        raise
    return connecting


def _resolved(address: Address, until: float) -> Sequence[Where]:
    """Return what *address* stands for, asked for on a thread of its own, unless it is plain."""
    try:
        return _looked_up(address, socket.AI_NUMERICHOST)
    except OSError:
        return _in_time(lambda: _looked_up(address), until)


def _in_time(look: Callable[[], Sequence[Where]], until: float) -> Sequence[Where]:
    """Return what *look* does; nothing can interrupt it, so one that takes too long is left.

    Where no thread is to be had, as when the interpreter ends, *look* runs on this one: a late
    answer is better than none.
    """
    found: Future[Sequence[Where]] = Future()

    def run() -> None:
        try:
            found.set_result(look())
        except OSError as error:
            found.set_exception(error)

    try:
        threading.Thread(target=run, name="kip30-consul-name", daemon=True).start()
    except RuntimeError:
        run()
    return found.result(left(until))


def _looked_up(address: Address, flags: int = 0) -> Sequence[Where]:
    try:
        return socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError as error:
        raise OSError(f"{address.host!r} is no name of a host") from error

"""The address that a server listens at, and the hosts that it answers for."""

import errno
import os
import re
import socket
from collections.abc import Iterable
from typing import NamedTuple, Self

from typing_extensions import override

from kip30.errors import UsageError

LOOPBACK = "127.0.0.1"
_BACKLOG = 128
_NAME = r"[A-Za-z0-9._-]{1,253}"
_HOST = rf"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>{_NAME}))"
_ADDRESS = re.compile(rf"(?:{_HOST}:)?(?P<port>[0-9]{{1,5}})")
_HOST_FIELD = re.compile(rf"{_HOST}(?::[0-9]*)?")
_MOST_PORT = 65_535
_IN_USE = "choose another address, or end the program that listens there"


class ListenAddress(NamedTuple):
    """Where a server listens.

    Attributes:
        host: An IP address, or a name of this machine.
        port: Its number; 0 lets the system choose one.
    """

    host: str
    port: int

    @override
    def __str__(self) -> str:
        """Return it as it is written in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> ListenAddress:
    """Return the address written as ``HOST:PORT``, ``[IPv6]:PORT``, or ``PORT`` on loopback.

    Raises:
        UsageError: *text* is none of these. No name was looked up.
    """
    found = _ADDRESS.fullmatch(text)
    is_literal = found is not None and (found["v6"] is None or _is_ip(found["v6"], socket.AF_INET6))
    if found is None or not is_literal or int(found["port"]) > _MOST_PORT:
        raise UsageError(
            f"{text!r} is no address to listen at: write HOST:PORT, [IPv6]:PORT, or PORT alone for"
            f" {LOOPBACK}; HOST is 0.0.0.0 for all addresses of this machine"
        )
    return ListenAddress(found["v6"] or found["name"] or LOOPBACK, int(found["port"]))


def listen_at(address: ListenAddress) -> socket.socket:
    """Return a socket that listens at *address*; no program that is started now inherits it.

    ``[::]`` takes connections by IPv4 as well, if the system can do that. Of a name that has
    several addresses the first one is used.

    Raises:
        OSError: The address is in use, is not of this machine, or may not be used. Nothing listens.
    """
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            if os.name == "posix":  # or connections of an earlier process would block the address
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6 and not address.host.strip("0:"):
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listener.bind(place)
            listener.listen(_BACKLOG)
        except BaseException:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:
        number, why = getattr(error, "errno", None), getattr(error, "strerror", None)
        remedy = f": {_IN_USE}" if number == errno.EADDRINUSE else ""
        raise OSError(number, f"cannot listen at {address}: {why or error}{remedy}") from error
    return listener


class OwnHosts:
    """The hosts that a server answers for: every IP address, ``localhost``, and names given to it.

    A page of another site can let the browser of one of its visitors ask this server, by a name
    of its own that suddenly resolves to this machine (DNS rebinding). Such a request names that
    host. One that names an IP address cannot come about in that way, and load balancers, probes in
    containers and forwarded ports may name any.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Answer for *names*, too.

        Raises:
            UsageError: One of them cannot be the name of a host.
        """
        self._names = {"localhost"}
        for name in names:
            if not re.fullmatch(_NAME, name):
                raise UsageError(
                    f"{name!r} is no name of a host: write it without a port, as in 'web1.internal'"
                )
            self._names.add(_folded(name))

    @classmethod
    def at(cls, address: ListenAddress, names: Iterable[str]) -> Self:
        """Answer for the host of *address* and for *names*; `__init__` says what raises."""
        return cls([*names] if ":" in address.host else [*names, address.host])

    def answer_for(self, field: str) -> bool | None:
        """Return whether a request with the *field* ``Host`` is for this server.

        None if it cannot be the value of such a field.
        """
        found = _HOST_FIELD.fullmatch(field)
        if found is None:
            return None
        if found["v6"] is not None:
            return _is_ip(found["v6"], socket.AF_INET6)
        host = found["name"]
        return _is_ip(host, socket.AF_INET) or _folded(host) in self._names


def _is_ip(host: str, family: socket.AddressFamily) -> bool:
    try:
        socket.inet_pton(family, host)
    except OSError:
        return False
    return True


def _folded(name: str) -> str:
    return name.lower().removesuffix(".")

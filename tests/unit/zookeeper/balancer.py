"""A load balancer in front of several servers."""

import itertools
import selectors
import socket
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from kip30 import PluginLocator
from kip30_backends.zookeeper import ZookeeperBackend


class Balancer:
    """Hands its connections to *ports*, one after the other."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._ports = itertools.cycle(ports)
        self._opened = ExitStack()
        self.taken = 0
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._opened.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", next(self._ports)))
                self._opened.enter_context(client)
                self._opened.enter_context(server)
                self.taken += 1
                threading.Thread(target=_pump, args=(client, server), daemon=True).start()


def follows(client: PluginLocator) -> bool:
    """Return whether *client* takes its server for one that a sync makes catch up."""
    backend = client.backend
    assert isinstance(backend, ZookeeperBackend)
    current = backend._resources.sessions.current
    assert current is not None
    transport = current.connection._transport
    return transport is not None and transport.follows


def _pump(one: socket.socket, other: socket.socket) -> None:
    with selectors.DefaultSelector() as selector, suppress(OSError):
        selector.register(one, selectors.EVENT_READ, other)
        selector.register(other, selectors.EVENT_READ, one)
        while True:
            for key, _ in selector.select():
                if not (data := key.fileobj.recv(65536)):  # type: ignore[union-attr]
                    one.close()
                    other.close()
                    return
                key.data.sendall(data)

"""A connection of kazoo's."""

from typing import Any

from kazoo.client import KazooClient

from benchmarks.remote.place import SESSION_SECONDS, Place


def connected(place: Place) -> Any:
    client: Any = KazooClient(hosts=place.address, timeout=SESSION_SECONDS)
    client.start()
    return client

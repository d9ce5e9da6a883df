"""A connection of kazoo's."""

from typing import Any

from kazoo.client import KazooClient

from benchmarks.store_address import SESSION_SECONDS, StoreAddress


def connected(address: StoreAddress) -> Any:
    client: Any = KazooClient(hosts=address.location, timeout=SESSION_SECONDS)
    client.start()
    return client

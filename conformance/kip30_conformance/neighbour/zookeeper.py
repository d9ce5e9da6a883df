"""A neighbour in ZooKeeper, with kazoo."""

from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError
from typing_extensions import override

from kip30.driver.records import Kind
from kip30_conformance.neighbour.base import PathNeighbour

_SECONDS = 10


class ZookeeperNeighbour(PathNeighbour):
    """Writes nodes; existing ones keep their owner."""

    huge_bytes = 1_000_000

    def __init__(self, addresses: str, root: str) -> None:
        """Connect to *addresses*, in kip30's form."""
        super().__init__(root)
        self._client: Any = KazooClient(hosts=addresses, timeout=_SECONDS)
        self._client.start(timeout=_SECONDS)

    @override
    def read_path(self, path: str) -> bytes | None:
        try:
            stored: bytes = self._client.get(path)[0]
        except NoNodeError:
            return None
        return stored

    @override
    def write_path(self, path: str, stored: bytes) -> None:
        while True:
            try:
                self._client.set(path, stored)
            except NoNodeError:
                if self._created(path, stored):
                    return
            else:
                return

    @override
    def remove_path(self, path: str) -> None:
        self._client.delete(path, recursive=True)

    @override
    def plant(self, kind: Kind, scope: str) -> None:
        if kind is not Kind.SERVICE:
            super().plant(kind, scope)
        self.write_path(f"{self.paths.service(scope)}/epoch/foreign", b"\x93")
        self.write_path(f"{self.paths.service(scope)}/epoch", b"\x93")

    @override
    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def _created(self, path: str, stored: bytes) -> bool:
        try:
            self._client.create(path, stored, makepath=True)
        except NodeExistsError:
            return False
        return True

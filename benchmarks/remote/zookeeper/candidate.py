"""A watch on one ephemeral node, which is created when it is gone."""

import time
from typing import Any

from kazoo.exceptions import NodeExistsError
from typing_extensions import override

from benchmarks.remote.candidate import RAW_LEADER, Candidate, Elected
from benchmarks.remote.zookeeper.client import connected
from benchmarks.store_address import StoreAddress

_PATH = f"/{RAW_LEADER}"


class RawCandidate(Candidate):
    def __init__(self, address: StoreAddress, elected: Elected) -> None:
        self._client = connected(address)
        self._elected = elected
        self._client.ensure_path(_PATH.rpartition("/")[0])

    @override
    def campaign(self) -> None:
        if not self._client.exists(_PATH, watch=self._changed):
            self._take()

    @override
    def resign(self) -> int:
        began = time.monotonic_ns()
        self._client.delete(_PATH)
        return began

    def _changed(self, event: Any) -> None:
        if event.type == "DELETED":
            self._take()

    def _take(self) -> None:
        try:
            self._client.create(_PATH, b"", ephemeral=True)
        except NodeExistsError:
            return
        self._elected()

"""Blocking queries on one key, which is locked when it is gone."""

import threading
import time

from typing_extensions import override

from benchmarks.remote.candidate import RAW_LEADER, Candidate, Elected
from benchmarks.remote.consul.client import Client
from benchmarks.store_address import StoreAddress
from kip30_backends.consul import transactions


class RawCandidate(Candidate):
    def __init__(self, address: StoreAddress, elected: Elected) -> None:
        self._client, self._ear = Client(address), Client(address)
        self._session = self._client.session()
        self._elected = elected
        self._wanted = False
        self._epoch: int | None = None
        self._lock = threading.Lock()
        threading.Thread(target=self._follow, daemon=True).start()

    @override
    def campaign(self) -> None:
        self._wanted = True
        self._take()

    @override
    def resign(self) -> int:
        began = time.monotonic_ns()
        self._wanted = False
        held = transactions.was_modified(RAW_LEADER, self._epoch or 0)
        with self._lock:
            self._client.write([held, transactions.delete(RAW_LEADER)])
        return began

    def _follow(self) -> None:
        index = 0
        while True:
            index, holder = self._ear.read_after(RAW_LEADER, index)
            if holder is None and self._wanted:
                self._take()

    def _take(self) -> None:
        lock = transactions.lock(RAW_LEADER, b"", self._session)
        with self._lock:
            epoch = self._client.write([transactions.is_absent(RAW_LEADER), lock])
        if epoch is not None:
            self._epoch = epoch
            self._elected()

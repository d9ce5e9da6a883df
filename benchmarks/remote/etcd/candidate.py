"""A watch on one key with a lease, which is written when it is gone."""

import threading
import time
from contextlib import suppress
from typing import Any

import grpc
from typing_extensions import override

from benchmarks.remote.candidate import RAW_LEADER, Candidate, Elected
from benchmarks.remote.etcd.stubs import Stubs, absent
from benchmarks.store_address import StoreAddress

_KEY = RAW_LEADER.encode()


class RawCandidate(Candidate):
    def __init__(self, address: StoreAddress, elected: Elected) -> None:
        self._stubs = Stubs(address.location)
        self._lease = self._stubs.lease()
        self._elected = elected
        self._wanted = False
        answers = self._stubs.watched(_KEY)
        threading.Thread(target=self._follow, args=[answers], daemon=True).start()

    @override
    def campaign(self) -> None:
        self._wanted = True
        self._take()

    @override
    def resign(self) -> int:
        began = time.monotonic_ns()
        self._wanted = False
        self._stubs.delete(_KEY)
        return began

    def _follow(self, answers: Any) -> None:
        with suppress(grpc.RpcError):  # the server ends before the candidate
            for answer in answers:
                if self._wanted and any(event.type for event in answer.events):
                    self._take()

    def _take(self) -> None:
        if self._stubs.put_if(absent(_KEY), b"", self._lease).succeeded:
            self._elected()

"""Being a candidate who resigns and comes back: with kip30, kazoo and grpcio."""

import threading
import time
from typing import Any

from typing_extensions import override

from benchmarks.remote.candidate import Candidate, Elected
from benchmarks.remote.place import SESSION_SECONDS, Place

_RAW_LEADER = "/raw/service/handover/leader"


class LibraryCandidate(Candidate):
    def __init__(
        self,
        place: Place,
        elected: Elected,
        *,
        service: str = "handover",
        session_seconds: float = SESSION_SECONDS,
    ) -> None:
        self._locator = place.started("election", session_seconds)
        self._election = self._locator.leader_election(service)
        self._elected = elected

    @override
    def campaign(self) -> None:
        self._election.nominate("candidate", "", on_elected=lambda _: self._elected())

    @override
    def resign(self) -> int:
        began = time.monotonic_ns()
        self._election.resign("candidate")
        return began


class KazooCandidate(Candidate):
    """A watch on one ephemeral node, which is created when it is gone."""

    def __init__(self, place: Place, elected: Elected) -> None:
        from kazoo.exceptions import NodeExistsError  # noqa: PLC0415  as in sides

        from benchmarks.remote.raw_zookeeper import connected  # noqa: PLC0415  as in sides

        self._taken = NodeExistsError
        self._client = connected(place)
        self._elected = elected
        self._client.ensure_path(_RAW_LEADER.rpartition("/")[0])

    @override
    def campaign(self) -> None:
        if not self._client.exists(_RAW_LEADER, watch=self._changed):
            self._take()

    @override
    def resign(self) -> int:
        began = time.monotonic_ns()
        self._client.delete(_RAW_LEADER)
        return began

    def _changed(self, event: Any) -> None:
        if event.type == "DELETED":
            self._take()

    def _take(self) -> None:
        try:
            self._client.create(_RAW_LEADER, b"", ephemeral=True)
        except self._taken:
            return
        self._elected()


class GrpcCandidate(Candidate):
    """A watch on one key with a lease, which is written when it is gone."""

    _KEY = _RAW_LEADER.encode()

    def __init__(self, place: Place, elected: Elected) -> None:
        from benchmarks.remote import etcd_stubs, raw_etcd  # noqa: PLC0415  as in sides

        self._absent = etcd_stubs.absent(self._KEY)
        self._stubs = etcd_stubs.Stubs(place.address)
        self._lease = self._stubs.lease(raw_etcd.LEASE_SECONDS)
        self._elected = elected
        self._wanted = False
        answers = self._stubs.watched(self._KEY)
        threading.Thread(target=self._follow, args=[answers], daemon=True).start()

    @override
    def campaign(self) -> None:
        self._wanted = True
        self._take()

    @override
    def resign(self) -> int:
        began = time.monotonic_ns()
        self._wanted = False
        self._stubs.delete(self._KEY)
        return began

    def _follow(self, answers: Any) -> None:
        for answer in answers:
            if self._wanted and any(event.type for event in answer.events):
                self._take()

    def _take(self) -> None:
        if self._stubs.put_if(self._absent, b"", self._lease).succeeded:
            self._elected()


def candidate(side: str, place: Place, elected: Elected) -> Candidate:
    if side == "library":
        return LibraryCandidate(place, elected)
    if side == "raw":
        raw = KazooCandidate if place.store == "zookeeper" else GrpcCandidate
        return raw(place, elected)
    from benchmarks.remote.tooz_roles import ToozCandidate  # noqa: PLC0415  as in sides

    return ToozCandidate(place, elected, pause_seconds=float(side.partition(":")[2]))

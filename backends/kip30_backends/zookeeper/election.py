"""Leaders: an ephemeral node per service, won together with the next epoch."""

from concurrent.futures import Future
from typing import NamedTuple

from typing_extensions import override

from kip30.driver import ElectionDriver
from kip30.driver.records import Claim, Entry, HeldByOther, Version
from kip30.errors import StoreError
from kip30_backends.zookeeper.calls import Answer, Outbox, RequestBatch, Steps
from kip30_backends.zookeeper.client.messages import CheckVersion, Delete, Multi, SetData
from kip30_backends.zookeeper.errors import BadVersion, NodeExists, NoNode
from kip30_backends.zookeeper.target_states import LeaderState, TargetStates
from kip30_backends.zookeeper.tree import Tree, leader_record


class ClaimRequest(NamedTuple):
    """The candidate and its service."""

    service: str
    candidate: str
    nonce: str
    data: bytes


class ZookeeperElection(ElectionDriver):
    """Services and their leaders."""

    def __init__(self, outbox: Outbox, tree: Tree, states: TargetStates) -> None:
        """Keep services in *tree*."""
        self._outbox = outbox
        self._tree = tree
        self._states = states

    @override
    def claim(
        self, service: str, candidate: str, nonce: str, data: bytes
    ) -> Future[Claim | HeldByOther]:
        steps = self._claim(ClaimRequest(service, candidate, nonce, data))
        return self._outbox.start(self._tree.checked([self._tree.paths.service(service)], steps))

    @override
    def release(self, service: str, claim: Claim) -> Future[None]:
        return self._outbox.start(self._release(service, claim.entry.version.major))

    def _claim(self, wanted: ClaimRequest) -> Steps[Claim | HeldByOther]:
        # The epoch seen last, without a read: if there is a newer one, the server refuses.
        epoch = self._states.epochs.get(wanted.service)
        while True:
            if epoch is not None:
                answer = yield RequestBatch((self._take(wanted, epoch + 1),), writes=True)
                try:
                    answer.only()
                    return self._won(wanted, epoch + 1, answer)
                except (NodeExists, BadVersion, NoNode):
                    leader = yield from self._states.leader(wanted.service)
                if leader.snapshot.entries:
                    return self._met(wanted, leader)
                for reason in leader.snapshot.unreadable.values():
                    raise StoreError(reason)
            epoch = yield from self._states.epoch(wanted.service)
            if epoch is None:
                yield from self._tree.make(self._tree.epoch(wanted.service))

    def _take(self, wanted: ClaimRequest, epoch: int) -> Multi:
        leader = self._tree.leader(wanted.service)
        data = leader_record(wanted.nonce, wanted.data, wanted.candidate, epoch)
        created = self._tree.create(leader, data, ephemeral=True)
        return Multi((created, SetData(self._tree.epoch(wanted.service), b"", epoch - 1)))

    def _won(self, wanted: ClaimRequest, epoch: int, answer: Answer) -> Claim:
        self._states.note_epoch(wanted.service, epoch)
        entry = Entry(Version(epoch), wanted.nonce, wanted.data)
        return Claim(wanted.candidate, entry, answer.session.lease, answer.order)

    def _met(self, wanted: ClaimRequest, leader: LeaderState) -> Claim | HeldByOther:
        """Return the claim if the leader is the bidder itself, after a lost answer."""
        entry = leader.snapshot.entries.get(wanted.candidate)
        mine = leader.owner == leader.answer.session.ident
        if mine and entry is not None and entry.nonce == wanted.nonce:
            return self._won(wanted, entry.version.major, leader.answer)
        return HeldByOther(leader.snapshot)

    def _release(self, service: str, epoch: int) -> Steps[None]:
        """Delete the leader of *epoch*: a later one has another epoch."""
        unchanged = CheckVersion(self._tree.epoch(service), epoch)
        request = Multi((unchanged, Delete(self._tree.leader(service))))
        answer = yield RequestBatch((request,), writes=True)
        try:
            answer.only()
        except (NoNode, BadVersion):
            return

"""Members: one ephemeral node per id."""

from concurrent.futures import Future

from typing_extensions import override

from kip30.driver import MembershipDriver
from kip30.driver.kit import refusals
from kip30.driver.records import Claim, Entry, Version
from kip30.errors import StoreError, UnavailableError
from kip30_backends.zookeeper.calls import Answer, Outbox, RequestBatch, Steps
from kip30_backends.zookeeper.client.jute import Stat
from kip30_backends.zookeeper.client.kazoo_setup import Session
from kip30_backends.zookeeper.client.messages import Delete, GetData, SetData, Znode
from kip30_backends.zookeeper.errors import BadVersion, NodeExists, NoNode, SessionExpired
from kip30_backends.zookeeper.tree import Tree, entry_of, member_of, parent, record


class HeldMember:
    """Hold of a claim on its id: a node of a session, at its last known version."""

    def __init__(self, session: Session, stat: Stat, nonce: str) -> None:
        """Hold the node that *session* created, with a record of *nonce*."""
        # The operations on one claim run one at a time, on the connection's thread, and write this.
        self.session = session
        # The transaction that created the node: another node in its place has a later one.
        self.czxid = stat.czxid
        self.version = stat.version
        self.nonce = nonce


class ZookeeperMembership(MembershipDriver):
    """Ids in groups."""

    def __init__(self, outbox: Outbox, tree: Tree) -> None:
        """Keep members in *tree*."""
        self._outbox = outbox
        self._tree = tree

    @override
    def claim(self, group: str, member_id: str, nonce: str, data: bytes) -> Future[Claim]:
        steps = self._claim(group, member_id, nonce, data)
        return self._outbox.start(self._tree.checked([self._tree.paths.group(group)], steps))

    @override
    def replace(self, group: str, claim: Claim, nonce: str, data: bytes) -> Future[Claim]:
        return self._outbox.start(self._replace(group, claim, nonce, data))

    @override
    def release(self, group: str, claim: Claim) -> Future[None]:
        return self._outbox.start(self._release(self._tree.paths.member(group, claim.name), claim))

    def _claim(self, group: str, member_id: str, nonce: str, data: bytes) -> Steps[Claim]:
        path = self._tree.paths.member(group, member_id)
        request = self._tree.create(path, record(nonce, data), ephemeral=True)
        while True:
            answer = yield RequestBatch((request,), writes=True)
            try:
                return _claim(member_id, nonce, data, answer, answer.only())
            except NoNode:
                yield from self._tree.make_group(parent(path))
            except NodeExists:
                answer = yield RequestBatch((GetData(path),))
            holder = _holder(answer, path)
            if holder is None:
                continue
            if holder == (answer.session.ident, nonce):
                return _claim(member_id, nonce, data, answer, answer.only().stat)
            if holder[0] in answer.session.former:
                raise UnavailableError(f"{member_id!r} is held by a former session of this client")
            raise refusals.member_exists(group, member_id)

    def _replace(self, group: str, claim: Claim, nonce: str, data: bytes) -> Steps[Claim]:
        path = self._tree.paths.member(group, claim.name)
        grip: HeldMember = claim.handle
        while grip.session.lease.end_reason is None:
            # A node that another client has created in its place may have the same version.
            if not (yield from self._found_again(path, grip)):
                break
            # The claim's record must still be there: a late request must not replace a later one.
            if grip.nonce != claim.entry.nonce:
                raise refusals.other_record(claim.name)
            request = SetData(path, record(nonce, data), grip.version)
            answer = yield RequestBatch((request,), writes=True, session=grip.session)
            try:
                grip.version, grip.nonce = answer.only().version, nonce
            except (NoNode, SessionExpired):
                break
            except BadVersion:
                continue
            else:
                entry = Entry(claim.entry.version, nonce, data)
                return claim._replace(entry=entry, order=answer.order)
        raise refusals.not_member(group, claim.name)

    def _release(self, path: str, claim: Claim) -> Steps[None]:
        """Delete the node; the node of another session has ended with it.

        The id may be another claim's by now, at the same version: read first.
        """
        grip: HeldMember = claim.handle
        while grip.session.lease.end_reason is None:
            if not (yield from self._found_again(path, grip)):
                return
            request = Delete(path, grip.version)
            answer = yield RequestBatch((request,), writes=True, session=grip.session)
            try:
                answer.only()
            except BadVersion:
                continue
            except (NoNode, SessionExpired):
                return
            else:
                return

    def _found_again(self, path: str, grip: HeldMember) -> Steps[bool]:
        """Return whether the node still exists, and record its version and nonce."""
        answer = yield RequestBatch((GetData(path),))
        try:
            node: Znode = answer.only()
        except NoNode:
            return False
        grip.version, grip.nonce = node.stat.version, _nonce(node, path)
        return node.stat.czxid == grip.czxid


def _claim(member_id: str, nonce: str, data: bytes, answer: Answer, stat: Stat) -> Claim:
    session = answer.session
    entry = Entry(Version(stat.czxid), nonce, data)
    return Claim(member_id, entry, session.lease, answer.order, HeldMember(session, stat, nonce))


def _nonce(node: Znode, path: str) -> str:
    """Return the nonce of a node; empty if another program has overwritten it."""
    try:
        return entry_of(node, Version(0), path)[1].nonce
    except StoreError:
        return ""


def _holder(answer: Answer, path: str) -> tuple[int, str] | None:
    """Return the session and the nonce of the present member."""
    try:
        node = answer.only()
    except NoNode:
        return None
    return node.stat.owner, member_of(node, path).nonce

"""Records in ZooKeeper's tree: their places, the creation of nodes, and the access to them.

Below the chroot the layout is that of `kip30.driver.key_layout`. A service's node has two
children: ``leader``, which goes with the leader's session, and ``epoch``, which stays; its version
is the epoch. The data version of a namespace's node counts the deletions of its keys.

A node that existed before may be another client's, and its access list may let others delete
kip30's nodes below it. A service's epoch could be deleted there and start again, and with it the
fences of former leaders. So each parent is checked before a backend first uses it.
"""

import base64
import hashlib
import struct
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple, TypeVar, cast

from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from kip30.driver.key_layout import Paths
from kip30.driver.kit import refusals
from kip30.driver.record_format import seal, unseal
from kip30.driver.records import Entry, Version
from kip30.errors import StoreError
from kip30_backends.zookeeper.calls import RequestBatch, Steps
from kip30_backends.zookeeper.client.jute import Stat
from kip30_backends.zookeeper.client.kazoo_setup import Logins
from kip30_backends.zookeeper.client.messages import (
    Acl,
    AclEntry,
    Create,
    CreateContainer,
    GetAcl,
    WhoAmI,
    Znode,
)
from kip30_backends.zookeeper.errors import NodeExists, NoNode, RequestRefused, Unimplemented
from kip30_backends.zookeeper.settings import ZookeeperSettings

T = TypeVar("T")

_EPOCH = struct.Struct("!i")

_READ = 1
_LETTERS = ((1, "r"), (2, "w"), (4, "c"), (8, "d"), (16, "a"))
_KEPT = 8192
"""Number of checked nodes remembered; of more, some are checked again."""
_MOST_PROOFS = 10_000
_NOT_NAMES = frozenset({"world", "ip"})
"""Schemes that identify the place of a client, and not the client."""


class Owners(NamedTuple):
    """Identities that may change nodes of this client.

    Attributes:
        ids: As an access list has them, such as ``sasl:app``.
        schemes: Schemes by which servers know this client, though its names are unknown until a
            server is asked.
    """

    ids: frozenset[str] = frozenset()
    schemes: frozenset[str] = frozenset()


def digest_id(user_and_password: str) -> str:
    """Return the name in access lists of *user_and_password* by the digest scheme."""
    user = user_and_password.partition(":")[0]
    # The scheme is defined with it; no secret depends on it here.
    digest = hashlib.sha1(user_and_password.encode()).digest()  # noqa: S324
    return f"digest:{user}:{base64.b64encode(digest).decode()}"


class AccessLists:
    """Checks nodes of one tree. Used on the connection's thread alone."""

    def __init__(self, owners: Owners | None, logins: Logins) -> None:
        """Let only *owners* and *logins* change nodes; check nothing if *owners* is None."""
        self._owners = owners
        self._logins = logins
        # The identities of this client at the servers; None before one was asked.
        self._names: frozenset[str] | None = None
        # Nodes that passed the check. Only this client could have replaced them since: the node
        # above each of them has passed it as well.
        self._sound: set[str] = set()

    def forget(self) -> None:
        """Check all nodes again: others may have made them, in a store that was emptied."""
        self._sound.clear()

    def covers(self, path: str) -> bool:
        """Return whether *path* needs no check."""
        return self._owners is None or path in self._sound

    def check(self, top: str, path: str) -> Steps[None]:
        """Check the existing nodes from *top* down to *path* that were not checked before.

        Raises:
            StoreError: One of them may be changed by others. The message names it.
            NoAuth: One of them shows its list to its owners alone, and this client is not one.
        """
        if self.covers(path):
            return
        paths = [one for one in _down(top, path) if one not in self._sound]
        answer = yield RequestBatch(tuple(map(GetAcl, paths)))
        for one, outcome in zip(paths, answer.outcomes, strict=True):
            if isinstance(outcome, NoNode):
                return
            yield from self._check(one, outcome)

    def _check(self, path: str, outcome: list[AclEntry] | RequestRefused) -> Steps[None]:
        if isinstance(outcome, RequestRefused):
            raise outcome
        names = (yield from self._known_names()) | self._digest_ids()
        for grant in outcome:
            if grant.permissions & ~_READ and not self._is_owner(grant, names):
                raise StoreError(
                    f"{path} may be changed by {grant.who} ({_letters(grant)}): {_REMEDY}"
                )
        if len(self._sound) >= _KEPT:
            self._sound.clear()
        self._sound.add(path)

    def _is_owner(self, grant: AclEntry, names: Collection[str]) -> bool:
        owners = self._owners or Owners()
        return grant.who in owners.ids or grant.who in names or f"{grant.scheme}:" in names

    def _digest_ids(self) -> frozenset[str]:
        """Return this client's ids of the digest scheme: during a rotation it has two."""
        logins = (self._logins.latest, self._logins.read())
        return frozenset(digest_id(one.digest) for one in logins if one.digest)

    def _known_names(self) -> Steps[frozenset[str]]:
        """Ask a server for this client's identities, once; one older than 3.7 cannot say.

        Then every client that is known by the same scheme counts as this client.
        """
        schemes = self._owners.schemes if self._owners else frozenset[str]()
        if self._names is None and schemes:
            answer = yield RequestBatch((WhoAmI(),), fresh=False)
            outcome: list[str] | RequestRefused = answer.outcomes[0]
            if isinstance(outcome, Unimplemented):
                self._names = frozenset(f"{scheme}:" for scheme in schemes)
            elif isinstance(outcome, RequestRefused):
                raise outcome
            else:
                self._names = frozenset(
                    name for name in outcome if name.partition(":")[0] in schemes - _NOT_NAMES
                )
        return self._names or frozenset()


_REMEDY = (
    "have its owner remove it, close it with `setAcl -R`, or list who else may change it in"
    " plugin.zookeeper.acl.trusted"
)


def _down(top: str, path: str) -> list[str]:
    """Return *top* and the nodes on the way from it down to *path*, which is one of them."""
    below = path[len(top) :].strip("/")
    return [top, *accumulate(below.split("/"), "{}/{}".format, initial=top)][1:] if below else [top]


def _letters(grant: AclEntry) -> str:
    return "".join(letter for bit, letter in _LETTERS if grant.permissions & bit)


class Tree:
    """The part of the tree that belongs to one namespace of the configuration.

    Attributes:
        namespaces: What this client knows of the nodes of namespaces.
    """

    def __init__(
        self,
        chroot: str,
        namespace: str,
        acl: tuple[Acl, ...],
        access: AccessLists,
        *,
        modern: bool,
    ) -> None:
        """Place it below *chroot*, with *acl* on every node that is created.

        *modern* says that the servers know the requests that were added in ZooKeeper 3.6.
        """
        self.modern = modern
        self.namespaces = NamespaceVersions()
        self._access = access
        self._top = chroot
        self.paths = Paths(namespace)
        self.paths.root = chroot + self.paths.root
        self._acl = acl

    def forget(self) -> None:
        """Forget what was read in a former session: it may have been of another store.

        Servers that are emptied or restored lose the session, and count their transactions from
        lower numbers again. For the connection's thread.
        """
        self.namespaces.clear()
        self._access.forget()

    def leader(self, service: str) -> str:
        """Return where the leader's record is."""
        return f"{self.paths.service(service)}/leader"

    def epoch(self, service: str) -> str:
        """Return the node whose version is the epoch."""
        return f"{self.paths.service(service)}/epoch"

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> Create:
        """Return the request that creates the node *path*."""
        return Create(path, data, self._acl, ephemeral)

    def make_group(self, path: str) -> Steps[None]:
        """Create the group at *path*, to be deleted when it is empty if the servers are modern.

        It may be missing when a member is created in it: then create it again.
        """
        if not self.modern:
            return (yield from self.make(path))
        answer = yield RequestBatch(
            (CreateContainer(path, b"", self._acl, ephemeral=False),), writes=True
        )
        try:
            answer.only()
        except NodeExists:
            return
        except NoNode:
            yield from self.make(parent(path))

    def make(self, path: str) -> Steps[None]:
        """Create the empty node *path* and what is missing above it."""
        while True:
            answer = yield RequestBatch((self.create(path, b""),), writes=True)
            try:
                answer.only()
            except NodeExists:
                break
            except NoNode:
                yield from self.make(parent(path))
            else:
                break
        yield from self.check(path)

    def checked(self, paths: Iterable[str], steps: Steps[T]) -> Steps[T]:
        """Return *steps*, which use the nodes *paths*, behind each `check` that is due."""
        due = [path for path in dict.fromkeys(paths) if not self._access.covers(path)]
        return self._after_checks(due, steps) if due else steps

    def _after_checks(self, paths: Sequence[str], steps: Steps[T]) -> Steps[T]:
        for path in paths:
            yield from self.check(path)
        return (yield from steps)

    def check_directories(self) -> Steps[None]:
        """Check the root, and those below it in which all else is, as far as they exist.

        Raises:
            StoreError: Others may change one of them. The message names it.
        """
        paths = self.paths
        for inside in (paths.namespace(""), paths.group(""), paths.service("")):
            yield from self.check(parent(inside))

    def check(self, path: str) -> Steps[None]:
        """Check that others may change neither *path* nor a node above it, as far as they exist.

        Raises:
            StoreError: They may. The message names the node.
        """
        top = self._top or self.paths.root
        return self._access.check(top, path if path.startswith(self.paths.root) else top)


class NamespaceVersion(NamedTuple):
    """The state of a namespace's node: its version, and the transaction that made it."""

    number: int
    since: int


class NamespaceVersions:
    """The state of namespaces' nodes that one client knows; the store compares it before use."""

    def __init__(self) -> None:
        """Start empty."""
        # All are written on the connection's thread, and emptied when they are full: to prove a
        # life again costs one read.
        # The newest version that was seen, by the path of the namespace's node.
        self._newest: dict[str, NamespaceVersion] = {}
        # The life of each key's node when it was seen last.
        self._lives: dict[str, int] = {}
        # The life of a key's node, and the version of the namespace's node at which that life was
        # seen to be the present one.
        self._checked: dict[str, tuple[int, int]] = {}

    def clear(self) -> None:
        """Forget everything."""
        self._newest.clear()
        self._lives.clear()
        self._checked.clear()

    def saw(self, path: str, life: int) -> None:
        """Note that the node at *path* was once that of *life*."""
        if len(self._lives) > _MOST_PROOFS:
            self._lives.clear()
        self._lives[path] = life

    def proof(self, above: str, path: str, life: int) -> int | None:
        """Return the version of *above* at which the node at *path* is that of *life*."""
        newest = self._newest.get(above)
        if newest is None or self._lives.get(path) != life:
            return None
        if life > newest.since or self._checked.get(path) == (life, newest.number):
            return newest.number
        return None

    def learn(self, above: str, path: str, life: int, newest: NamespaceVersion) -> None:
        """Note that at the version *newest* of *above* the node at *path* is that of *life*."""
        if len(self._checked) > _MOST_PROOFS or len(self._newest) > _MOST_PROOFS:
            self._checked.clear()
            self._newest.clear()
        self._newest[above] = newest
        self._checked[path] = (life, newest.number)
        self.saw(path, life)

    def deleted(self, above: str, newest: NamespaceVersion) -> None:
        """Note that a deletion of this client made the version *newest* of *above*."""
        known = self._newest.get(above)
        if known is None or newest.since > known.since:
            self._newest[above] = newest

    def forget(self, above: str) -> None:
        """Note that *above* has another version by now."""
        self._newest.pop(above, None)


def parent(path: str) -> str:
    """Return the path above *path*."""
    return path.rpartition("/")[0]


def record(nonce: str, data: bytes) -> bytes:
    """Return the data of the node of a value or a member."""
    return seal(nonce, data)


def leader_record(nonce: str, data: bytes, candidate: str, epoch: int) -> bytes:
    """Return the data of a leader's node: it includes the epoch, to be read with it."""
    return seal(nonce, _EPOCH.pack(epoch) + data, name=candidate)


def leader_of(node: Znode, path: str) -> tuple[str, Entry]:
    """Return the candidate that leads, and its record.

    Raises:
        StoreError: Another program wrote it.
    """
    name, entry = entry_of(node, Version(0), path)
    if len(entry.data) < _EPOCH.size:
        raise StoreError(f"{path} is not a leader of kip30: remove it, or use another namespace")
    (epoch,) = _EPOCH.unpack_from(entry.data)
    return name, Entry(Version(epoch), entry.nonce, entry.data[_EPOCH.size :])


def version_of(stat: Stat) -> Version:
    """Return the version of a value: that of its node, and which life of the node it is."""
    return Version(stat.czxid, stat.version)


def member_of(node: Znode, path: str) -> Entry:
    """Return the record of the member whose node is *node*.

    Raises:
        StoreError: Another program wrote it, or it does not end with a session.
    """
    _, entry = entry_of(node, Version(node.stat.czxid), path)
    require_session(node, path)
    return entry


def require_session(node: Znode, path: str) -> None:
    """Check that the claim at *path* ends with a session.

    Raises:
        StoreError: It does not, so no client holds it.
    """
    if not node.stat.owner:
        raise refusals.unowned(path)


def entry_of(node: Znode, version: Version, path: str) -> tuple[str, Entry]:
    """Return the name that is kept in a node, and its record.

    Raises:
        StoreError: Another program wrote it.
    """
    found = unseal(node.data or b"", path)
    return found.name, Entry(version, found.nonce, found.data)


def owners(settings: ZookeeperSettings) -> Owners | None:
    """Return the identities that may change the tree's content; None if any client may."""
    if _choice(settings) == "open":
        return None
    schemes = {"sasl": settings.sasl_mechanism != "none", "x509": bool(settings.tls_certificate)}
    return Owners(
        frozenset(settings.acl_trusted),
        frozenset(scheme for scheme, used in schemes.items() if used),
    )


def acl(settings: ZookeeperSettings) -> tuple[Acl, ...]:
    """Return the access list of all nodes."""
    entries = {
        "open": OPEN_ACL_UNSAFE,
        "creator": CREATOR_ALL_ACL,
        "creator-world-read": [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE],
    }
    return tuple(cast("list[Acl]", entries[_choice(settings)]))


def _choice(settings: ZookeeperSettings) -> str:
    if settings.acl == "auto":
        return "creator" if settings.has_credentials else "open"
    return settings.acl

"""Access: credentials, the access lists of kip30's nodes and of the nodes above them.

A node that was there before may be another client's, and its access list may let others delete what
kip30 puts into it. A service's epoch could be deleted there and begin again, and with it the fences
of former leaders. So each parent is checked before a backend first uses it.
"""

import base64
import hashlib
import importlib.util
from collections.abc import Collection
from itertools import accumulate
from typing import NamedTuple, cast

from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from kip30.errors import ConfigError, StoreError
from kip30_backends.zookeeper.client.protocol import Acl, GetAcl, Grant, WhoAmI
from kip30_backends.zookeeper.errors import NoNode, Refused, Unimplemented
from kip30_backends.zookeeper.request import Ask, Steps
from kip30_backends.zookeeper.settings import ZookeeperSettings

_READ = 1
_LETTERS = ((1, "r"), (2, "w"), (4, "c"), (8, "d"), (16, "a"))
_KEPT = 8192
"""How many checked nodes are remembered; of more, some are checked again."""
_NOT_NAMES = frozenset({"world", "ip"})
"""Schemes that tell where a client is, and not which one it is."""


class Owners(NamedTuple):
    """Identities that may change nodes of this client.

    Attributes:
        ids: As an access list has them, such as ``sasl:app``.
        schemes: Schemes by which servers know this client, though not as whom before they are
            asked.
    """

    ids: frozenset[str] = frozenset()
    schemes: frozenset[str] = frozenset()


def digest_id(user_and_password: str) -> str:
    """Return how access lists name who gave *user_and_password* by the digest scheme."""
    user = user_and_password.partition(":")[0]
    # What the scheme is defined with; no secret rests on it here.
    digest = hashlib.sha1(user_and_password.encode()).digest()  # noqa: S324
    return f"digest:{user}:{base64.b64encode(digest).decode()}"


class AccessLists:
    """Checks nodes of one tree. Used on the connection's thread alone."""

    def __init__(self, owners: Owners | None) -> None:
        """Let only *owners* change nodes; check nothing if that is None."""
        self._owners = owners
        # As whom servers know this client; None before one was asked.
        self._names: frozenset[str] | None = None
        # Nodes that were found sound. Only this client could have replaced them since: the node
        # above each of them is sound as well.
        self._sound: set[str] = set()

    def covers(self, path: str) -> bool:
        """Say whether *path* needs no check."""
        return self._owners is None or path in self._sound

    def check(self, top: str, path: str) -> Steps[None]:
        """Check the nodes from *top* down to *path* that are there and were not checked before.

        Raises:
            StoreError: One of them may be changed by others. The message names it.
            NoAuth: One of them shows its list to its owners alone, and this client is none.
        """
        if self.covers(path):
            return
        paths = [one for one in _down(top, path) if one not in self._sound]
        answer = yield Ask(tuple(map(GetAcl, paths)))
        for one, outcome in zip(paths, answer.outcomes, strict=True):
            if isinstance(outcome, NoNode):
                return
            yield from self._check(one, outcome)

    def _check(self, path: str, outcome: list[Grant] | Refused) -> Steps[None]:
        if isinstance(outcome, Refused):
            raise outcome
        names = yield from self._known_names()
        for grant in outcome:
            if grant.permissions & ~_READ and not self._is_owner(grant, names):
                raise StoreError(
                    f"{path} may be changed by {grant.who} ({_letters(grant)}): {_REMEDY}"
                )
        if len(self._sound) >= _KEPT:
            self._sound.clear()
        self._sound.add(path)

    def _is_owner(self, grant: Grant, names: Collection[str]) -> bool:
        owners = self._owners or Owners()
        return grant.who in owners.ids or grant.who in names or f"{grant.scheme}:" in names

    def _known_names(self) -> Steps[frozenset[str]]:
        """Ask a server as whom it knows this client, once; one older than 3.7 cannot say.

        Then everyone who is known by the same scheme counts as this client.
        """
        schemes = self._owners.schemes if self._owners else frozenset[str]()
        if self._names is None and schemes:
            answer = yield Ask((WhoAmI(),), fresh=False)
            outcome: list[str] | Refused = answer.outcomes[0]
            if isinstance(outcome, Unimplemented):
                self._names = frozenset(f"{scheme}:" for scheme in schemes)
            elif isinstance(outcome, Refused):
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


def _letters(grant: Grant) -> str:
    return "".join(letter for bit, letter in _LETTERS if grant.permissions & bit)


def digest(settings: ZookeeperSettings) -> str | None:
    """Return what the digest scheme wants to see."""
    if settings.digest_user is None:
        return None
    return f"{settings.digest_user}:{settings.digest_password}"


def sasl(settings: ZookeeperSettings) -> dict[str, str] | None:
    """Return what kazoo hands to pure-sasl.

    Raises:
        ConfigError: pure-sasl is not installed.
    """
    if settings.sasl_mechanism == "none":
        return None
    if importlib.util.find_spec("puresasl") is None:
        raise ConfigError("plugin.zookeeper.sasl.mechanism needs the package pure-sasl")
    options = {"mechanism": settings.sasl_mechanism.upper(), "service": settings.sasl_service}
    if settings.sasl_user is not None and settings.sasl_password is not None:
        options |= {"username": settings.sasl_user, "password": settings.sasl_password}
    return options


def owners(settings: ZookeeperSettings) -> Owners | None:
    """Return who may change what is in the tree; None if that is everyone."""
    if _choice(settings) == "open":
        return None
    ids = set(settings.acl_trusted)
    credentials = digest(settings)
    if credentials is not None:
        ids.add(digest_id(credentials))
    schemes = {"sasl": settings.sasl_mechanism != "none", "x509": bool(settings.tls_certificate)}
    return Owners(frozenset(ids), frozenset(scheme for scheme, used in schemes.items() if used))


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

"""A client of Kazoo's that may read what others may not."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from kip30_conformance.servers import Ensemble

_ALICE = "alice:geheim-1"


@contextmanager
def alice_on(ensemble: Ensemble) -> Iterator[Any]:
    """Yield a client of *ensemble* that has the name of a user."""
    client: Any = KazooClient(hosts=ensemble.nodes[0].address, auth_data=[("digest", _ALICE)])
    client.start()
    yield client
    client.stop()
    client.close()


@contextmanager
def hiding(alice: Any) -> Iterator[Callable[[str], object]]:
    """Yield what makes a node unreadable to all but *alice*, until the block ends."""
    hidden: list[str] = []

    def hide(path: str) -> None:
        alice.set_acls(path, [make_digest_acl(*_ALICE.split(":"), all=True)])
        hidden.append(path)

    yield hide
    for path in hidden:
        alice.set_acls(path, OPEN_ACL_UNSAFE)

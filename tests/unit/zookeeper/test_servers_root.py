"""Servers whose own root only an administrator may read, and a client that may use its chroot.

The client does not learn whether its server leads, so it sends a transaction instead of a sync: a
check of the servers' root.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import pytest
from kazoo.security import OPEN_ACL_UNSAFE

from kip30 import PluginLocator
from kip30.config import Written
from kip30.driver.records import Condition, Write, new_nonce
from kip30.names import Key
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import PATIENT, Open

from .alice import alice_on, hiding
from .balancer import Balancer, follows

_WRITES = 50


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with start("zookeeper", folder=tmp_path_factory.mktemp("root")) as servers:
        yield servers


@pytest.fixture
def connect(ensemble: Ensemble, namespace: str) -> Iterator[dict[str, Written]]:
    """Yield the settings of a client whose question about its server gets no answer."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        balancer = Balancer([ensemble.nodes[0].port, silent.getsockname()[1]])
        with closing(balancer):
            yield {**PATIENT, "zookeeper.connect": f"{balancer.address}/{namespace}"}


@pytest.fixture
def restrict(ensemble: Ensemble, namespace: str) -> Iterator[Callable[[], object]]:
    """Yield what makes the root unreadable; the chroot exists."""
    with alice_on(ensemble) as alice, hiding(alice) as hide:
        alice.create(f"/{namespace}", acl=OPEN_ACL_UNSAFE)
        yield partial(hide, "/")


def _use(client: PluginLocator) -> None:
    storage = client.storage()
    storage.put("n/k", "v")
    storage.update("n/k", "w")
    storage.set("n/l", "v")
    assert storage.get("n/k") is not None
    storage.delete("n/l")
    group = client.group_membership("g")
    group.join("m", "d")
    group.update("m", "e")
    assert dict(group.membership()) == {"m": "e"}
    group.leave("m")
    election = client.leader_election("s")
    assert election.nominate("c", "d")
    election.resign("c")
    assert election.get_leader() is None


def test_a_client_starts_without_access_to_the_servers_root(
    open_client: Open, connect: dict[str, Written], restrict: Callable[[], object]
) -> None:
    restrict()
    client = open_client(**connect)
    _use(client)
    assert not follows(client)


def test_a_client_goes_on_when_the_servers_root_is_restricted(
    open_client: Open, connect: dict[str, Written], restrict: Callable[[], object]
) -> None:
    client = open_client(**connect)
    restrict()
    _use(client)
    assert not follows(client)


def test_a_write_takes_one_transaction(open_client: Open, connect: dict[str, Written]) -> None:
    storage = open_client(**connect).backend.storage
    keys = [Key("n", str(number)) for number in range(_WRITES)]
    writes = [Write(key, new_nonce(), b"", Condition.ABSENT) for key in keys]
    first, *_, last = [storage.write(one).result().major for one in writes]
    # Renewals are transactions, too.
    assert last - first < 1.5 * _WRITES

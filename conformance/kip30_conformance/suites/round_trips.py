"""The number of round trips of each operation to the server and back: G17."""

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from kip30 import GroupMembership, PluginLocator, Storage
from kip30.driver import Capability
from kip30.driver.records import Claim, Fence, new_nonce
from kip30_conformance.harness import Harness
from kip30_conformance.server_suite import Linked, OpenLinked, ServerSuite
from kip30_conformance.servers import Ensemble

_ROUNDS = 15
_KEPT = "kept"
_GUARD = "guard"


class RoundTripTests(ServerSuite):
    """No operation takes more round trips than the store's recipe for it."""

    def test_G17_round_trips(
        self, open_linked: OpenLinked, harness: Harness, servers: Ensemble
    ) -> None:
        """Every operation takes one round trip, or as many as its store is known to need."""
        counted = _counted(open_linked(**harness.patient))
        assert counted == {name: servers.round_trips.get(name, 1) for name in counted}


def _counted(linked: Linked) -> dict[str, float]:
    """Return the median of the round trips of each operation.

    A median, because a heartbeat may come in between, and the first operations of a client create
    what the others find.
    """
    samples = defaultdict[str, list[int]](list)
    before = linked.link.round_trips()
    for operation in _operations(linked.client):
        after = linked.link.round_trips()
        samples[operation].append(after - before)
        before = after
    return {operation: median(taken) for operation, taken in samples.items()}


def _operations(client: PluginLocator) -> Iterator[str]:
    """Yield the name of each operation after it was done."""
    storage = client.storage()
    group = client.group_membership("group")
    storage.put(_KEPT, "")
    guards = {_GUARD: storage.put(_GUARD, "")}
    for number in range(_ROUNDS):
        yield from _with_storage(storage, f"namespace/{number}")
        if Capability.GUARDS in client.backend.capabilities:
            storage.update(_KEPT, "", guards=guards)
            yield "update with a guard"
        yield from _with_group(group, f"member-{number}")
        yield from _with_election(client, storage)


def _with_storage(storage: Storage[str], key: str) -> Iterator[str]:
    version = storage.put(key, "")
    yield "put"
    storage.get(key)
    yield "get"
    storage.fetch(key).result()
    yield "fetch"
    storage.compare_and_set(key, version, "")
    yield "compare_and_set"
    storage.update(key, "")
    yield "update"
    storage.set(key, "")
    yield "set"
    list(storage.list("namespace"))
    yield "list"
    storage.delete(key)
    yield "delete"


def _with_group(group: GroupMembership[str], member: str) -> Iterator[str]:
    group.join(member, "")
    yield "join"
    group.membership()
    yield "membership"
    group.leave(member)
    yield "leave"


def _with_election(client: PluginLocator, storage: Storage[str]) -> Iterator[str]:
    """Claim without a campaign, which would listen as well, at moments of its own."""
    driver = client.backend.election
    claim = driver.claim("service", "candidate", new_nonce(), b"").result()
    assert isinstance(claim, Claim)
    yield "nominate"
    client.leader_election("service").get_leader()
    yield "get_leader"
    storage.update(_KEPT, "", fence=Fence("service", claim.entry.version.major))
    yield "update with a fence"
    driver.release("service", claim).result()
    yield "resign"

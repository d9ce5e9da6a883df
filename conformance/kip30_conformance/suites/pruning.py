"""Guarantees of every store when unused records are removed: L35 to L37."""

import threading
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count, pairwise
from typing import NamedTuple

import pytest

from kip30 import (
    Fence,
    FencedError,
    KeyMissingError,
    Leader,
    LeaderChange,
    MembershipChange,
    PluginLocator,
    UnsupportedError,
    VersionConflictError,
)
from kip30.driver import Capability
from kip30.driver.pruning import prune
from kip30.driver.records import Kind
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.clients.crowd import together
from kip30_conformance.suite import OpenClient, Suite, needing

_RACES = 12
_PAUSE_SECONDS = 0.001
_SERVICES = ("a", "b")


class PruningTests(Suite):
    """Unused records can be removed at any time, and no promise depends on them.

    A store that leaves nothing, or cannot remove it, passes as well.
    """

    def test_L36_epochs_go_on(self, client: PluginLocator) -> None:
        """Epochs grow across pruning: after it, each is greater than all before."""
        epochs = list[int]()
        for times in (3, 1, 2):
            epochs += [_led(client, "s") for _ in range(times)]
            _prune(client)
        _led(client, "other")
        epochs.append(_led(client, "s"))
        assert epochs == sorted(set(epochs))

    def test_L36_fences_of_pruned_services(self, open_client: OpenClient) -> None:
        """A fence of a pruned service is refused, before and after it is led again."""
        client, other = open_client(), open_client()
        former, last = _led(client, "s"), _led(other, "s")
        was_removed = Kind.SERVICE in _prune(other)
        over = [former, last] if was_removed else [former]
        for _ in range(2):
            for epoch in over:
                with _refused(client):
                    client.storage().set("key", "written", fence=Fence("s", epoch))
            _led(other, "s")
            over = [former, last]
        assert client.storage().get("key") is None

    def test_L36_what_is_used_stays(self, open_client: OpenClient) -> None:
        """A leader keeps its term and fence across pruning; members and keys stay."""
        client, other = open_client(), open_client()
        version = client.storage().put("namespace/key", "kept")
        member = client.group_membership("g").join("m", "data")
        with client.leader_election("s").lead("c", "data") as term:
            _prune(other)
            assert other.leader_election("s").get_leader() == Leader("c", "data", term.epoch)
            assert list(other.group_membership("g").membership()) == ["m"]
            with needing(client, Capability.FENCING):
                client.storage().update("namespace/key", "new", fence=term)
            term.check()
            assert member.is_valid()
        found = other.storage().get("namespace/key")
        assert found is not None
        assert found.version >= version

    def test_L36_dry_run(self, client: PluginLocator) -> None:
        """A dry run counts what is removed then, and once that is done nothing is left of it."""
        for name in _SERVICES:
            _led(client, name)
        counted = [dict(prune(client.backend, 0, dry_run=True)) for _ in range(2)]
        done = dict(prune(client.backend, 0, dry_run=False))
        assert counted == [done, done]
        assert _prune(client) == {}
        assert dict(prune(client.backend, 1e9, dry_run=False)).get(Kind.SERVICE, 0) == 0

    def test_L37_versions_go_on(self, client: PluginLocator) -> None:
        """A key of a namespace that was pruned gets a version that no key there had before."""
        storage, versions = client.storage(), list[object]()
        for _ in range(3):
            version = storage.put("namespace/key", "value")
            storage.delete("namespace/key")
            _prune(client)
            with needing(client, Capability.COMPARE_AND_SET), pytest.raises(KeyMissingError):
                storage.compare_and_set("namespace/key", version, "new")
            assert storage.put("namespace/key", "value") > version
            with needing(client, Capability.COMPARE_AND_SET), pytest.raises(VersionConflictError):
                storage.compare_and_set("namespace/key", version, "new")
            versions.append(version)
            storage.delete("namespace/key")
        assert len(set(versions)) == len(versions)

    def test_L37_observers_go_on(self, open_client: OpenClient) -> None:
        """A listener of what is pruned is notified of the next leader, member and key."""
        client, other = open_client(), open_client()
        _led(client, "s")
        _was_member(client, "g")
        client.storage().put("namespace/key", "")
        client.storage().delete("namespace/key")
        leaders, keys = Recorder[LeaderChange[str]](), Recorder[object]()
        other.leader_election("s").add_listener(leaders)
        other.listener_registry().add_value_change_listener("namespace/key", keys)
        joined = Recorder[MembershipChange[str]]()
        other.group_membership("g").add_listener(joined)
        _prune(client)
        with client.leader_election("s").lead("c", "") as term:
            leaders.expect(lambda change: change.leader == Leader("c", "", term.epoch))
        client.group_membership("g").join("m", "")
        joined.expect(lambda change: "m" in change.joined)
        client.storage().put("namespace/key", "new")
        keys.expect(lambda _: True)

    def test_L35_race_with_claims(self, open_client: OpenClient) -> None:
        """While several clients lead in turn and others prune, no epoch repeats or goes back."""
        clients, pruning = [open_client() for _ in range(3)], [open_client() for _ in range(2)]
        with _pruned_all_the_time(pruning):
            leading = [partial(_lead_often, client) for client in clients]
            terms = [term for some in together(leading) for term in some]
        by_service = defaultdict[str, list[_Term]](list)
        for term in sorted(terms):
            by_service[term.service].append(term)
        assert sum(map(len, by_service.values())) == len(clients) * _RACES
        for service in by_service.values():
            for earlier, later in pairwise(service):
                assert earlier.epoch < later.epoch

    def test_L35_race_with_writes(self, open_client: OpenClient) -> None:
        """While others prune, keys that come and go have no version twice, and members join."""
        clients, pruning = [open_client() for _ in range(2)], [open_client() for _ in range(2)]
        with _pruned_all_the_time(pruning):
            writing: list[Callable[[], list[object]]] = [
                partial(_write_often, client, f"namespace/{number}")
                for number, client in enumerate(clients)
            ]
            found = together(writing)
        for versions in found:
            assert len(versions) == len(set(versions)) == _RACES


class _Term(NamedTuple):
    """A term of leadership. Terms are ordered by time: no two terms have one moment."""

    moment: int
    service: str
    epoch: int


_moments = count()
"""Shared by all threads: `next` of it is one step."""


def _lead_often(client: PluginLocator) -> list[_Term]:
    terms = list[_Term]()
    for number in range(_RACES):
        service = _SERVICES[number % len(_SERVICES)]
        with client.leader_election(service).lead("c", "") as term:
            terms.append(_Term(next(_moments), service, term.epoch))
    return terms


def _write_often(client: PluginLocator, key: str) -> list[object]:
    storage, versions = client.storage(), list[object]()
    for number in range(_RACES):
        versions.append(storage.put(key, str(number)))
        storage.delete(key)
        _was_member(client, key.replace("/", "-"))
    return versions


@contextmanager
def _pruned_all_the_time(clients: Sequence[PluginLocator]) -> Generator[None]:
    """Let all *clients* prune repeatedly, until the block ends."""
    stopping = threading.Event()

    def go_on(client: PluginLocator) -> None:
        while not stopping.wait(_PAUSE_SECONDS):
            prune(client.backend, 0, dry_run=False)

    with ThreadPoolExecutor(len(clients)) as pool:
        running = [pool.submit(go_on, client) for client in clients]
        try:
            yield
        finally:
            stopping.set()
    for one in running:
        one.result()


def _led(client: PluginLocator, service: str) -> int:
    """Let *client* lead for a moment; return the epoch."""
    with client.leader_election(service).lead("c", "") as term:
        return term.epoch


def _was_member(client: PluginLocator, group: str) -> None:
    """Let *client* be a member of *group* for a moment."""
    membership = client.group_membership(group)
    membership.join("m", "")
    membership.leave("m")


def _prune(client: PluginLocator) -> dict[Kind, int]:
    """Remove unused records; return how many of each kind, without kinds of which none was."""
    counts = prune(client.backend, 0, dry_run=False)
    return {kind: count for kind, count in counts.items() if count}


@contextmanager
def _refused(client: PluginLocator) -> Generator[None]:
    declared = Capability.FENCING in client.backend.capabilities
    with pytest.raises(FencedError if declared else UnsupportedError):
        yield

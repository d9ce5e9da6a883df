"""Guarantees of every store for fences: it refuses a former leader's writes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import pytest

from kip30 import (
    Fence,
    FencedError,
    Kip30Error,
    PartialWriteError,
    PluginLocator,
    Storage,
    UnsupportedError,
    UsageError,
    Version,
    Versioned,
)
from kip30.driver import Capability
from kip30_conformance.suite import OpenClient, Suite

Write = Callable[[Storage[str], Version, Fence], object]

_WRITES: dict[str, Write] = {
    "put": lambda storage, _, fence: storage.put("new", "written", fence=fence),
    "update": lambda storage, _, fence: storage.update("key", "written", fence=fence),
    "set": lambda storage, _, fence: storage.set("new", "written", fence=fence),
    "delete": lambda storage, _, fence: storage.delete("key", fence=fence),
    "compare_and_set": lambda storage, version, fence: storage.compare_and_set(
        "key", version, "written", fence=fence
    ),
}
_NO_EPOCHS: list[Any] = [None, "1", 1.0, True, 2**63, -(2**63) - 1, 2**80]
_DOOMED_WRITES: dict[str, Write] = {
    "put": lambda storage, _, fence: storage.put("key", "written", fence=fence),
    "update": lambda storage, _, fence: storage.update("new", "written", fence=fence),
    "delete": lambda storage, _, fence: storage.delete("new", fence=fence),
    "compare_and_set": lambda storage, _, fence: storage.compare_and_set(
        "new", Version(1), "written", fence=fence
    ),
}
_MALFORMED: list[Any] = [
    *(("s", 1), 1, "s:1", object()),
    *(Fence("", 1), Fence("\ud800", 1), Fence("x" * 256, 1)),
    *(Fence("s", epoch) for epoch in _NO_EPOCHS),
    Fence(cast("Any", None), 1),
]


class FencingTests(Suite):
    """A write under an old epoch changes nothing; one under the newest is done.

    A store that does not declare ``fencing`` must refuse every fence.
    """

    @pytest.mark.parametrize("verb", _WRITES)
    def test_L10_stale_leader_fenced(self, open_client: OpenClient, verb: str) -> None:
        """After a change of leader no write with the old epoch is done, of any kind."""
        client, storage = open_client(), open_client().storage()
        version = storage.put("key", "kept")
        stale = _stale_fence(client, open_client())
        with _refused(client):
            _WRITES[verb](client.storage(), version, stale)
        found = storage.get("key")
        assert found is not None
        assert (found.value, found.version, storage.get("new")) == ("kept", version, None)

    def test_L10_stale_leader_fenced_in_put_many(self, open_client: OpenClient) -> None:
        """A stale fence refuses every single one of many writes."""
        client, storage = open_client(), open_client().storage()
        stale = _stale_fence(client, open_client())
        with pytest.raises((PartialWriteError, UnsupportedError)) as caught:
            client.storage().put_many({"a": "1", "b": "2"}, fence=stale)
        if isinstance(caught.value, PartialWriteError):
            assert not caught.value.done
            assert {type(error) for error in caught.value.failed.values()} == {FencedError}
        assert (storage.get("a"), storage.get("b")) == (None, None)

    @pytest.mark.parametrize("verb", _DOOMED_WRITES)
    def test_L10_fence_before_condition(self, open_client: OpenClient, verb: str) -> None:
        """A fenced write raises FencedError, also if it would have failed for another reason."""
        client = open_client()
        version = client.storage().put("key", "kept")
        stale = _stale_fence(client, open_client())
        with _refused(client):
            _DOOMED_WRITES[verb](client.storage(), version, stale)

    @pytest.mark.parametrize("verb", _WRITES)
    def test_L10_leader_not_fenced(self, client: PluginLocator, verb: str) -> None:
        """The leader's own writes are done."""
        storage, election = client.storage(), client.leader_election("s")
        version = storage.put("key", "old")
        with election.lead("c", "") as term, _allowed(client):
            _WRITES[verb](storage, version, Fence(term.service, term.epoch))
            found = storage.get("new" if verb in {"put", "set"} else "key")
            assert (None if found is None else found.value) == (
                None if verb == "delete" else "written"
            )

    def test_L10_leadership_is_a_fence(self, open_client: OpenClient) -> None:
        """A term serves as its own fence: while it is the newest, and not after."""
        client, other = open_client(), open_client()
        storage = client.storage()
        with client.leader_election("s").lead("a", "") as term, _allowed(client):
            storage.put("key", "mine", fence=term)
        with other.leader_election("s").lead("b", ""), _refused(client):
            storage.update("key", "still mine", fence=term)

    def test_L10_services_fence_apart(self, open_client: OpenClient) -> None:
        """A change of leader of one service does not fence the leader of another."""
        client, other = open_client(), open_client()
        with client.leader_election("mine").lead("a", "") as term:
            for _ in range(3):
                _stale_fence(other, client)
            with _allowed(client):
                client.storage().put("key", "mine", fence=term)

    def test_L10_epoch_of_nobody(self, client: PluginLocator) -> None:
        """A fence of a service that was never led, or of an epoch to come, allows nothing."""
        for fence in (Fence("nobody was here", 1), Fence("s", 10**9)):
            with client.leader_election("s").lead("c", ""), _refused(client):
                client.storage().put("key", "written", fence=fence)
        assert client.storage().get("key") is None

    @pytest.mark.parametrize("key", ["key", "new"])
    def test_S41_set_by_the_leader(self, client: PluginLocator, key: str) -> None:
        """A leader's set creates and replaces."""
        storage = client.storage()
        storage.put("key", "old")
        with client.leader_election("s").lead("c", "") as term, _allowed(client):
            version = storage.set(key, "written", fence=term)
            assert storage.get(key) == Versioned("written", version)

    def test_S41_set_by_a_former_leader(self, open_client: OpenClient) -> None:
        """A former leader's set neither creates nor replaces."""
        client, storage = open_client(), open_client().storage()
        kept = Versioned("kept", storage.put("key", "kept"))
        stale = _stale_fence(client, open_client())
        for key in ("key", "new"):
            with _refused(client):
                client.storage().set(key, "written", fence=stale)
        assert (storage.get("key"), storage.get("new")) == (kept, None)

    @pytest.mark.parametrize("verb", [*_WRITES, "put_many"])
    def test_S44_epoch_never_issued(self, client: PluginLocator, verb: str) -> None:
        """An epoch that no leader had allows nothing: led now, led once, or never led."""
        storage, election = client.storage(), client.leader_election("once")
        kept = Versioned("kept", storage.put("key", "kept"))
        with election.lead("c", "") as once:
            last = once.epoch
        with client.leader_election("now").lead("c", "") as term:
            newest = {"once": last, "now": term.epoch, "never": 0}
            for service, epoch in newest.items():
                for fence in _never_issued(service, epoch):
                    assert _fenced_error(storage, kept.version, fence, verb) is _refusal(client)
        assert (storage.get("key"), storage.get("new")) == (kept, None)

    @pytest.mark.parametrize("verb", [*_WRITES, "put_many"])
    def test_S44_no_fence_at_all(self, client: PluginLocator, verb: str) -> None:
        """A fence without a valid service and a 64-bit epoch is a usage error on every store."""
        storage = client.storage()
        kept = Versioned("kept", storage.put("key", "kept"))
        for fence in _MALFORMED:
            with pytest.raises(UsageError):
                _write(storage, kept.version, fence, verb)
        assert (storage.get("key"), storage.get("new")) == (kept, None)


def _never_issued(service: str, newest: int) -> Iterator[Fence]:
    for epoch in (0, -1, -newest, newest + 2**31, newest + 2**32, 2**63 - 1, -(2**63)):
        yield Fence(service, epoch)


def _write(storage: Storage[str], version: Version, fence: Any, verb: str) -> None:
    if verb == "put_many":
        storage.put_many({"new": "written"}, fence=fence)
    else:
        _WRITES[verb](storage, version, fence)


def _fenced_error(
    storage: Storage[str], version: Version, fence: Fence, verb: str
) -> type[Kip30Error] | None:
    """Return the kind of error that a write ends with, None if it is done."""
    try:
        _write(storage, version, fence, verb)
    except PartialWriteError as error:
        return type(error.failed["new"])
    except Kip30Error as error:
        return type(error)
    return None


def _stale_fence(client: PluginLocator, other: PluginLocator) -> Fence:
    """Let *client* lead for a moment and *other* after it; return the fence of the first."""
    with client.leader_election("s").lead("a", "") as term:
        stale = Fence(term.service, term.epoch)
    with other.leader_election("s").lead("b", ""):
        return stale


def _refusal(client: PluginLocator) -> type[Kip30Error]:
    declared = Capability.FENCING in client.backend.capabilities
    return FencedError if declared else UnsupportedError


def _refused(client: PluginLocator) -> AbstractContextManager[object]:
    return pytest.raises(_refusal(client))


def _allowed(client: PluginLocator) -> AbstractContextManager[object]:
    declared = Capability.FENCING in client.backend.capabilities
    return nullcontext() if declared else pytest.raises(UnsupportedError)

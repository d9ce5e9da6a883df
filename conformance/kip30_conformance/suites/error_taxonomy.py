"""Errors say what happened, on any store: G13 and G14."""

import os
import pickle
from typing import Any

import pytest

import kip30
from kip30 import (
    DefiniteError,
    Fence,
    FencedError,
    GuardError,
    KeyMissingError,
    Kip30Error,
    OutcomeUnknownError,
    PartialWriteError,
    PluginLocator,
    UnsupportedError,
    UsageError,
    VersionConflictError,
)
from kip30.driver import Capability
from kip30_conformance.suite import Suite, needing

KINDS = (UsageError, UnsupportedError, DefiniteError, OutcomeUnknownError)
ERRORS = [
    value
    for name in kip30.__all__
    if isinstance(value := getattr(kip30, name), type) and issubclass(value, Kip30Error)
]
_PARTS: tuple[Any, ...] = ({}, {"k": KeyMissingError("k")})


class TaxonomyTests(Suite):
    """Errors say what happened, and capabilities are what they are declared to be."""

    @pytest.mark.parametrize("error", [one for one in ERRORS if one is not Kip30Error])
    def test_G13_one_kind_each(self, error: type[Kip30Error]) -> None:
        """Every error is of exactly one kind: usage, unsupported, definite or unknown."""
        assert sum(issubclass(error, kind) for kind in KINDS) == 1

    @pytest.mark.parametrize("error", ERRORS)
    def test_G13_pickles(self, error: type[Kip30Error]) -> None:
        """Every error keeps its type and text when pickled and unpickled."""
        why: tuple[Any, ...] = ("why",)
        before = error(*(_PARTS if error is PartialWriteError else why))
        after = pickle.loads(pickle.dumps(before))  # noqa: S301  what was pickled a moment ago
        assert (type(after), str(after)) == (type(before), str(before))

    def test_G13_raised_errors_pickle(self, client: PluginLocator) -> None:
        """An error that comes from the store pickles as well, with all it holds."""
        storage = client.storage()
        storage.put("k", "v")
        for call in (lambda: storage.put("k", "w"), lambda: storage.delete("absent")):
            with pytest.raises(DefiniteError) as raised:
                call()
            assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)  # noqa: S301

    def test_G13_cause_is_kept(self, client: PluginLocator) -> None:
        """The exception that made an operation fail stays reachable as the error's cause."""
        client.storage(kip30.BYTES).put("k", b"\xff")
        with pytest.raises(kip30.CodecError) as raised:
            client.storage().get("k")
        assert isinstance(raised.value.__cause__, UnicodeDecodeError)

    def test_G14_compare_and_set(self, client: PluginLocator) -> None:
        """Compare-and-set is kept as declared."""
        storage = client.storage()
        version = storage.put("k", "v")
        with needing(client, Capability.COMPARE_AND_SET):
            newer = storage.compare_and_set("k", version, "w")
            with pytest.raises(VersionConflictError):
                storage.compare_and_set("k", version, "x")
            storage.delete("k", expected=newer)

    def test_G14_fencing(self, client: PluginLocator) -> None:
        """Fencing is kept as declared."""
        storage, election = client.storage(), client.leader_election("s")
        election.nominate("c", "")
        leadership = election.wait_elected("c", 10)
        assert leadership is not None
        with needing(client, Capability.FENCING):
            storage.put("k", "v", fence=leadership)
            with pytest.raises(FencedError):
                storage.update("k", "w", fence=Fence("s", leadership.epoch - 1))

    def test_G14_guards(self, client: PluginLocator) -> None:
        """Guards are kept as declared."""
        storage = client.storage()
        guards = {"n/g": storage.put("n/g", "v")}
        with needing(client, Capability.GUARDS):
            storage.put("n/k", "v", guards=guards)
            storage.update("n/g", "w")
            with pytest.raises(GuardError):
                storage.update("n/k", "w", guards=guards)

    def test_G14_listing(self, client: PluginLocator) -> None:
        """Listing is kept as declared."""
        client.storage().put("n/k", "v")
        with needing(client, Capability.LISTING):
            assert list(client.storage().list("n")) == ["n/k"]

    def test_G14_lease_sharing(self, client: PluginLocator) -> None:
        """A lease is shared by a descriptor if that is declared, else it is refused."""
        election = client.leader_election("s")
        election.nominate("c", "")
        leadership = election.wait_elected("c", 10)
        assert leadership is not None
        with needing(client, Capability.LEASE_SHARING):
            os.fstat(election.share_lease(leadership))

"""Random sequences of storage calls, compared with a dict: S31."""

from collections.abc import Callable
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from typing_extensions import override

from kip30 import (
    KeyExistsError,
    KeyMissingError,
    PluginLocator,
    Storage,
    Version,
    VersionConflictError,
    Versioned,
)
from kip30.driver import Capability
from kip30_conformance.harness import Harness
from kip30_conformance.hypothesis_settings import searching
from kip30_conformance.suite import Suite

KEYS = ["a", "b", "a/b", "a/c", "a/b/c", "ab/c"]
keys = st.sampled_from(KEYS)
values = st.text(max_size=5)
clients = st.integers(0, 1)


class StorageMachine(RuleBasedStateMachine):
    """Two clients that take turns, and a dict of the expected values."""

    harness: ClassVar[Harness]

    def __init__(self) -> None:
        """Start with an empty namespace."""
        super().__init__()
        self._root = self.harness.unique_root()
        self._clients = [self._opened() for _ in range(2)]
        self._model: dict[str, Versioned[str]] = {}
        self._newest: dict[str, Version] = {}
        self._capabilities = self._clients[0].backend.capabilities

    @override
    def teardown(self) -> None:
        for client in self._clients:
            client.close()

    @rule(client=clients)
    def reopen(self, client: int) -> None:
        """Replace one client by a new one; nothing may change."""
        self._clients[client].close()
        self._clients[client] = self._opened()

    @rule(client=clients, key=keys, value=values)
    def put(self, client: int, key: str, value: str) -> None:
        """Create a key, or be refused because it exists."""
        refused = KeyExistsError if key in self._model else None
        self._write(key, value, refused, lambda: self._storage(client).put(key, value))

    @rule(client=clients, key=keys, value=values)
    def update(self, client: int, key: str, value: str) -> None:
        """Replace a value, or be refused because there is none."""
        refused = None if key in self._model else KeyMissingError
        self._write(key, value, refused, lambda: self._storage(client).update(key, value))

    @rule(client=clients, key=keys, value=values)
    def set(self, client: int, key: str, value: str) -> None:
        """Create a key or replace its value."""
        self._write(key, value, None, lambda: self._storage(client).set(key, value))

    @precondition(lambda self: Capability.COMPARE_AND_SET in self._capabilities)
    @rule(client=clients, key=keys, value=values, fresh=st.booleans())
    def compare_and_set(self, client: int, key: str, value: str, *, fresh: bool) -> None:
        """Replace a value at its version, or be refused because of another one or none."""
        expected, refused = self._expectation(key, fresh=fresh)
        storage = self._storage(client)
        self._write(key, value, refused, lambda: storage.compare_and_set(key, expected, value))

    @rule(client=clients, key=keys)
    def delete(self, client: int, key: str) -> None:
        """Delete a key, or be refused because it does not exist."""
        refused = None if key in self._model else KeyMissingError
        self._delete(key, refused, lambda: self._storage(client).delete(key))

    @precondition(lambda self: Capability.COMPARE_AND_SET in self._capabilities)
    @rule(client=clients, key=keys, fresh=st.booleans())
    def delete_at_version(self, client: int, key: str, *, fresh: bool) -> None:
        """Delete a key at its version, or be refused."""
        expected, refused = self._expectation(key, fresh=fresh)
        storage = self._storage(client)
        self._delete(key, refused, lambda: storage.delete(key, expected=expected))

    @precondition(lambda self: Capability.LISTING in self._capabilities)
    @rule(client=clients, namespace=st.sampled_from(["", "a", "a/b", "ab", "nobody"]))
    def list_namespace(self, client: int, namespace: str) -> None:
        """List exactly the keys one level below."""
        inside = [key for key in self._model if key.rpartition("/")[0] == namespace]
        assert list(self._storage(client).list(namespace)) == sorted(inside)

    @initialize()
    def start_empty(self) -> None:
        """Find nothing in a new namespace."""
        assert self._storage(0).fetch_many(KEYS).result() == {}

    @invariant()
    def both_clients_see_the_model(self) -> None:
        """Each read returns the dict's values, versions included."""
        for client in self._clients:
            storage = client.storage()
            assert {key: storage.get(key) for key in KEYS} == {k: self._model.get(k) for k in KEYS}

    def _opened(self) -> PluginLocator:
        return self.harness.open_steady(self._root, **self.harness.patient)

    def _storage(self, client: int) -> Storage[str]:
        return self._clients[client].storage()

    def _expectation(self, key: str, *, fresh: bool) -> tuple[Version, type[Exception] | None]:
        """Return a version to expect of *key*, and how a write that expects it is refused."""
        present = self._model.get(key)
        if present is None:
            return self._newest.get(key, Version(1)), KeyMissingError
        if fresh:
            return present.version, None
        return Version(present.version.major + 1, present.version.minor), VersionConflictError

    def _write(
        self, key: str, value: str, refused: type[Exception] | None, call: Callable[[], Version]
    ) -> None:
        if refused is not None:
            with pytest.raises(refused):
                call()
            return
        version = call()
        assert version > self._newest.get(key, Version(-1))
        self._newest[key] = version
        self._model[key] = Versioned(value, version)

    def _delete(self, key: str, refused: type[Exception] | None, call: Callable[[], None]) -> None:
        if refused is not None:
            with pytest.raises(refused):
                call()
            return
        call()
        del self._model[key]


class StorageMachineTests(Suite):
    """No sequence of calls, by two clients that come and go, differs from a dict."""

    def test_S31_model_state_machine(self, harness: Harness) -> None:
        """After any operations in any order, the storage answers as a dict would."""

        class Machine(StorageMachine):
            pass

        Machine.harness = harness
        thorough = settings(searching, max_examples=25, stateful_step_count=30)
        run_state_machine_as_test(Machine, settings=thorough)

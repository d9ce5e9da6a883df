"""Every verb of the storage notifies every kind of listener: R29."""

from collections.abc import Callable, Mapping

import pytest

from kip30 import KeySetChange, PluginLocator, Storage, Version
from kip30.driver import Capability
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.suite import OpenClient, Suite

Verb = Callable[[Storage[str], Version], object]

_CREATING: Mapping[str, Verb] = {
    "put": lambda storage, _: storage.put("n/new", "written"),
    "set": lambda storage, _: storage.set("n/new", "written"),
    "put_many of one": lambda storage, _: storage.put_many({"n/new": "written"}),
    "put_many": lambda storage, _: storage.put_many(
        {"n/before": "", "n/new": "written", "n/then": "", "other/k": ""}
    ),
}
_CHANGING: Mapping[str, Verb] = {
    "update": lambda storage, _: storage.update("n/key", "written"),
    "set": lambda storage, _: storage.set("n/key", "written"),
    "compare_and_set": lambda storage, version: storage.compare_and_set(
        "n/key", version, "written"
    ),
}
_DELETING: Mapping[str, Verb] = {
    "delete": lambda storage, _: storage.delete("n/key"),
    "delete of a version": lambda storage, version: storage.delete("n/key", expected=version),
}
_NEED_CAS = {"compare_and_set", "delete of a version"}


class VerbEventTests(Suite):
    """Listeners are notified of what any verb does, of one key or of many."""

    @pytest.fixture
    def storage(self, open_client: OpenClient) -> Storage[str]:
        """Return the storage of another client, which writes."""
        return open_client().storage()

    @pytest.mark.parametrize("verb", _CREATING)
    def test_R29_created(self, client: PluginLocator, storage: Storage[str], verb: str) -> None:
        """Listeners of a key and of its namespace are notified of a new key."""
        values, sets = _listening(client, "n/new")
        _CREATING[verb](storage, Version(0))
        values.expect("written".__eq__)
        sets.expect(lambda change: "n/new" in change.keys)

    @pytest.mark.parametrize("verb", _CHANGING)
    def test_R29_changed(self, client: PluginLocator, storage: Storage[str], verb: str) -> None:
        """A listener of a key is notified of its new value."""
        version = storage.put("n/key", "old")
        values, _ = _listening(client, "n/key")
        _skip_without_power(client, verb)
        _CHANGING[verb](storage, version)
        values.expect("written".__eq__)

    @pytest.mark.parametrize("verb", _DELETING)
    def test_R29_deleted(self, client: PluginLocator, storage: Storage[str], verb: str) -> None:
        """Listeners of a key and of its namespace are notified when it is deleted."""
        version = storage.put("n/key", "old")
        values, sets = _listening(client, "n/key")
        _skip_without_power(client, verb)
        _DELETING[verb](storage, version)
        values.expect(lambda value: value is None)
        sets.expect(lambda change: "n/key" in change.removed)


def _listening(
    client: PluginLocator, key: str
) -> tuple[Recorder[str | None], Recorder[KeySetChange]]:
    """Return a listener of *key* and one of ``n``, which no other write will wake."""
    registry = client.listener_registry()
    values, sets = Recorder[str | None](), Recorder[KeySetChange]()
    registry.add_value_change_listener(key, lambda change: values(change.value))
    registry.add_key_set_change_listener("n", sets)
    return values, sets


def _skip_without_power(client: PluginLocator, verb: str) -> None:
    if verb in _NEED_CAS and Capability.COMPARE_AND_SET not in client.backend.capabilities:
        pytest.skip("the store does not declare compare-and-set")

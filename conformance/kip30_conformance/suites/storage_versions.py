"""Expected versions that no store has issued: S43."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kip30 import (
    KeyMissingError,
    PluginLocator,
    Storage,
    UsageError,
    Version,
    VersionConflictError,
    Versioned,
)
from kip30.driver import Capability
from kip30_conformance.suite import Suite, needing

Write = Callable[[Storage[str], str, Any], object]

_WRITES: dict[str, Write] = {
    "compare_and_set": lambda storage, key, version: storage.compare_and_set(key, version, "w"),
    "delete": lambda storage, key, version: storage.delete(key, expected=version),
}
_MALFORMED: list[Any] = [
    *(1, "1", (1, 0), object()),
    *(Version(True), Version(1, False)),  # noqa: FBT003  what is to be refused
    *(Version(2**63), Version(-(2**63) - 1), Version(1, 2**63), Version(2**80)),
]
_NO_NUMBERS: list[Any] = [1.0, "1", None]


class StorageVersionTests(Suite):
    """A version that the key does not have never matches, with any numbers."""

    @pytest.mark.parametrize("verb", _WRITES)
    def test_S43_version_of_present_key(self, client: PluginLocator, verb: str) -> None:
        """Each version that was never issued is a conflict, and changes nothing."""
        storage = client.storage()
        kept = Versioned("kept", _written_often(storage, client))
        with needing(client, Capability.COMPARE_AND_SET):
            for version in _never_issued(kept.version):
                with pytest.raises(VersionConflictError):
                    _WRITES[verb](storage, "n/k", version)
                assert storage.get("n/k") == kept, version

    @pytest.mark.parametrize("verb", _WRITES)
    def test_S43_version_of_absent_key(self, client: PluginLocator, verb: str) -> None:
        """Expecting a version of an absent key raises KeyMissingError, and creates nothing."""
        storage = client.storage()
        last = _written_often(storage, client)
        storage.delete("n/k")
        with needing(client, Capability.COMPARE_AND_SET):
            for version in (last, *_never_issued(last)):
                for key in ("n/k", "n/never"):
                    with pytest.raises(KeyMissingError):
                        _WRITES[verb](storage, key, version)
                    assert storage.get(key) is None, version

    @pytest.mark.parametrize("verb", _WRITES)
    def test_S43_version_that_is_none(self, client: PluginLocator, verb: str) -> None:
        """Anything but a version of two 64-bit numbers is a usage error on every store."""
        storage = client.storage()
        kept = Versioned("kept", storage.put("n/k", "kept"))
        parts = [Version(*pair) for one in _NO_NUMBERS for pair in ((one, 0), (1, one))]
        for version in (*_MALFORMED, *parts):
            with pytest.raises(UsageError):
                _WRITES[verb](storage, "n/k", version)
        assert storage.get("n/k") == kept


def _never_issued(version: Version) -> Iterator[Version]:
    """Yield versions that the key with *version* has never had, nor can have."""
    for major in (0, -1, -version.major, -(2**63), 2**63 - 1):
        yield Version(major)
        yield Version(major, version.minor)
        yield Version(major, -1)
    for minor in (version.minor + 1, -1, -(2**31), 2**31, 2**32 + version.minor, 2**63 - 1):
        yield Version(version.major, minor)


def _written_often(storage: Storage[str], client: PluginLocator) -> Version:
    """Write a key so that the client knows its whole state; return its version."""
    version = storage.put("n/k", "kept")
    if Capability.COMPARE_AND_SET in client.backend.capabilities:
        for _ in range(2):
            version = storage.compare_and_set("n/k", version, "kept")
    return version

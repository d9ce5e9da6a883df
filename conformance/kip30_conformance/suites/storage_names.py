"""Valid keys and values, and their limits: S16 to S23."""

import unicodedata
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from typing_extensions import override

from kip30 import (
    BYTES,
    Codec,
    CodecError,
    InvalidNameError,
    KeyMissingError,
    PluginLocator,
    Storage,
    UsageError,
    ValueTooLargeError,
)
from kip30.driver import Capability
from kip30.names import MAX_NAME_BYTES
from kip30_conformance.hypothesis_settings import searching
from kip30_conformance.suite import Suite

LOOKALIKES = ["café", "cafe\u0301", "CAFÉ", "CAFE\u0301", "caf\u00e9\u200b", "caf\u00e9 "]
SCRIPTS = ["ключ", "鍵", "مفتاح", "\U0001f511", "e\u0301\u0323", "\U0010ffff", "\u202efdp"]
WEIRD = [" ", "a b", " a", "a ", "'", '"', "\\", "%", "%2F", "?", "#", "&", "=", "=2F", "1a", "..."]


class NamesAndValuesTests(Suite):
    """Every name and every value is kept unchanged, or refused before anything is sent."""

    @pytest.fixture
    def blobs(self, client: PluginLocator) -> Storage[bytes]:
        """Return the storage of bytes."""
        return client.storage(BYTES)

    def test_S16_empty_value(self, blobs: Storage[bytes]) -> None:
        """An empty value is stored, and is not the same as none."""
        blobs.put("k", b"")
        assert blobs.fetch("k").result() == b""
        assert blobs.fetch_many(["k", "absent"]).result() == {"k": b""}

    def test_S17_all_bytes(self, blobs: Storage[bytes]) -> None:
        """All 256 byte values come back, in order."""
        blobs.put("k", bytes(range(256)))
        assert blobs.fetch("k").result() == bytes(range(256))

    @searching
    @given(value=st.binary(max_size=300))
    @example(value=b"trailing\0\0")
    @example(value=b"\xc3\x28 no UTF-8")
    def test_S17_binary_values(self, blobs: Storage[bytes], value: bytes) -> None:
        """Any bytes come back as they were."""
        _put_or_update(blobs, "k", value)
        assert blobs.fetch("k").result() == value

    def test_S18_unicode_keys(self, blobs: Storage[bytes]) -> None:
        """Keys that look alike are different keys; no script and no plane is special."""
        names = LOOKALIKES + SCRIPTS
        assert len({unicodedata.normalize("NFC", name).casefold() for name in names}) < len(names)
        _expect_distinct(blobs, [f"n/{name}" for name in names])

    @pytest.mark.parametrize("key", ["\ud800", "n/\udfff", "\ud83dx/k"], ids=ascii)
    def test_S18_surrogate_refused(self, blobs: Storage[bytes], key: str) -> None:
        """A lone surrogate is refused."""
        with pytest.raises(InvalidNameError):
            blobs.put(key, b"")

    @searching
    @given(one=st.text(min_size=1, max_size=20), other=st.text(min_size=1, max_size=20))
    @example(one="a/b", other="a//b")
    @example(one="n/\x01", other="n/\x01\x00")
    def test_S18_never_aliased(self, client: PluginLocator, one: str, other: str) -> None:
        """Two keys that differ in any code point are two keys."""
        assume(one != other)
        storage = client.storage()
        if not (_renew(storage, one, "one") and _renew(storage, other, "other")):
            return
        assert storage.fetch(one).result() == "one"
        storage.delete(other)
        assert storage.fetch(one).result() == "one"

    def test_S19_ascii_keys(self, blobs: Storage[bytes]) -> None:
        """Every ASCII character but '/' is a name, alone and inside one."""
        singles = [chr(code) for code in range(128) if chr(code) != "/"]
        _expect_distinct(blobs, [*singles, *(f"x{char}y" for char in singles)])

    def test_S19_weird_keys(self, blobs: Storage[bytes]) -> None:
        """Blanks, quotes, escapes, patterns and dots stand for themselves."""
        _expect_distinct(blobs, [*WEIRD, *(f"n/{name}" for name in WEIRD)])

    @pytest.mark.parametrize("key", ["a/", "/a", "/", "//"])
    def test_S19_slash_at_an_end_refused(self, blobs: Storage[bytes], key: str) -> None:
        """A slash at either end is refused."""
        with pytest.raises(InvalidNameError):
            blobs.put(key, b"")

    @pytest.mark.parametrize("key", ["", None, 7, b"k", ["k"], ("n", "k")], ids=repr)
    def test_S20_no_key(self, client: PluginLocator, key: Any) -> None:
        """An empty key, or one of another type, is a usage error in every verb."""
        storage = client.storage()
        for call in (
            lambda: storage.get(key),
            lambda: storage.fetch(key),
            lambda: storage.put(key, "v"),
            lambda: storage.update(key, "v"),
            lambda: storage.delete(key),
        ):
            with pytest.raises(UsageError):
                call()

    @pytest.mark.parametrize("value", [None, 7, b"bytes", "\ud800"], ids=ascii)
    def test_S20_no_text(self, client: PluginLocator, value: Any) -> None:
        """A value that the codec does not know is a usage error, and nothing is stored."""
        with pytest.raises(CodecError):
            client.storage().put("k", value)
        assert client.storage().get("k") is None

    @pytest.mark.parametrize("encoded", [None, "text", bytearray(b"v")], ids=ascii)
    def test_S20_codec_without_bytes(self, client: PluginLocator, encoded: Any) -> None:
        """A codec that does not return bytes is an error of every call, and nothing is stored."""
        codec = _Returning(encoded)
        storage, group = client.storage(codec), client.group_membership("g", codec)
        election = client.leader_election("s", codec)
        version = client.storage().put("there", "v")
        calls: list[Callable[[], object]] = [
            lambda: storage.put("k", 1),
            lambda: storage.set("k", 1),
            lambda: storage.put_many({"k": 1}),
            lambda: storage.update("there", 1),
            lambda: group.join("m", 1),
            lambda: election.nominate("c", 1),
        ]
        if Capability.COMPARE_AND_SET in client.backend.capabilities:
            calls.append(lambda: storage.compare_and_set("there", version, 1))
        for call in calls:
            with pytest.raises(CodecError, match="must return bytes"):
                call()
        assert client.storage().fetch_many(["k", "there"]).result() == {"there": "v"}
        assert client.group_membership("g").membership() == {}
        assert client.leader_election("s").get_leader() is None

    @pytest.mark.parametrize("char", ["k", "é", "%"])
    def test_S21_long_key(self, blobs: Storage[bytes], char: str) -> None:
        """A name of the advertised length works, a longer one is refused; the client is usable."""
        longest = char * (MAX_NAME_BYTES // (1 if char == "k" else 3 * len(char.encode())))
        for key in (longest, f"n/{longest}", f"{longest}/k"):
            blobs.put(key, b"v")
            assert blobs.fetch(key).result() == b"v"
        for key in (longest + char, f"n/{longest}{char}", f"{longest}{char}/k"):
            with pytest.raises(InvalidNameError):
                blobs.put(key, b"v")
        assert blobs.fetch(longest).result() == b"v"

    def test_S22_huge_value(self, client: PluginLocator, blobs: Storage[bytes]) -> None:
        """A value of the advertised size works, one byte more is refused; the client is usable."""
        limit = client.backend.limits.value_bytes
        largest = bytes(range(256)) * (limit // 256) + b"x" * (limit % 256)
        blobs.put("k", largest)
        with pytest.raises(ValueTooLargeError):
            blobs.put("other", largest + b"x")
        with pytest.raises(ValueTooLargeError):
            blobs.update("k", largest + b"x")
        assert blobs.get("other") is None
        assert blobs.fetch("k").result() == largest

    def test_S23_prefix_collision(self, blobs: Storage[bytes]) -> None:
        """Keys that are beginnings of one another are independent."""
        keys = ["a", "a/b", "ab", "a/b/c", "a/bc", "a b"]
        _expect_distinct(blobs, keys)
        for number, key in enumerate(keys):
            blobs.delete(key)
            left = keys[number + 1 :]
            assert blobs.fetch_many(keys).result() == {one: one.encode() for one in left}


def _expect_distinct(blobs: Storage[bytes], keys: list[str]) -> None:
    """Put each of *keys* with a value of its own and expect to find all of them."""
    values = {key: key.encode() for key in keys}
    for key, value in values.items():
        blobs.put(key, value)
    assert blobs.fetch_many(keys).result() == values


def _put_or_update(blobs: Storage[bytes], key: str, value: bytes) -> None:
    if blobs.get(key) is None:
        blobs.put(key, value)
    else:
        blobs.update(key, value)


def _renew(storage: Storage[str], key: str, value: str) -> bool:
    """Put *key* again, and return whether it may be a key at all."""
    try:
        with suppress(KeyMissingError):
            storage.delete(key)
        storage.put(key, value)
    except InvalidNameError:
        return False
    return True


class _Returning(Codec[Any]):
    """A codec whose author forgot what it must return."""

    name = "returning"

    def __init__(self, encoded: Any) -> None:
        self._encoded = encoded

    @override
    def encode(self, value: Any) -> bytes:
        encoded: bytes = self._encoded
        return encoded

    @override
    def decode(self, data: bytes) -> Any:
        return data

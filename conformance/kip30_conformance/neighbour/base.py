"""A neighbour: another program with access to the store, which writes anything."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from typing_extensions import override

from kip30 import UnsupportedError
from kip30.driver.key_layout import Paths
from kip30.driver.record_format import OVERHEAD_BYTES, seal
from kip30.driver.records import Kind, new_nonce
from kip30.names import escape


class Spot(NamedTuple):
    """Place of a record: a value, a member, or the leader of a service, which has no *name*.

    With *is_raw*, *name* is written as it is, and need not be a name of kip30's.
    """

    kind: Kind
    scope: str
    name: str = ""
    is_raw: bool = False


class Neighbour(ABC):
    """Writes to one namespace of the configuration, past kip30. Not thread-safe.

    The stored form is a type of its own for each store: bytes, or the columns of a row. The owner
    of a record, such as a session, stays when another one is written over it.
    """

    huge_bytes: int = 1_000_000
    """About the most that the store takes for one record."""
    stray_names: Sequence[str] = ()
    """Names that are none of kip30's; empty for a store in which every text is one."""

    @abstractmethod
    def read(self, spot: Spot) -> Any:
        """Return the record at *spot*; None if there is none."""

    @abstractmethod
    def write(self, spot: Spot, stored: Any) -> None:
        """Store *stored* at *spot*, whether it is empty or not."""

    @abstractmethod
    def remove(self, spot: Spot) -> None:
        """Remove the record at *spot*; if there is none, do nothing."""

    @abstractmethod
    def sound(self, spot: Spot, data: bytes) -> Any:
        """Return the form in which kip30 stores *data* at *spot*, which is not a leader."""

    @abstractmethod
    def foreign(self, data: bytes) -> Any:
        """Return another program's form that keeps *data*; it may look like kip30's."""

    @abstractmethod
    def unreadable_forms(self, sound: Any) -> Mapping[str, Any]:
        """Return what this kip30 cannot read, in words: foreign, future, or a damaged *sound*."""

    def unreadable_form(self, sound: Any) -> Any:
        """Return the first of `unreadable_forms`."""
        return next(iter(self.unreadable_forms(sound).values()))

    def damaged_forms(self, sound: Any) -> Mapping[str, Any]:
        """Return forms of a damaged *sound*, in words, that may be read, and mean what they may."""
        del sound
        return {}

    def write_unowned(self, spot: Spot, stored: Any) -> None:
        """Store the claim *stored* at *spot*, which is empty, so that it ends with no session.

        Raises:
            UnsupportedError: The store does not keep sessions beside its records.
        """
        del stored
        raise UnsupportedError(f"no {spot.kind.value} without a session that would be known as one")

    def write_above(self, kind: Kind, scope: str) -> None:
        """Store a foreign record where the directory of *scope* is, or would be.

        Raises:
            UnsupportedError: The store has no directories.
        """
        del scope
        raise UnsupportedError(f"no directory of a {kind.value}: the store has none")

    def plant(self, kind: Kind, scope: str) -> None:
        """Replace the counter of the versions of *scope*, so that it cannot be raised.

        Raises:
            UnsupportedError: There is no such counter, or it cannot be replaced.
        """
        del scope
        raise UnsupportedError(f"no count of a {kind.value} that could be replaced")

    @abstractmethod
    def close(self) -> None:
        """End the connection."""

    def __enter__(self) -> Self:
        """Return this."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


_NEWER = b"\x02"
_AWAY = b"\x93 not of kip30"
_CUTS = (1, OVERHEAD_BYTES // 2, OVERHEAD_BYTES - 1)
_FORMAT_AT, _SIZE_AT = 0, 9
_NAME = b"\x01" + bytes(8) + b"\x00\x04" + b"\xff\xfe\xfd\xfc"
"""A record whose name is not UTF-8."""


class PathNeighbour(Neighbour):
    """Of a store that keeps bytes under a path, in the envelope of kip30's.

    A `kip30.driver.kit.byte_store.ByteStore` is such a store: its keys are these paths.
    """

    stray_names = ("=ZZ", "%2F..", "=41", "a..b")

    def __init__(self, root: str) -> None:
        """Write below *root*, which is ``plugin.namespace``."""
        self.paths = Paths(root)

    @override
    def sound(self, spot: Spot, data: bytes) -> bytes:
        return seal(new_nonce(), data)

    @override
    def foreign(self, data: bytes) -> bytes:
        return data

    @override
    def unreadable_forms(self, sound: bytes) -> Mapping[str, bytes]:
        filling = (self.huge_bytes // len(_AWAY)) * _AWAY
        return {
            "foreign bytes": _AWAY,
            "no bytes": b"",
            "huge foreign bytes": filling,
            "a newer format": _NEWER + sound[1:],
            **{f"cut to {size} bytes": sound[:size] for size in _CUTS},
            "a bit of the format": _flipped(sound, _FORMAT_AT, 0x80),
            "a bit of the name's size": _flipped(sound, _SIZE_AT, 0x80),
        }

    @override
    def damaged_forms(self, sound: bytes) -> Mapping[str, bytes]:
        flipped = {
            f"bit {bit} of byte {at}": _flipped(sound, at, 1 << bit)
            for at in range(len(sound))
            for bit in (0, 3, 7)
        }
        return {**flipped, "a name that is not UTF-8": _NAME + sound[OVERHEAD_BYTES:]}

    def path(self, spot: Spot) -> str:
        """Return the path of *spot*."""
        segment = spot.name if spot.is_raw else escape(spot.name)
        match spot.kind:
            case Kind.VALUE:
                return f"{self.paths.namespace(spot.scope)}/{segment}"
            case Kind.MEMBER:
                return f"{self.paths.group(spot.scope)}/{segment}"
            case _:
                return f"{self.paths.service(spot.scope)}/leader"

    def directory(self, kind: Kind, scope: str) -> str:
        """Return the path of the directory of *scope*."""
        return self.path(Spot(kind, scope, "x")).rpartition("/")[0]

    @override
    def read(self, spot: Spot) -> bytes | None:
        return self.read_path(self.path(spot))

    @override
    def write(self, spot: Spot, stored: bytes) -> None:
        self.write_path(self.path(spot), stored)

    @override
    def remove(self, spot: Spot) -> None:
        self.remove_path(self.path(spot))

    @override
    def write_unowned(self, spot: Spot, stored: bytes) -> None:
        self.write(spot, stored)

    @override
    def write_above(self, kind: Kind, scope: str) -> None:
        self.write_path(self.directory(kind, scope), _AWAY)

    @abstractmethod
    def read_path(self, path: str) -> bytes | None:
        """Return the record at *path*; None if there is none."""

    @abstractmethod
    def write_path(self, path: str, stored: bytes) -> None:
        """Store *stored* at *path*; an existing record keeps its owner, a new one has none."""

    @abstractmethod
    def remove_path(self, path: str) -> None:
        """Remove the record at *path*, if there is one."""


def value(namespace: str, name: str) -> Spot:
    """Return the path of the value ``namespace/name``."""
    return Spot(Kind.VALUE, namespace, name)


def member(group: str, member_id: str) -> Spot:
    """Return the path of a member."""
    return Spot(Kind.MEMBER, group, member_id)


def leader(service: str) -> Spot:
    """Return the path of the leader of *service*."""
    return Spot(Kind.SERVICE, service)


def _flipped(stored: bytes, at: int, mask: int) -> bytes:
    return stored[:at] + bytes([stored[at] ^ mask]) + stored[at + 1 :]

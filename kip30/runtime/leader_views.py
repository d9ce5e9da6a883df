"""Views of a service for readers and listeners: its decoded leader, and changes of leader."""

import logging
import threading
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from typing_extensions import override

from kip30.codecs import Codec
from kip30.driver.records import Entry, Snapshot
from kip30.errors import CodecError, StoreError

T = TypeVar("T")

log: logging.Logger = logging.getLogger(__name__)


class Leader(Generic[T]):
    """The leader of a service: the candidate's id, its data, and the epoch of its term.

    Immutable; equal to another one with the same id, data and epoch.
    """

    __slots__ = ("_data", "_epoch", "_id")
    __match_args__ = ("id", "data", "epoch")

    def __init__(self, id: str, data: T | CodecError, epoch: int) -> None:  # noqa: A002  its name
        """Describe the leader *id*; *data* is an error if it cannot be decoded."""
        self._id = id
        self._data = data
        self._epoch = epoch

    @property
    def id(self) -> str:
        """The candidate's id."""
        return self._id

    @property
    def epoch(self) -> int:
        """The epoch of its term."""
        return self._epoch

    @property
    def data(self) -> T:
        """The data with which the candidate was nominated.

        Raises:
            CodecError: The codec in use cannot decode it. The candidate leads nevertheless.
        """
        if isinstance(self._data, CodecError):
            # Each `raise` would extend the traceback that the error already has.
            raise self._data.with_traceback(None)
        return self._data

    @override
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Leader):
            return NotImplemented
        return self._fields() == cast("Leader[T]", other)._fields()

    @override
    def __hash__(self) -> int:
        return hash((self._id, self._epoch))

    @override
    def __repr__(self) -> str:
        data = "undecodable" if isinstance(self._data, CodecError) else repr(self._data)
        return f"Leader(id={self._id!r}, data={data}, epoch={self._epoch})"

    def _fields(self) -> tuple[str, T | str, int]:
        data = repr(self._data) if isinstance(self._data, CodecError) else self._data
        return self._id, data, self._epoch


@dataclass(frozen=True, slots=True)
class LeaderChange(Generic[T]):
    """A change of the leader of a service; None when no candidate leads."""

    service: str
    leader: Leader[T] | None


_Term = tuple[int, str]


class LeaderViews(Generic[T]):
    """Decodes the states of one service for one handle. Thread-safe."""

    def __init__(self, service: str, codec: Codec[T]) -> None:
        """Decode with *codec*."""
        self.service = service
        self._codec = codec
        # The term whose data was last found undecodable, and logged. Written under the lock.
        self._warned: _Term | None = None
        self._lock = threading.Lock()

    def leader(self, snapshot: Snapshot) -> Leader[T] | None:
        """Return the leader in *snapshot*, or None.

        Raises:
            StoreError: This kip30 cannot read the record.
        """
        for reason in snapshot.unreadable.values():
            raise StoreError(f"the leader of {self.service!r} cannot be read: {reason}")
        return self._decoded(snapshot)

    def change(
        self, old: Snapshot | None, new: Snapshot, names: frozenset[str] | None
    ) -> LeaderChange[T] | None:
        """Return the event of the step from *old* to *new*; None if both have the same leader."""
        del names  # a service has one entry at most
        if old is not None and _term(old) == _term(new):
            return None
        return LeaderChange(self.service, self._decoded(new))

    def _decoded(self, snapshot: Snapshot) -> Leader[T] | None:
        for candidate, entry in snapshot.entries.items():
            return Leader(candidate, self._data(candidate, entry), entry.version.major)
        return None

    def _data(self, candidate: str, entry: Entry) -> T | CodecError:
        try:
            return self._codec.decode(entry.data)
        except Exception as error:  # noqa: BLE001  a user's codec may raise anything
            self._warn(candidate, entry, error)
            return error if isinstance(error, CodecError) else _wrapped(error)

    def _warn(self, candidate: str, entry: Entry, error: Exception) -> None:
        term = (entry.version.major, entry.nonce)
        with self._lock:
            known, self._warned = self._warned, term
        if known != term:
            log.warning(
                "leader %r of %r has data that codec %r cannot decode: %s",
                *(candidate, self.service, self._codec.name, error),
            )


def _wrapped(error: Exception) -> CodecError:
    wrapped = CodecError(f"the codec failed: {error!r}")
    wrapped.__cause__ = error
    return wrapped


def _term(snapshot: Snapshot) -> _Term | None:
    """Return what identifies a term, even if the store came back empty and counts from 1."""
    entries = snapshot.entries.values()
    return next(((entry.version.major, entry.nonce) for entry in entries), None)

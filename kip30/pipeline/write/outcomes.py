"""The input and output of a bulk writer: one outcome for each record."""

from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

from kip30.driver.records import Condition, Version

_MARK = bytes.fromhex("6b69702d")
_HASH_BYTES = 4
"""Two states of a key are distinguished by this and by their data."""


class WriteOutcome(Enum):
    """The outcome of one record.

    Of every number of records that were given, written, same, conflict, rejected, fenced and
    unknown are the exact sum.

    Attributes:
        WRITTEN: This run wrote it: just now, or in an attempt before that was interrupted.
        SAME: Nothing was to be done: the target had it already, written by others; the key to be
            deleted was not there; or a later change of the key in the same call counts.
        CONFLICT: The target has something else there. Nothing was written.
        REJECTED: The target cannot have it: the key is not valid, or the data is too large.
        FENCED: Another process drives the run by now. Nothing was written.
        UNKNOWN: The target did not answer: it was written or not. The run is incomplete; when it
            is resumed, the same record is decided again.
    """

    WRITTEN = "written"
    SAME = "same"
    CONFLICT = "conflict"
    REJECTED = "rejected"
    FENCED = "fenced"
    UNKNOWN = "unknown"


class OnConflict(Enum):
    """Handling of a key that has another value at the target."""

    KEEP = "keep"
    """It stays, and is reported."""
    REPLACE = "replace"
    """It is overwritten, even if another program wrote it."""
    FAIL = "fail"
    """It stays, and the job stops there. What was written before stays, too."""


class NewRecord(NamedTuple):
    """A record to be created.

    Attributes:
        key: As its user writes it, ``namespace/name``.
        data: Without kip30's envelope.
        source: The text of the version that it has at the source, or anything else that tells two
            states of the key apart. A repetition must have the same one.
    """

    key: str
    data: bytes
    source: str

    @property
    def expected(self) -> Condition:
        """The condition on the key at the target: it is absent."""
        return Condition.ABSENT


class Replacement(NamedTuple):
    """A record to be replaced or deleted.

    Attributes:
        key: As its user writes it, ``namespace/name``.
        data: Without kip30's envelope; None deletes the key.
        source: As that of a `NewRecord`.
        expected: The condition on the key: a version; or `Condition.ANY`, which allows absence.
    """

    key: str
    data: bytes | None
    source: str
    expected: Version | Condition


Given = NewRecord | Replacement
"""The input of a bulk writer."""


class Applied(NamedTuple):
    """The outcome of one record, and why.

    Attributes:
        key: As it was given.
        outcome: See `WriteOutcome`.
        version: The one that the target has, if it is known and the key is there.
        detail: Why, in words; empty for a record that was written.
    """

    key: str
    outcome: WriteOutcome
    version: Version | None
    detail: str


class Nonces:
    """The nonces of one run: the same for the same record, however often it is tried.

    All begin with the same four bytes, by which later runs know what jobs of the pipeline wrote.
    """

    def __init__(self, run: str) -> None:
        """Derive nonces from *run* and from what distinguishes its records."""
        self._run = blake2b(_encoded(f"{len(run)}:{run}"), digest_size=_HASH_BYTES)

    def of(self, key: str, source: str) -> str:
        """Return the nonce of *key* as of its source's version *source*: 16 hexadecimal digits."""
        nonce = self._run.copy()
        nonce.update(_encoded(f"{len(key)}:{key}{len(source)}:{source}"))
        return _MARK.hex() + nonce.hexdigest()


def is_of_pipeline(nonce: str) -> bool:
    """Return whether a job of the pipeline wrote what has *nonce*, and not a program.

    Programs draw theirs at random, so one of four thousand million is mistaken.
    """
    return nonce.startswith(_MARK.hex())


def _encoded(text: str) -> bytes:
    """Return *text* in bytes; parts that begin with their lengths cannot be taken for others."""
    return text.encode("utf-8", "surrogatepass")

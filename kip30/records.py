"""What travels between the portable classes and the drivers: records and how they are named."""

import os
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from typing_extensions import override

from kip30.errors import UsageError
from kip30.lease import Lease
from kip30.names import Key


class Version(NamedTuple):
    """A version token: opaque, never reused for a key, also after delete and re-create.

    Of two versions of *one* key the greater one was written later; nothing is promised
    between keys.
    """

    major: int
    minor: int = 0

    @override
    def __str__(self) -> str:
        """Return the form that `parse_version` reads."""
        return f"{self.major}.{self.minor}" if self.minor else str(self.major)


def parse_version(text: str) -> Version:
    """Return the version whose text is *text*.

    Raises:
        UsageError: *text* is not the text of a version.
    """
    major, _, minor = text.partition(".")
    if not (major.isdecimal() and (minor or "0").isdecimal()):
        raise UsageError(f"{text!r} is not a version: it looks like 12 or 12.3")
    return Version(int(major), int(minor or 0))


class Entry(NamedTuple):
    """A stored record: a value, a member or a leader.

    For a leader the version's major part is the epoch; for a member the version is its
    incarnation, which stays while its data is replaced. A new nonce tells of new data.
    """

    version: Version
    nonce: str
    data: bytes


def new_nonce() -> str:
    """Return what tells one write from all others."""
    return os.urandom(8).hex()


class Condition(Enum):
    """What must hold for a write to happen, besides an expected `Version`."""

    ABSENT = "absent"
    PRESENT = "present"
    ANY = "any"


class Fence(NamedTuple):
    """A write is refused unless *epoch* is still the newest one of *service*."""

    service: str
    epoch: int


class Write(NamedTuple):
    """One conditional write. *data* None deletes the key."""

    key: Key
    nonce: str
    data: bytes | None
    condition: Condition | Version
    fence: Fence | None = None


class Kind(Enum):
    """What can be observed."""

    VALUE = "value"
    NAMESPACE = "namespace"
    GROUP = "group"
    SERVICE = "service"


class Target(NamedTuple):
    """A thing to observe: *scope* is the namespace, group or service; *name* that of a value."""

    kind: Kind
    scope: str
    name: str = ""


class Snapshot(NamedTuple):
    """The state of a target: its entries by name, id or candidate.

    A value or a service has at most one entry. A namespace's entries may leave ``data`` and
    ``nonce`` empty.
    """

    order: int
    entries: Mapping[str, Entry]


class Claim(NamedTuple):
    """A membership or leadership the store granted, and the lease it ends with.

    *handle* is the driver's own; *order* is that of the grant.
    """

    name: str
    entry: Entry
    lease: Lease
    order: int
    handle: Any = None


class Held(NamedTuple):
    """A leadership that was not to be had.

    *retry_after_seconds* is set when the store will not wake anyone at the moment the
    leadership becomes free (a lock-delay); otherwise observers see it.
    """

    by: Snapshot
    retry_after_seconds: float | None = None

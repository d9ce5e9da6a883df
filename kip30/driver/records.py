"""Records that travel between the portable classes and the drivers, and how they are named."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from typing_extensions import override

from kip30.driver.lease import Lease
from kip30.errors import UsageError
from kip30.names import Key, check_id, parse_key

_WHOLE_NUMBERS = range(-(2**63), 2**63)
"""Values of an epoch or a part of a version: every store counts in 64 bits, with a sign."""

_VERSION_TEXT = re.compile(r"([0-9]{1,19})(?:\.([0-9]{1,19}))?")


class Version(NamedTuple):
    """A version token: opaque, never reused for a key, also after delete and re-create.

    Of two versions of *one* key the greater one was written later; nothing is promised
    between keys. Of two members of one group the one with the greater version joined later.
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
    given = cast("object", text)
    parts = _VERSION_TEXT.fullmatch(given) if isinstance(given, str) else None
    if parts is None:
        raise UsageError(f"{text!r:.60} is not a version: give one or two numbers, as 12 or 12.3")
    return check_version(Version(int(parts[1]), int(parts[2] or 0)))


def check_version(expected: object, what: str = "expected") -> Version:
    """Return *expected* if a store can compare it with the version of a key. *what* names it.

    A version that no store has ever issued, such as ``Version(-1)``, passes: it is the store
    that reports the conflict, because only the store knows whether the key is there.

    Raises:
        UsageError: It is not a `Version`, or its parts are not whole numbers of 64 bits.
    """
    if not isinstance(expected, Version):
        raise UsageError(f"{what} must be a Version, not {type(expected).__name__}")
    if not (_is_whole_number(expected.major) and _is_whole_number(expected.minor)):
        raise UsageError(
            f"{what} has the parts {tuple(expected)!r:.60}: both must be whole numbers of 64 bits"
        )
    return expected


def _is_whole_number(part: object) -> bool:
    return isinstance(part, int) and not isinstance(part, bool) and part in _WHOLE_NUMBERS


class Entry(NamedTuple):
    """A stored record: a value, a member or a leader.

    For a leader the version's major part is the epoch; for a member the version is its
    incarnation, which stays while its data is replaced, and grows in the order of the joins of its
    group (`MembershipDriver.claim`). A new nonce means new data.
    """

    version: Version
    nonce: str
    data: bytes


def new_nonce() -> str:
    """Return a nonce, which tells one write from all others."""
    return os.urandom(8).hex()


class Condition(Enum):
    """Condition for a write, besides an expected `Version`."""

    ABSENT = "absent"
    PRESENT = "present"
    ANY = "any"


class Fence(NamedTuple):
    """Refuses a write unless *epoch* is still the newest one of *service*."""

    service: str
    epoch: int


_LACKING = object()


def check_fence(fence: object) -> Fence:
    """Return the service and epoch of *fence*, which is a `Fence` or has the same attributes.

    An epoch that was never issued, such as 0, passes: the store refuses it as outdated.

    Raises:
        UsageError: It has no service and epoch, or the epoch is not a whole number of 64 bits.
        InvalidNameError: Its service is not a valid name.
    """
    service: object = getattr(fence, "service", _LACKING)
    epoch: object = getattr(fence, "epoch", _LACKING)
    if service is _LACKING or epoch is _LACKING:
        raise UsageError(
            f"fence must be a Leadership or a Fence, not {type(fence).__name__}:"
            " use kip30.Fence(service, epoch)"
        )
    if not _is_whole_number(epoch):
        raise UsageError(f"fence has the epoch {epoch!r:.60}: not a whole number of 64 bits")
    return Fence(check_id(cast("str", service), "service"), cast("int", epoch))


MOST_GUARDS = 4
"""Maximum number of guards of a write, on every store."""


class Guard(NamedTuple):
    """Refuses a write unless *key*, of its namespace, is there and still has *version*."""

    key: Key
    version: Version


def check_guards(guards: object, written: Iterable[Key]) -> tuple[Guard, ...]:
    """Return the guards that *guards*, which maps keys to versions, puts on writes of *written*.

    A version that was never issued, such as ``Version(-1)``, passes: the store refuses it.

    Raises:
        UsageError: *guards* is no mapping or has more than `MOST_GUARDS` keys, a value of it is not
            a version, or a key of it is of another namespace than a written key, or is one itself.
        InvalidNameError: A key of it is not valid.
    """
    if not isinstance(guards, Mapping):
        raise UsageError(f"guards must map keys to versions, not {type(guards).__name__}")
    given = cast("Mapping[str, object]", guards)
    if len(given) > MOST_GUARDS:
        raise UsageError(f"a write takes up to {MOST_GUARDS} guards, not {len(given)}")
    checked = [
        Guard(parse_key(key), check_version(version, "the version of a guard"))
        for key, version in given.items()
    ]
    for key in written:
        for guard, _ in checked:
            if guard == key or guard.namespace != key.namespace:
                raise _misplaced(guard, key)
    return tuple(checked)


def _misplaced(guard: Key, written: Key) -> UsageError:
    if guard == written:
        return UsageError(f"{str(written)!r} cannot guard a write of itself: use compare_and_set")
    return UsageError(
        f"{str(guard)!r} cannot guard a write of {str(written)!r}: it must be in the same namespace"
    )


class Write(NamedTuple):
    """One conditional write. *data* None deletes the key.

    The store decides in the order *fence*, *guards*, *condition*. The keys of its guards are other
    keys of the same namespace, each once, `MOST_GUARDS` at most.
    """

    key: Key
    nonce: str
    data: bytes | None
    condition: Condition | Version
    fence: Fence | None = None
    guards: tuple[Guard, ...] = ()


class Kind(Enum):
    """Kind of a target that can be observed."""

    VALUE = "value"
    NAMESPACE = "namespace"
    GROUP = "group"
    MEMBER = "member"
    SERVICE = "service"


class Target(NamedTuple):
    """A thing to observe: *scope* is the namespace, group or service.

    *name* is that of a value, or the id of a member; empty for the other kinds.
    """

    kind: Kind
    scope: str
    name: str = ""


class Delta(NamedTuple):
    """The entries in which a state may differ from earlier ones: only those of *names*.

    That holds for every state of the same target whose order is at least *since*.
    """

    since: int
    names: frozenset[str]


_NONE_UNREADABLE: Mapping[str, str] = MappingProxyType({})


class Snapshot(NamedTuple):
    """The state of a target: its entries by name, id or candidate.

    A value, a member or a service has at most one entry. A namespace's entries need only names:
    version, nonce and data may be anything.

    *unreadable* maps each name whose record is not one that this kip30 reads to the reason, in
    words: a record of another program, of a newer kip30, or a damaged one. Those are no entries.
    The reason stays the same while the record does, because it is logged once.

    *delta* is set by a store that hands over only changes; None if they are not known. Without it,
    a comparison of two states goes through all entries.
    """

    order: int
    entries: Mapping[str, Entry]
    unreadable: Mapping[str, str] = _NONE_UNREADABLE
    delta: Delta | None = None


class NamePage(NamedTuple):
    """Some names of a namespace, in order; *is_last* if none was there after them."""

    names: Sequence[str]
    is_last: bool


class Claim(NamedTuple):
    """A membership or leadership the store granted, and the lease it ends with.

    *handle* is the driver's own; *order* is that of the grant.
    """

    name: str
    entry: Entry
    lease: Lease
    order: int
    handle: Any = None


class HeldByOther(NamedTuple):
    """A leadership that was not granted.

    *retry_after_seconds* is set when the store will notify no client at the moment the
    leadership becomes free (a lock-delay); otherwise observers see it.
    """

    by: Snapshot
    retry_after_seconds: float | None = None


class Pruned(NamedTuple):
    """Result of one call of `Backend.prune`.

    Attributes:
        counts: How many services, groups and namespaces were removed, by kind; in a dry run how
            many would have been. A kind that is not there counts 0.
        after: To pass to the next call, which continues after what this one read; empty if nothing
            is left to look at. It has a meaning only to the store.
    """

    counts: Mapping[Kind, int]
    after: str = ""

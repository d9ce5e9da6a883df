"""Every error kip30 raises, in one closed hierarchy.

Each class belongs to exactly one of four kinds, and its kind says whether the
effect happened:

* `UsageError`: the call itself is wrong. Nothing was sent to the store.
* `UnsupportedError`: the store does not offer this. Nothing was sent.
* `DefiniteError`: the store, or the state of the client, refused it. Nothing was done.
* `OutcomeUnknownError`: the answer was lost. It may have been done.

A vendor's exception never escapes; it stays reachable as `__cause__`.
"""

from collections.abc import Mapping

from typing_extensions import override


class Kip30Error(Exception):
    """Root of all errors raised by kip30. Never raised itself."""


class UsageError(Kip30Error):
    """The call is wrong and will stay wrong. Nothing was done."""


class InvalidNameError(UsageError, ValueError):
    """A key, group, service or id cannot be used as a name."""


class ValueTooLargeError(UsageError, ValueError):
    """A value is longer than the store's limit, in bytes."""


class CodecError(UsageError, ValueError):
    """A value cannot be encoded, or stored bytes cannot be decoded, by the codec in use."""


class ConfigError(UsageError, ValueError):
    """A setting is missing, unknown, of the wrong type, or contradicts another."""


class LifecycleError(UsageError, RuntimeError):
    """The object is not started, is started already, or belongs to a parent process."""


class UnsupportedError(Kip30Error, NotImplementedError):
    """The store does not declare the capability this needs. Nothing was done."""


class DefiniteError(Kip30Error):
    """The operation was refused or could not be carried out. Nothing was done."""


class KeyExistsError(DefiniteError):
    """The key to be created exists already, written by another call."""


class KeyMissingError(DefiniteError, LookupError):
    """The key to be updated or deleted does not exist."""


class VersionConflictError(DefiniteError):
    """The stored version is not the expected one."""


class FencedError(DefiniteError):
    """The fence is not the newest epoch of its service: another candidate may lead now."""


class GuardError(DefiniteError):
    """A key that guards the write is gone, or no longer has the version that the write expects."""


class IllegalGenerationError(FencedError):
    """The member is no longer in this generation, or has lost its share. Nothing was done.

    It was removed from its group, or a later generation gave the share away.
    """


class FencedInstanceError(FencedError):
    """Another process has taken this member's group instance id: the member has ended for good."""


class GroupError(DefiniteError):
    """The group refuses the member, or cannot publish an assignment. Nothing was done."""


class GroupNotEmptyError(DefiniteError):
    """The group has members, so its records stay."""


class MemberExistsError(DefiniteError):
    """A live member holds this id."""


class NotMemberError(DefiniteError):
    """This client does not hold the membership: it never joined, has left, or lost it."""


class BannedError(DefiniteError):
    """An operator has banned the id from the group. It has not joined."""


class NotNominatedError(DefiniteError):
    """This client did not nominate the candidate, or has resigned it."""


class AlreadyNominatedError(DefiniteError):
    """The candidate is nominated on this handle already, with other data or callbacks."""


class NotElectedError(DefiniteError, TimeoutError):
    """The candidate was not elected in the time given; it is no longer nominated."""


class DirectiveRefusedError(DefiniteError):
    """A directive cannot be obeyed as things are. It was not written."""


class DirectiveNotObeyedError(DefiniteError):
    """A directive was not obeyed in time. It is withdrawn."""


class LeadershipLostError(DefiniteError):
    """The leadership has ended; its holder must no longer act as leader."""


class NotAcquiredError(DefiniteError, TimeoutError):
    """A lock or permit was not acquired, or a barrier did not open, in time. The wait has ended."""


class GripLostError(DefiniteError):
    """The lock or permits were released or lost; the holder must no longer act on them."""


class AuthenticationError(DefiniteError):
    """The store rejects the credentials, or they do not allow the operation."""


class StoreError(DefiniteError):
    """The store cannot be used as it is: foreign, damaged, too new, not writable, full."""


class PositionLostError(DefiniteError):
    """The store has forgotten the position of a scan, or the position is of another store."""


class UnavailableError(DefiniteError, ConnectionError):
    """The store did not accept the operation within the operation timeout."""


class ClosedError(DefiniteError):
    """The object was closed before or while the operation waited to be sent."""


class OutcomeUnknownError(Kip30Error, TimeoutError):
    """The answer was lost, or another client overwrote the record before it could be read.

    The effect may have happened, or may still happen. Read before trying again.
    """


class PartialWriteError(OutcomeUnknownError):
    """A write of many keys in which some were not acknowledged.

    Attributes:
        done: The new version (as text) of each key that was written.
        failed: The error of each other key; its kind says whether that key was written.
    """

    def __init__(self, done: Mapping[str, str], failed: Mapping[str, Kip30Error]) -> None:
        """Keep both parts of the outcome."""
        super().__init__(done, failed)
        self.done = done
        self.failed = failed

    @override
    def __str__(self) -> str:
        first = next(iter(self.failed.items()), None)
        shown = f"; first: {first[0]!r}: {first[1]}" if first else ""
        return f"{len(self.failed)} of {len(self.failed) + len(self.done)} keys not written{shown}"

"""Kafka's KIP-30 for Python: four small interfaces over the store you choose.

Group membership, leader election, key-value storage and change listeners, with
the same promises on every store. Start with `PluginLocator`.
"""

from kip30._version import __version__
from kip30.codecs import BYTES, JSON, STR, Codec
from kip30.driver.records import Fence, Version, parse_version
from kip30.election import Leader, LeaderChange, LeaderElection
from kip30.errors import (
    AlreadyNominatedError,
    AuthenticationError,
    BannedError,
    ClosedError,
    CodecError,
    ConfigError,
    DefiniteError,
    DirectiveNotObeyedError,
    DirectiveRefusedError,
    FencedError,
    FencedInstanceError,
    GripLostError,
    GroupError,
    GroupNotEmptyError,
    GuardError,
    IllegalGenerationError,
    InvalidNameError,
    KeyExistsError,
    KeyMissingError,
    Kip30Error,
    LeadershipLostError,
    LifecycleError,
    MemberExistsError,
    NotAcquiredError,
    NotElectedError,
    NotMemberError,
    NotNominatedError,
    OutcomeUnknownError,
    PartialWriteError,
    PositionLostError,
    StoreError,
    UnavailableError,
    UnsupportedError,
    UsageError,
    ValueTooLargeError,
    VersionConflictError,
)
from kip30.listeners import KeySetChange, ListenerRegistry, ValueChange
from kip30.locator import PluginLocator
from kip30.membership import GroupMembership, Members, MembershipChange
from kip30.runtime.candidacy import Leadership
from kip30.runtime.lease_tracker import SessionLost
from kip30.runtime.member_lifecycle import Member
from kip30.signals import close_on_signals
from kip30.storage import Storage, Versioned

__all__ = [
    "BYTES",
    "JSON",
    "STR",
    "AlreadyNominatedError",
    "AuthenticationError",
    "BannedError",
    "ClosedError",
    "Codec",
    "CodecError",
    "ConfigError",
    "DefiniteError",
    "DirectiveNotObeyedError",
    "DirectiveRefusedError",
    "Fence",
    "FencedError",
    "FencedInstanceError",
    "GripLostError",
    "GroupError",
    "GroupMembership",
    "GroupNotEmptyError",
    "GuardError",
    "IllegalGenerationError",
    "InvalidNameError",
    "KeyExistsError",
    "KeyMissingError",
    "KeySetChange",
    "Kip30Error",
    "Leader",
    "LeaderChange",
    "LeaderElection",
    "Leadership",
    "LeadershipLostError",
    "LifecycleError",
    "ListenerRegistry",
    "Member",
    "MemberExistsError",
    "Members",
    "MembershipChange",
    "NotAcquiredError",
    "NotElectedError",
    "NotMemberError",
    "NotNominatedError",
    "OutcomeUnknownError",
    "PartialWriteError",
    "PluginLocator",
    "PositionLostError",
    "SessionLost",
    "Storage",
    "StoreError",
    "UnavailableError",
    "UnsupportedError",
    "UsageError",
    "ValueChange",
    "ValueTooLargeError",
    "Version",
    "VersionConflictError",
    "Versioned",
    "__version__",
    "close_on_signals",
    "parse_version",
]

"""The driver contract: all that a store must be able to do.

A backend answers *one-shot* requests with futures and never loops on a caller's behalf, with two
exceptions: it renews its leases, and it keeps its watches alive. Validation, encoding, deadlines,
campaigning, re-joining, settlement of lost answers and delivery to listeners are done above, once
for all stores.

Rules for every method:

* It is thread-safe, and returns within microseconds or by the operation timeout.
* Its future ends by the operation timeout after the call, with a result or one of kip30's errors: a
  `DefiniteError` only if nothing was done and nothing will be done, `OutcomeUnknownError`
  whenever that is not certain.
* The future may be lazy: its request may leave only when a caller waits for it, polls `done`, or
  adds a callback. A request that no caller wants may never be sent. One that a caller wants only
  after the operation timeout ends at once, and may not have been sent.
* A caller may cancel the future at any time. A request in flight then may be done or not.
* A write is sent once. A blind retry conflicts with its own first success.
* Reads are linearizable: they see every write acknowledged before they began.
* No user code runs on a backend's threads; sinks and lease callbacks are the library's own.
* ``order`` grows over all answers of one backend object about one target: a later read of the store
  never has the smaller one. It need not mean anything to the store or to others.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from kip30.driver.clock import Clock
from kip30.driver.lease import Lease
from kip30.driver.records import (
    Claim,
    Entry,
    HeldByOther,
    NamePage,
    Pruned,
    Snapshot,
    Target,
    Version,
    Write,
)
from kip30.driver.scanning import ScanDriver, View
from kip30.names import Key


class Capability(Enum):
    """Optional features of a store; use of an undeclared one raises `UnsupportedError`."""

    COMPARE_AND_SET = "compare-and-set"
    FENCING = "fencing"
    GUARDS = "guards"
    LISTING = "listing"
    LEASE_SHARING = "lease-sharing"
    FORKING = "forking"
    SCANNING = "scanning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a store on values, on the delay of its watches, and on descriptors.

    Attributes:
        value_bytes: The largest value that it takes.
        observe_seconds: How late a watch may deliver a change.
        idle_descriptors: How many file descriptors a client may keep for requests to come, beyond
            those it has open when it first leads.
    """

    value_bytes: int = 256 * 1024
    observe_seconds: float = 0.0
    idle_descriptors: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Clock, namespace and timeouts that every backend is opened with, besides its own settings.

    A store that grants no session timeout as short as a configured one refuses it, if it can; a
    default one gives way to the timeout that the store grants. A store may grant a longer one, such
    as the next whole second. ZooKeeper's servers move a timeout into their own limits, in either
    direction; the driver logs that.
    """

    clock: Clock
    namespace: str
    session_timeout_seconds: float
    operation_timeout_seconds: float
    connect_timeout_seconds: float
    margin_seconds: float
    session_timeout_is_configured: bool = True

    def lease(self, *, sent_at: float, timeout_seconds: float | None = None) -> Lease:
        """Return a lease that the store granted to a request sent at *sent_at*."""
        asked = self.session_timeout_seconds
        given = asked if timeout_seconds is None else timeout_seconds
        margin = self.margin_seconds * min(1.0, given / asked)
        return Lease(self.clock, sent_at=sent_at, timeout_seconds=given, margin_seconds=margin)


class MembershipDriver(ABC):
    """Ids in groups, each tied to a lease.

    Attributes:
        removal_ends_lease: Whether the lease of a claim ends when another client removes its
            record. If not, the core watches the record.
    """

    removal_ends_lease: ClassVar[bool] = False

    @abstractmethod
    def claim(self, group: str, member_id: str, nonce: str, data: bytes) -> Future[Claim]:
        """Take *member_id*. A retry with the same nonce returns the claim of the first request.

        That holds while the session lasts that it was granted to. A record of a former session,
        which the store has not ended yet, is not answered: it would end with that, while its holder
        believes in the lease of the present one.

        The versions of claims grow in the order in which they are granted, over all ids of one
        group and all clients, including other processes and removed claims: once a claim was
        answered or seen, no claim with a smaller version is granted. So a counter for each id does
        not suffice: the revision of the store at which the record was created does. `replace` keeps
        the version.

        Raises: `MemberExistsError` while a live claim with another nonce holds the id, even if
        this process made it.
        """

    @abstractmethod
    def replace(self, group: str, claim: Claim, nonce: str, data: bytes) -> Future[Claim]:
        """Give a claim a new record in place of ``claim.entry``, the one that it has by its nonce.

        A request may arrive late, on its way to the store or in this process, after later ones of
        the same claim were answered. So the store compares, in the same step, what it overwrites;
        the nonces tell one record from another.

        Raises:
            NotMemberError: The claim is gone.
            OtherRecordError: It has another record (`refusals.other_record`): an earlier request
                whose answer was lost has arrived after all, or this one is late. The caller
                reads the record, and calls again if its request is still the newest.
        """

    @abstractmethod
    def release(self, group: str, claim: Claim) -> Future[None]:
        """Give the id up if the claim still holds it. If it does not, that is no error.

        The version of the claim decides, and not its nonce: the record may be a later one of the
        same claim, from a `replace` whose answer was lost. It is removed as well, because the core
        knows no other claim to release it by.
        """

    def release_many(self, group: str, claims: Sequence[Claim]) -> list[Future[None]]:
        """Release each of *claims* on its own, in as few round trips as the store allows."""
        return [self.release(group, claim) for claim in claims]


class ElectionDriver(ABC):
    """Services, each led by at most one live claim. Epochs never repeat or go back.

    Attributes:
        forms_line: Whether waiting candidates join a group, of which only the first few watch the
            service. It saves notifications and refused claims, and costs a member each. It is for
            stores that notify; where watches poll, not all poll at the same moment anyway.
    """

    forms_line: ClassVar[bool] = True

    @abstractmethod
    def claim(
        self, service: str, candidate: str, nonce: str, data: bytes
    ) -> Future[Claim | HeldByOther]:
        """Try once to take *service*; a new claim gets a new, greater epoch.

        A retry with the same nonce returns the claim of the first request.
        """

    @abstractmethod
    def release(self, service: str, claim: Claim) -> Future[None]:
        """Give the service up if the claim still holds it. If it does not, that is no error.

        The version of the claim decides, which is the epoch.
        """


class StorageDriver(ABC):
    """Records by key."""

    @abstractmethod
    def read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        """Read all *keys*, in their order."""

    @abstractmethod
    def write(self, write: Write) -> Future[Version]:
        """Write one record and return its version; for a deletion, its last version or a later one.

        Deleting what is not there is refused under every condition.

        The store decides on fence, guards and condition in the same operation in which it writes.

        Raises: `FencedError`; if the fence holds, `GuardError`; if the guards hold too,
        `KeyExistsError`, `KeyMissingError`, `VersionConflictError` by condition
        (`KeyMissingError` also for an expected version).
        """

    @abstractmethod
    def write_many(self, writes: Sequence[Write]) -> list[Future[Version]]:
        """Write each of *writes* on its own, in as few round trips as the store allows.

        A key may be written and guard another of the *writes*: those two are decided apart, either
        of them first.
        """

    @abstractmethod
    def list_names(self, namespace: str, after: str, limit: int) -> Future[NamePage]:
        """Return names of *namespace* greater than *after*, in the order of their UTF-8 bytes.

        At least *limit* of them, unless there are fewer; a page without names is the last. A store
        that reads a namespace as a whole answers with all names at once: reading it again for each
        page would cost the square.
        """


class Watch(ABC):
    """A running observation."""

    @abstractmethod
    def close(self) -> None:
        """End it; the sink is no longer called after this returns, unless the sink calls this."""


class ObserveDriver(ABC):
    """Reads and watches of whole targets."""

    @abstractmethod
    def snapshot(self, target: Target) -> Future[Snapshot]:
        """Read *target* once, linearizably."""

    @abstractmethod
    def watch(self, target: Target, sink: Callable[[Snapshot], None]) -> Watch:
        """Hand *sink* the state of *target* now and after every change.

        Never two calls at once, never going back in ``order``; states in between may be left
        out, the last one never is: also over disconnection, compaction, a lost session or a
        lost notification. A store that cannot be reached is retried until `Watch.close`. *sink*
        does not block and does not raise. A state does not change after it was handed over. An
        unreadable record does not keep others from being handed over: see `Snapshot.unreadable`. A
        client has as many watches of kind ``MEMBER`` as members; a change of one may take up to a
        third of the session timeout to be seen, unless this client itself releases the member. Of
        members of other clients it watches few. Their changes, and such a release, are seen as soon
        as changes of other kinds: candidates and locks wait for the end of one, of their own client
        as well.
        """


class Backend(ABC):
    """A connection to one store. Calling the class connects.

    Contradictory settings raise `ConfigError` before any I/O; a store that cannot be reached
    raises `UnavailableError` within the connect timeout and leaves nothing behind.

    Attributes:
        name: What the configuration calls the store.
        settings_class: A dataclass of the store's own settings.
        capabilities: Of the class: what the store may have. Of an instance: what it has with
            its settings.
        releases_claims_on_crash: Whether the claims of a client that dies are free at once and not
            after the session timeout. A command that it ran would overlap the next one, unless
            another process shares the lease.
        limits: What the store accepts, and how soon its observers notice a change.
    """

    name: ClassVar[str]
    settings_class: ClassVar[type[Any]]
    capabilities: frozenset[Capability]
    releases_claims_on_crash: ClassVar[bool] = False
    limits: Limits = Limits()
    is_blocking: ClassVar[bool] = True
    """True if a driver's method may work, or wait for the store, before it returns its future or
    watch. If not, event loops call it themselves; otherwise a thread does it for them."""
    needs_system_threads: ClassVar[bool] = False
    """True if the store's library freezes a process whose threads gevent has replaced: then it is
    not opened there."""
    membership: MembershipDriver
    election: ElectionDriver
    storage: StorageDriver
    observe: ObserveDriver

    @abstractmethod
    def __init__(self, context: Context, settings: Any) -> None:
        """Connect. *settings* is an instance of `settings_class`."""

    @classmethod
    def ddl(cls, settings: Any) -> Sequence[str]:
        """Return the statements that prepare the store for *settings*, for an administrator.

        Returns an empty sequence where there is nothing to prepare. No I/O.
        """
        del settings
        return ()

    @classmethod
    def servers(cls, settings: Any) -> Sequence[tuple[str, Any]]:
        """Return for each server in *settings* its address, and settings that reach it alone.

        `kip30 doctor --each-server` opens the store with each of them. A client with such settings
        may learn of other servers, but sends them no requests. No I/O.

        The default is the whole store, for one without servers, or with servers that a client
        cannot choose.
        """
        return [(cls.name, settings)]

    @classmethod
    def scanner(cls, context: Context, settings: Any, view: View) -> ScanDriver:
        """Open the store for reading *view* in bulk, claiming nothing. See `kip30.driver.scanning`.

        Called only of a class that declares `Capability.SCANNING`.

        Raises:
            UnsupportedError: The store does not offer this view. Nothing was opened.
            UnavailableError: The store was not reached within the connect timeout.
        """
        raise NotImplementedError

    @abstractmethod
    def describe(self) -> Mapping[str, str]:
        """Ask the store for its ``version``, and all else that helps an operator. For `doctor`.

        Where the store tells them, ``role`` is that of the server in use, such as ``leader`` or
        ``follower``, and ``clocks`` how far the clocks of servers and this one differ.
        A ``finding``, if there is one, is what the operator has to change: `doctor` fails with it.
        """

    def prune(self, unused_seconds: float, *, dry_run: bool, after: str = "") -> Future[Pruned]:
        """Remove the remains of unused things of this namespace of the configuration.

        Those are services without a leader, groups without members and namespaces without keys
        whose last use is at least *unused_seconds* ago, 0 or more, as far as the store knows it:
        some know when a use began and not when it ended, and some find that out late. Anything
        that has a holder, alive or not yet known to be dead, stays, however old it is.

        * Epochs and versions continue as if nothing had been removed: none repeats or goes back. A
          fence of a service that was removed is refused. Watches continue.
        * A call may be made at any time, by several clients at once, beside claims and writes.
        * It may end at any point, also by a crash, and leaves nothing inconsistent. So its future
          may end with any error; calling it again does the rest.
        * One call does a bounded amount of work, within the operation timeout, and does not keep
          others from the store for long. The rest is left to the next call, which receives the
          `Pruned.after` of this one.
        * A *dry_run* changes nothing.

        The default removes nothing, for a store that leaves no remains, or cannot remove them.
        """
        del unused_seconds, dry_run, after
        nothing: Future[Pruned] = Future()
        nothing.set_result(Pruned({}))
        return nothing

    @abstractmethod
    def close(self) -> None:
        """End all claims at once, every watch, future, thread and connection. Idempotent."""


class LeaseSharing(ABC):
    """The power behind `Capability.LEASE_SHARING`: a second process can keep a lease alive."""

    @abstractmethod
    def share(self, lease: Lease) -> int:
        """Return a file descriptor; while a process holds it open, death does not end *lease*.

        It belongs to the backend: callers pass on a duplicate, and must not close it.

        Raises: `UsageError` if the lease has ended.
        """

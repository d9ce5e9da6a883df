"""Any backend of this process behind a bad network, to show what the core demands of a driver.

Between the core and the drivers requests and answers are lost and late, and notifications are lost,
late and repeated, as the contract allows and far more often than on a real network. The backend
itself, its sessions and its store stay reliable.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Final, TypeVar, cast

from typing_extensions import override

from kip30.driver import (
    Backend,
    Capability,
    Context,
    ElectionDriver,
    MembershipDriver,
    StorageDriver,
    Watch,
)
from kip30.driver.kit.futures import Completed, all_of, each, mapped
from kip30.driver.kit.lifecycle import CloseOnce, on_thread_of
from kip30.driver.kit.watch import Observe, Sink
from kip30.driver.lease import Lease
from kip30.driver.records import (
    Claim,
    Entry,
    HeldByOther,
    NamePage,
    Snapshot,
    Target,
    Version,
    Write,
)
from kip30.errors import OutcomeUnknownError, UnavailableError
from kip30.names import Key
from kip30_conformance.simulation.model_requests import Requests
from kip30_conformance.simulation.network import Network
from kip30_conformance.simulation.present import found, running_thread
from kip30_conformance.simulation.scheduler import Simulation
from kip30_conformance.simulation.simulated_backend import SimulatedBackend
from kip30_conformance.simulation.unreliable_watch import UnreliableWatch

T = TypeVar("T")

_TRAVELLING: Final = frozenset(
    {Capability.COMPARE_AND_SET, Capability.FENCING, Capability.GUARDS, Capability.LISTING}
)
"""The capabilities that requests of the four drivers make use of."""

_offered: Final[dict[str, type[Backend]]] = {}


def unreliable(backend: type[Backend], network: Network) -> type[Backend]:
    """Return a backend whose drivers are those of *backend*, behind *network*.

    Args:
        backend: Keeps its store in this process, and waits by means of the standard library alone.
        network: That of the running simulation. Its conditions may be changed at any moment.

    Returns:
        A backend with the name, the settings and the limits of *backend*. It does not scan, nor
        share leases, nor work in forked processes. Open it on a simulated thread.
    """
    name = f"Unreliable{backend.__name__}"
    own = {
        "inner_class": backend,
        "network": network,
        "name": backend.name,
        "settings_class": backend.settings_class,
        "capabilities": backend.capabilities & _TRAVELLING,
        "releases_claims_on_crash": backend.releases_claims_on_crash,
        "limits": backend.limits,
        "needs_system_threads": backend.needs_system_threads,
    }
    return cast("type[Backend]", type(name, (UnreliableBackend,), own))


@contextmanager
def named(backend: type[Backend]) -> Generator[str]:
    """Yield a value of ``plugin.locator.classname`` that means *backend* in the block."""
    name = f"{backend.__name__}_{len(_offered)}"
    _offered[name] = backend
    try:
        yield f"{__name__}:{name}"
    finally:
        del _offered[name]


def __getattr__(name: str) -> type[Backend]:
    """Return the class that `named` yields as *name*, which the locator looks up here."""
    if name in _offered:
        return _offered[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class UnreliableBackend(SimulatedBackend):
    """A client whose every request crosses a network; `unreliable` makes a class of each backend.

    Attributes:
        inner_class: The backend that serves the requests.
        network: The network that they cross.
    """

    inner_class: ClassVar[type[Backend]]
    network: ClassVar[Network]

    @override
    def __init__(self, context: Context, settings: Any) -> None:
        self._simulation = self.network.simulation
        self._close_once = CloseOnce(on_thread_of("kip30-model"))
        link = self.network.link(running_thread().process)
        self._requests = Requests(link, context.operation_timeout_seconds)
        try:
            self._requests.repeatable(int, context.connect_timeout_seconds).result()
            inner = self._inner = self.inner_class(context, settings)
        except BaseException:
            self._requests.close()
            raise
        self.capabilities = inner.capabilities & _TRAVELLING
        self.limits = inner.limits
        self.faults = getattr(inner, "faults", None)
        sessions = self._sessions = _LeasesOfClaims(self._simulation)
        claims = self._requests.for_claims()
        self.membership = _Membership(inner.membership, claims, sessions)
        self.election = _Election(inner.election, claims, sessions)
        self.storage = _Storage(inner.storage, self._requests.for_values())
        self.observe = Observe(self._snapshot, self._watch)
        self._watches: dict[UnreliableWatch, None] = {}

    @override
    def session(self) -> tuple[int, Lease] | None:
        return self._sessions.newest()

    @override
    def describe(self) -> Mapping[str, str]:
        asked = self._requests.call(lambda: Completed(self._inner.describe()), UnavailableError)
        return asked.result()

    @override
    def close(self) -> None:
        if found() is self._simulation:  # else it is collected after that: nothing is left
            self._close_once.once(self._close)

    def _close(self) -> None:
        self._requests.gate.close()
        for watch in list(self._watches):
            watch.close()
        self._inner.close()
        self._requests.close()

    def _snapshot(self, target: Target) -> Future[Snapshot]:
        requests = self._requests.for_target(target)
        return requests.call(lambda: self._inner.observe.snapshot(target), UnavailableError)

    def _watch(self, target: Target, sink: Sink) -> Watch:
        self._requests.gate.check()
        requests = self._requests.for_target(target)
        watch = UnreliableWatch(target, sink, self._forget, self._inner.observe, requests)
        self._watches[watch] = None
        watch.connect()
        return watch

    def _forget(self, watch: UnreliableWatch) -> None:
        self._watches.pop(watch, None)


class _LeasesOfClaims:
    """The leases of the claims of one client: a lease that was not seen before is a new session."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._sessions: list[tuple[int, Lease]] = []

    def newest(self) -> tuple[int, Lease] | None:
        """Return the number of the newest lease, and that lease, if there is one."""
        return self._sessions[-1] if self._sessions else None

    def noting(self, answer: Future[T]) -> Future[T]:
        """Return *answer*, and note the lease if it is a claim."""
        answer.add_done_callback(self._note)
        return answer

    def _note(self, answer: Future[Any]) -> None:
        claim = None if answer.cancelled() or answer.exception() else answer.result()
        if isinstance(claim, Claim) and not any(claim.lease is one for _, one in self._sessions):
            self._sessions.append((self._simulation.next_number(), claim.lease))


class _Membership(MembershipDriver):
    def __init__(
        self, inner: MembershipDriver, requests: Requests, sessions: _LeasesOfClaims
    ) -> None:
        self._inner, self._requests, self._sessions = inner, requests, sessions
        # Of the class, but here it depends on the backend.
        vars(self)["removal_ends_lease"] = inner.removal_ends_lease

    @override
    def claim(self, group: str, member_id: str, nonce: str, data: bytes) -> Future[Claim]:
        call = partial(self._inner.claim, group, member_id, nonce, data)
        name = f"membership.claim({group!r}, {member_id!r}, {_short(nonce)!r}, {data!r})"
        return self._sessions.noting(self._requests.call(call, OutcomeUnknownError, name))

    @override
    def replace(self, group: str, claim: Claim, nonce: str, data: bytes) -> Future[Claim]:
        call = partial(self._inner.replace, group, claim, nonce, data)
        former = f"{claim.name!r} of {_short(claim.entry.nonce)!r}"
        name = f"membership.replace({group!r}, {former}, {_short(nonce)!r}, {data!r})"
        return self._requests.call(call, OutcomeUnknownError, name)

    @override
    def release(self, group: str, claim: Claim) -> Future[None]:
        call = partial(self._inner.release, group, claim)
        name = f"membership.release({group!r}, {claim.name!r} of {_short(claim.entry.nonce)!r})"
        return self._requests.call(call, OutcomeUnknownError, name)

    @override
    def release_many(self, group: str, claims: Sequence[Claim]) -> list[Future[None]]:
        call = partial(self._inner.release_many, group, claims)
        return _together(self._requests, call, len(claims))


class _Election(ElectionDriver):
    def __init__(
        self, inner: ElectionDriver, requests: Requests, sessions: _LeasesOfClaims
    ) -> None:
        self._inner, self._requests, self._sessions = inner, requests, sessions
        # Of the class, but here it depends on the backend.
        vars(self)["forms_line"] = inner.forms_line

    @override
    def claim(
        self, service: str, candidate: str, nonce: str, data: bytes
    ) -> Future[Claim | HeldByOther]:
        call = partial(self._inner.claim, service, candidate, nonce, data)
        name = f"election.claim({service!r}, {candidate!r}, {_short(nonce)!r})"
        return self._sessions.noting(self._requests.call(call, OutcomeUnknownError, name))

    @override
    def release(self, service: str, claim: Claim) -> Future[None]:
        call = partial(self._inner.release, service, claim)
        name = f"election.release({service!r}, {claim.name!r} of {_short(claim.entry.nonce)!r})"
        return self._requests.call(call, OutcomeUnknownError, name)


class _Storage(StorageDriver):
    def __init__(self, inner: StorageDriver, requests: Requests) -> None:
        self._inner, self._requests = inner, requests

    @override
    def read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        return self._requests.call(partial(self._inner.read, list(keys)), UnavailableError)

    @override
    def write(self, write: Write) -> Future[Version]:
        name = f"storage.write({str(write.key)!r}, {_short(write.nonce)!r}, {write.data!r})"
        return self._requests.call(partial(self._inner.write, write), OutcomeUnknownError, name)

    @override
    def write_many(self, writes: Sequence[Write]) -> list[Future[Version]]:
        call = partial(self._inner.write_many, list(writes))
        return _together(self._requests, call, len(writes))

    @override
    def list_names(self, namespace: str, after: str, limit: int) -> Future[NamePage]:
        call = partial(self._inner.list_names, namespace, after, limit)
        return self._requests.call(call, UnavailableError)


def _together(
    requests: Requests, call: Callable[[], Sequence[Future[T]]], count: int
) -> list[Future[T]]:
    """Return the *count* answers to one request, which arrive together or not at all."""

    def outcomes() -> Future[list[T | Exception]]:
        answers = call()
        return mapped(all_of(answers), lambda _: [_outcome(one) for one in answers])

    return each(requests.call(outcomes, OutcomeUnknownError), count)


def _short(nonce: str) -> str:
    """Return as much of *nonce* as tells it from others in a timeline."""
    return nonce[:6]


def _outcome(answer: Future[Any]) -> Any:
    try:
        return answer.result()
    except Exception as error:  # noqa: BLE001  any error of a driver is an answer
        return error

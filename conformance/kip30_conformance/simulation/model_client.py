"""The client of a modelled store: a backend like any other, whose server and network are simulated.

It is built of the parts that kip30's own drivers have: sessions, claims and watches of the kit.

    plugin.locator.classname = kip30_conformance.simulation.model_client:ModelBackend
    plugin.model.store = NAME    # of `model_service.offered`
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple, TypeVar

from typing_extensions import override

from kip30.config import setting, text
from kip30.driver import (
    Capability,
    Context,
    Limits,
    StorageDriver,
    Watch,
)
from kip30.driver.kit.futures import failed, mapped
from kip30.driver.kit.key_claims import ClaimRequest, KeyClaims, KeyElection, KeyMembership, Refused
from kip30.driver.kit.lifecycle import CloseOnce, on_thread_of
from kip30.driver.kit.session import CurrentSession, Renewal
from kip30.driver.kit.watch import Observe, Sink, WatchHandle
from kip30.driver.lease import Lease
from kip30.driver.records import (
    Claim,
    Entry,
    Kind,
    NamePage,
    Snapshot,
    Target,
    Version,
    Write,
)
from kip30.errors import UnavailableError
from kip30.names import Key
from kip30_conformance.simulation.model_requests import Requests
from kip30_conformance.simulation.model_service import service_named
from kip30_conformance.simulation.model_store import ModelGrant, ModelStore, Table
from kip30_conformance.simulation.network import StoreLink
from kip30_conformance.simulation.present import clock, found, running_thread
from kip30_conformance.simulation.simulated_backend import SimulatedBackend

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Settings of a modelled store, ``plugin.model.*``."""

    store: str = setting("plugin.model.store", text, doc="The store to reach, by its name")


class ModelBackend(SimulatedBackend):
    """A client of a modelled store, in the process of the simulated thread that opens it."""

    name = "model"
    settings_class: ClassVar[type[ModelSettings]] = ModelSettings
    capabilities = frozenset(
        {Capability.COMPARE_AND_SET, Capability.FENCING, Capability.GUARDS, Capability.LISTING}
    )

    @override
    def __init__(self, context: Context, settings: ModelSettings) -> None:
        service = service_named(settings.store)
        self._simulation = service.store.simulation
        self._close_once = CloseOnce(on_thread_of("kip30-model"))
        process = running_thread().process
        self.link: StoreLink = service.network.link(process)
        requests = self._requests = Requests(self.link, context.operation_timeout_seconds)
        sessions = self._sessions = _Sessions(context, requests, service.store)
        root, store = context.namespace, service.store
        self._watches = _Watches(root, store, requests)
        claims = _Claims(store, requests.for_claims(), sessions)
        self.membership = KeyMembership(claims, lambda group, _: Table(root, Kind.GROUP, group))
        self.election = KeyElection(claims, partial(Table, root, Kind.SERVICE))
        self.storage = _Storage(root, store, requests.for_values())
        self.limits = Limits(observe_seconds=store.dialect.poll_seconds)
        self.observe = Observe(self._watches.read, self._watches.add)
        self.faults = _Faults(root, store, sessions)
        self._reach(context)

    @override
    def session(self) -> tuple[int, Lease] | None:
        session = self._sessions.known()
        return None if session is None else (session.number, session.lease)

    @override
    def describe(self) -> Mapping[str, str]:
        return {
            "version": "1",
            "revision": str(self._requests.read(self._watches.revision).result()),
        }

    @override
    def close(self) -> None:
        if found() is self._simulation:  # else it is collected after that: nothing is left
            self._close_once.once(self._close)

    def _close(self) -> None:
        self._requests.gate.close()
        self._watches.close()
        self._sessions.close()
        self._requests.close()

    def _reach(self, context: Context) -> None:
        """Ask the server something, by the connect timeout."""
        try:
            self._requests.repeatable(int, context.connect_timeout_seconds).result()
        except UnavailableError:
            self._requests.close()
            raise


class _Session(NamedTuple):
    """A session of the store, by its number, and its lease."""

    number: int
    lease: Lease


class _Sessions:
    """The session of one client."""

    def __init__(self, context: Context, requests: Requests, store: ModelStore) -> None:
        self._context = context
        self._requests = requests
        self._store = store
        self._are_renewals_paused = False
        renewal: Renewal[_Session] = Renewal(context.clock, requests.timer, self._renew)
        self._current: CurrentSession[_Session] = CurrentSession(
            open_one=self._open,
            end=self._end,
            adopted=lambda session: renewal.begin(session, self._current),
            closing_seconds=context.operation_timeout_seconds,
        )

    def get(self) -> _Session:
        """Return the session for a claim that is being made; opens one if need be."""
        return self._current.get(clock() + self._context.operation_timeout_seconds)

    def known(self) -> _Session | None:
        """Return the session, valid or not, if there is one."""
        return self._current.known()

    @contextmanager
    def paused_renewals(self) -> Generator[None]:
        """Renew nothing in the block."""
        self._are_renewals_paused = True
        try:
            yield
        finally:
            self._are_renewals_paused = False

    def close(self) -> None:
        """End the session, here and in the store."""
        self._current.close()

    def _open(self, until: float) -> _Session:
        seconds, sent_at = self._asked_seconds(), self._context.clock.now()
        opened = self._requests.repeatable(
            partial(self._store.open_session, seconds), max(0.0, until - clock())
        )
        lease = self._context.lease(sent_at=sent_at, timeout_seconds=seconds)
        return _Session(opened.result(), lease)

    def _asked_seconds(self) -> float:
        """Return the session timeout; one that was not asked for gives way to the dialect's."""
        wanted, granted = self._context.session_timeout_seconds, self._store.dialect.granted_seconds
        return wanted if granted is None or self._context.session_timeout_is_configured else granted

    def _end(self, session: _Session, until: float) -> None:
        end = partial(self._store.close_session, session.number)
        self._requests.repeatable(end, max(0.0, until - clock())).result()

    def _renew(self, session: _Session, seconds: float) -> Future[bool]:
        if self._are_renewals_paused:
            return failed(UnavailableError("renewals are paused"))
        return self._requests.repeatable(partial(self._store.renew, session.number), seconds)


class _Claims(KeyClaims[Table]):
    """Claims in the tables of the store; the name says which record of a table it is."""

    def __init__(self, store: ModelStore, requests: Requests, sessions: _Sessions) -> None:
        self._store, self._requests, self._sessions = store, requests, sessions

    @override
    def take(
        self, wanted: ClaimRequest[Table], meaning: Callable[[Claim | Refused], T]
    ) -> Future[T]:
        number, lease = self._sessions.get()

        def answer(granted: ModelGrant | Refused) -> T:
            if isinstance(granted, Refused):
                return meaning(granted)
            return meaning(_claim(wanted.name, lease, granted))

        return mapped(self._requests.write(partial(self._store.claim, wanted, number)), answer)

    @override
    def replace(self, wanted: ClaimRequest[Table], claim: Claim) -> Future[Claim | None]:
        def answer(granted: ModelGrant | None) -> Claim | None:
            return None if granted is None else _claim(wanted.name, claim.lease, granted)

        return mapped(
            self._requests.write(partial(self._store.replace, wanted, claim.entry)), answer
        )

    @override
    def give_up(self, at: Table, claim: Claim) -> Future[None]:
        return self._requests.write(partial(self._store.release, at, claim.name, claim.entry))

    @override
    def give_up_all(self, held: Sequence[tuple[Table, Claim]]) -> list[Future[None]]:
        return [self.give_up(*one) for one in held]


def _claim(name: str, lease: Lease, granted: ModelGrant) -> Claim:
    return Claim(name, granted.entry, lease, granted.order)


class _Storage(StorageDriver):
    def __init__(self, root: str, store: ModelStore, requests: Requests) -> None:
        self._root, self._store, self._requests = root, store, requests

    @override
    def read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        return self._requests.read(partial(self._store.read, self._root, list(keys)))

    @override
    def write(self, write: Write) -> Future[Version]:
        return self._requests.write(partial(self._store.write, self._root, write))

    @override
    def write_many(self, writes: Sequence[Write]) -> list[Future[Version]]:
        return [self.write(write) for write in writes]

    @override
    def list_names(self, namespace: str, after: str, limit: int) -> Future[NamePage]:
        table = Table(self._root, Kind.NAMESPACE, namespace)
        return self._requests.read(partial(self._store.names, table, after, limit))


class _Watches:
    """All watches of one client."""

    def __init__(self, root: str, store: ModelStore, requests: Requests) -> None:
        self._root, self._store, self._requests = root, store, requests
        self._open: dict[WatchHandle, _Subscription] = {}

    def revision(self) -> int:
        """Return how many changes the store has had."""
        return self._store.revision

    def read(self, target: Target) -> Future[Snapshot]:
        """Return the state of *target*."""
        requests = self._requests.for_target(target)
        return requests.read(partial(self._store.look, self._root, target))

    def add(self, target: Target, sink: Sink) -> Watch:
        """Notify *sink* of the states of *target* from now on."""
        watch = WatchHandle(target, sink, self._forget)
        arrive = self._requests.reader.arrive
        self._open[watch] = _Subscription(
            self._store,
            self._root,
            target,
            self._requests.for_target(target).link,
            lambda state: arrive(partial(watch.deliver, state)),
        )
        return watch

    def close(self) -> None:
        """End all watches."""
        for watch in list(self._open):
            watch.close()

    def _forget(self, watch: WatchHandle) -> None:
        self._open.pop(watch).close()


class _Subscription:
    """The server's side of one watch: it notifies of each change, as long as connected.

    Once a notification is lost the connection counts as broken. When it is replaced, the state is
    read again: a watch may leave states out, but not the last one.
    """

    def __init__(
        self,
        store: ModelStore,
        root: str,
        target: Target,
        link: StoreLink,
        deliver: Callable[[Snapshot], object],
    ) -> None:
        self._store, self._root, self._target = store, root, target
        self._link, self._deliver = link, deliver
        self._is_closed = False
        self._is_read_due = False
        link.connect(self._connected)

    def close(self) -> None:
        """Notify no more."""
        self._is_closed = True
        self._store.unwatch(self._root, self._target, self._changed)

    def _connected(self) -> None:
        if self._is_closed:
            return
        # Subscribe, then read: a change in between is notified. A read is not lost in silence.
        self._store.watch(self._root, self._target, self._changed)
        self._link.deliver(self._state())

    def _changed(self) -> None:
        poll_seconds = self._store.dialect.poll_seconds
        if not poll_seconds:
            self._notify()
        elif not self._is_read_due:
            self._is_read_due = True
            self._link.within(poll_seconds, self._read)

    def _read(self) -> None:
        self._is_read_due = False
        if not self._is_closed:
            self._notify()

    def _notify(self) -> None:
        if not self._link.notify(self._state()):
            self._store.unwatch(self._root, self._target, self._changed)
            self._link.reconnect(self._connected)

    def _state(self) -> Callable[[], object]:
        """Return what delivers the state of this moment."""
        return partial(self._deliver, self._store.look(self._root, self._target))


class _Faults:
    """The faults that the suite injects; see `kip30_conformance.client_faults.ClientFaults`."""

    def __init__(self, root: str, store: ModelStore, sessions: _Sessions) -> None:
        self._root, self._store, self._sessions = root, store, sessions

    def expire_session(self) -> None:
        """End the session in the store, without any notice."""
        session = self._sessions.known()
        if session is not None:
            self._store.end_session(session.number)

    def pause_renewals(self) -> AbstractContextManager[None]:
        """Renew nothing in a block."""
        return self._sessions.paused_renewals()

    def delete_leader(self, service: str) -> None:
        """Remove the record of a leader."""
        table = Table(self._root, Kind.SERVICE, service)
        for name in self._store.look(self._root, Target(Kind.SERVICE, service)).entries:
            self._store.delete(table, name)

    def delete_member(self, group: str, member_id: str) -> None:
        """Remove the record of a member."""
        self._store.delete(Table(self._root, Kind.GROUP, group), member_id)

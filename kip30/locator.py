"""KIP-30's plugin locator: from a properties file to the four interfaces."""

import logging
import threading
import warnings
import weakref
from typing import Any, Self, TypeVar, overload

from typing_extensions import override

from kip30.codecs import STR, Codec, check_codec
from kip30.driver import Backend, Context
from kip30.driver.clock import Clock, SystemClock
from kip30.driver.closeable import Closeable
from kip30.driver.kit.thread_start import start_eventually
from kip30.election import LeaderElection
from kip30.errors import ClosedError, LifecycleError, UsageError
from kip30.listeners import ListenerRegistry
from kip30.membership import GroupMembership
from kip30.metrics import Metrics
from kip30.runtime.future_callbacks import check_callback
from kip30.runtime.lease_tracker import SessionListener
from kip30.runtime.open_store import OpenStore
from kip30.runtime.resolution import Configuration, resolve
from kip30.storage import Storage

T = TypeVar("T")

log: logging.Logger = logging.getLogger(__name__)

_DROPPED = (
    "a locator of the store {!r} was dropped without being closed, and so were all its handles:"
    " its members, terms and listeners end; keep a reference, and close it"
)


class _ConnectionOwner:
    """Held by the locator and its handles; when the last of them is gone, the connection closes."""


class PluginLocator(Closeable):
    """Opens the configured store and hands out the four interfaces over it.

    All handles of one locator share one connection and one session. Ending the
    ``with`` block, `close`, dropping the last reference to the locator and its handles, and the
    end of the interpreter all end the session at once. A `Member` or `Leadership` is not such a
    reference. A locator that is dropped without being closed logs a warning, and is a
    ResourceWarning.

    Thread-safe. After a fork the child must start a locator of its own.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        """Prepare; nothing is opened before `startup`. *clock* is for tests of timing rules."""
        self._clock = clock or SystemClock()
        self._store: OpenStore | None = None
        # Held while a startup runs, and for good once one has succeeded: a locator opens one store.
        # Never waited for, so that a child forked in the middle of a startup cannot hang on it.
        self._startup = threading.Lock()
        # Set by `close` before it looks for a connection, and read by `startup` after it has stored
        # one: whichever comes second closes the store.
        self._closed = False
        self._connection_owner = _ConnectionOwner()
        self._drop: weakref.finalize[..., _ConnectionOwner] | None = None

    def startup(self, config: Configuration = None) -> Self:
        """Open the store and return this locator.

        Args:
            config: A properties file or a mapping of its keys. Without it the file named by
                ``$KIP30_CONFIG``, else ``./kip30.properties``, else no setting at all.

        Raises:
            ConfigError: A setting is wrong; the message names it. Nothing was opened.
            LifecycleError: Started already, being started by another thread, or closed. The store
                that is open is unharmed. After any other error `startup` may be called again.
            UnsupportedError: This process was forked from one that used a store, and the store that
                is to be opened does not declare `Capability.FORKING`; or gevent or eventlet has
                replaced its threads, and the store cannot work with that. Nothing was opened.
            UnavailableError: The store was not reached within the connect timeout.
            AuthenticationError: The store rejects the credentials.
            StoreError: The store cannot be used as it is; the message says why.
        """
        if self._closed:
            raise LifecycleError("this locator is closed: make another one")
        if not self._startup.acquire(blocking=False):
            raise LifecycleError(
                "this locator is started already, or is being started: make another one"
            )
        try:
            self._start(config)
        except BaseException:
            self._startup.release()
            raise
        return self

    def _start(self, config: Configuration) -> None:
        resolved = resolve(config, self._clock)
        store = OpenStore(
            resolved.open(),
            resolved.context,
            obeys_directives=resolved.obeys_directives,
            priority=resolved.priority,
            is_metered=resolved.is_metered,
        )
        self._drop = weakref.finalize(self._connection_owner, _close_elsewhere, store)
        self._drop.atexit = False
        self._store = store
        if self._closed:
            self.close()
            raise LifecycleError("this locator was closed while it was started: make another one")

    @property
    def backend(self) -> Backend:
        """The open driver: its name, capabilities and limits, and what it describes of itself."""
        return self._open().backend

    @property
    def context(self) -> Context:
        """The clock that leases are judged by, and the timeouts that the store was opened with."""
        return self._open().context

    def metrics(self) -> Metrics:
        """Return the metrics of this locator; `kip30.metrics` exports them.

        Raises:
            UsageError: The setting ``plugin.metrics`` is not true, as by default.
        """
        metrics = self._open().metrics
        if metrics is None:
            raise UsageError("nothing is measured: set plugin.metrics = true")
        return metrics.exported

    @overload
    def storage(self) -> Storage[str]: ...
    @overload
    def storage(self, codec: Codec[T]) -> Storage[T]: ...
    def storage(self, codec: Codec[Any] = STR) -> Storage[Any]:
        """Return the key-value storage; values are text unless another *codec* is given.

        Raises:
            UsageError: *codec* is not a codec.
        """
        check_codec(codec)
        return Storage(self._open(), codec, self._connection_owner)

    @overload
    def listener_registry(self) -> ListenerRegistry[str]: ...
    @overload
    def listener_registry(self, codec: Codec[T]) -> ListenerRegistry[T]: ...
    def listener_registry(self, codec: Codec[Any] = STR) -> ListenerRegistry[Any]:
        """Return a registry for change listeners; *codec* must be that of the storage.

        Raises:
            UsageError: *codec* is not a codec.
        """
        check_codec(codec)
        return ListenerRegistry(self._open(), codec, self._connection_owner)

    @overload
    def group_membership(self, group: str) -> GroupMembership[str]: ...
    @overload
    def group_membership(self, group: str, codec: Codec[T]) -> GroupMembership[T]: ...
    def group_membership(self, group: str, codec: Codec[Any] = STR) -> GroupMembership[Any]:
        """Return the membership of *group*; all its members must use the same *codec*.

        Raises:
            InvalidNameError: *group* is not a valid name.
            UsageError: *codec* is not a codec.
        """
        check_codec(codec)
        return GroupMembership(self._open(), group, codec, self._connection_owner)

    @overload
    def leader_election(self, service: str) -> LeaderElection[str]: ...
    @overload
    def leader_election(self, service: str, codec: Codec[T]) -> LeaderElection[T]: ...
    def leader_election(self, service: str, codec: Codec[Any] = STR) -> LeaderElection[Any]:
        """Return the election for *service*; all its candidates must use the same *codec*.

        Raises:
            InvalidNameError: *service* is not a valid name.
            UsageError: *codec* is not a codec.
        """
        check_codec(codec)
        return LeaderElection(self._open(), service, codec, self._connection_owner)

    def add_session_listener(self, listener: SessionListener) -> None:
        """Call *listener* whenever the session is lost; adding it twice counts once.

        Members re-join and candidates stay nominated automatically; this reports that they were
        gone for a time.

        Raises:
            UsageError: *listener* cannot be called, or cannot be hashed.
        """
        check_callback(listener)
        self._open().lease_tracker.add_listener(listener)

    def remove_session_listener(self, listener: SessionListener) -> None:
        """Remove *listener*, if it was added: no call of it starts after this returns."""
        check_callback(listener)
        self._open().lease_tracker.remove_listener(listener)

    @override
    def close(self) -> None:
        """Leave all groups, resign all candidates, end all listeners and close the store.

        Terms end locally at once, and are released in the store when the work under them has let
        go: see `LeaderElection.resign`. Returns when everything is gone, by the operation timeout;
        if work continues, or Ctrl-C interrupts this meanwhile, a thread releases them later, or the
        leases end. Idempotent, even without a startup. Pending futures end with `ClosedError`, or
        with `OutcomeUnknownError` if they are those of writes that were sent; listeners are no
        longer called. A closed locator cannot be started, even if it never was before.
        """
        self._closed = True
        if self._store is not None:
            self._store.close()
        if self._drop is not None:
            self._drop.detach()

    def _open(self) -> OpenStore:
        if self._store is None:
            if self._closed:
                raise ClosedError("the locator is closed: start a new one")
            raise LifecycleError("this locator is not started: call startup() first")
        self._store.check()
        return self._store


def _close_elsewhere(store: OpenStore) -> None:
    """Close on a separate thread: the collector may run on a thread that holds our locks."""
    if store.is_foreign():
        return
    thread = threading.Thread(target=_close_dropped, args=[store], name="kip30-close", daemon=True)
    start_eventually(thread)


def _close_dropped(store: OpenStore) -> None:
    """Close *store*, and log a warning, because its members, terms and listeners end."""
    message = _DROPPED.format(store.backend.name)
    log.warning("%s", message)
    try:
        warnings.warn(message, ResourceWarning, stacklevel=1)
    finally:
        store.close()

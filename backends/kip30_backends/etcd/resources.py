"""Resources that the drivers of one backend share, started and closed in the right order."""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from kip30.driver import Context
from kip30.driver.key_layout import Paths
from kip30.driver.kit import fork_safety
from kip30.driver.kit.lifecycle import CloseOnce, close_on_thread, end_all, on_thread_of
from kip30.driver.kit.operation import OperationFuture, Steps
from kip30.driver.kit.time_left import seconds_left
from kip30.driver.kit.timer import Timer
from kip30.driver.kit.tls_probe import TlsProbe
from kip30.errors import AuthenticationError
from kip30_backends.etcd.calls import Calls, TypedRequest, acknowledged
from kip30_backends.etcd.client import messages
from kip30_backends.etcd.client.channel import AUTHENTICATE, RANGE, Channel, Metadata, channels
from kip30_backends.etcd.client.endpoints import Endpoints, Tokens
from kip30_backends.etcd.client.external_client import borrow
from kip30_backends.etcd.client.messages import MESSAGES
from kip30_backends.etcd.errors import Access, NotDemandedError
from kip30_backends.etcd.observation_order import OrderMark
from kip30_backends.etcd.session import Sessions
from kip30_backends.etcd.settings import EtcdSettings
from kip30_backends.etcd.target_states import TargetStates
from kip30_backends.etcd.watch import Watches

# An application may have permissions for one of them alone.
_FOLDERS = ("kv", "group", "service")


class Resources:
    """An open connection. Nothing in it refers to the backend, so that one can be dropped."""

    def __init__(
        self, context: Context, settings: EtcdSettings, *, reads: str | None = None
    ) -> None:
        """Connect.

        Args:
            context: The context of the backend.
            settings: Where to connect.
            reads: The prefix of the keys that are read, and nothing is written; None: all keys of
                the namespace, which are also written.

        Raises:
            ConfigError: A file of the settings cannot be read. Nothing is connected.
            AuthenticationError: The cluster wants other credentials.
            UnavailableError: No server answered in the connect timeout.
        """
        reached, given = _reached(settings)
        self.timer = Timer("kip30-etcd")
        endpoints = Endpoints(reached, partial(self._retire, context.operation_timeout_seconds))
        self.paths = Paths(context.namespace)
        root = f"{self.paths.root}/"
        tokens = Tokens(partial(self._authenticate, settings) if settings.user else None, given)
        seconds = context.operation_timeout_seconds
        self.calls = Calls(
            endpoints,
            tokens,
            self.timer,
            seconds=seconds,
            access=Access(root) if reads is None else Access(reads, "read"),
        )
        self.sessions = Sessions(context, self.calls, self.timer)
        self.states = TargetStates(self.paths, self.calls)
        self.watches = Watches(self.states, self.calls, self.timer)
        self._close_once = CloseOnce(on_thread_of("kip30-etcd"))
        fork_safety.register(self)
        try:
            self.timer.start()
            with _tls_probe(settings).explaining(settings.endpoints):
                self._connect(_probes(root, reads), context.connect_timeout_seconds)
        except BaseException:
            self._end_calls()
            raise

    def close(self) -> None:
        """End the lease, all watches, calls, threads and connections. Idempotent."""
        self._close_once.once(self._close)

    def drop(self) -> None:
        """Close, because nothing refers to this any longer; on any thread."""
        close_on_thread(self.close, "kip30-etcd-drop")

    def abandon(self) -> None:
        """In a forked child: leave everything to the parent."""
        self._close_once.forgo()
        self.calls.endpoints.abandon()

    def _close(self) -> None:
        # Deliveries stop first; the lease ends while calls can still be sent; then all calls end,
        # and only after that the thread that may wait for one.
        end_all(self.watches.stop, self.sessions.close, self._end_calls, self.watches.join)

    def _end_calls(self) -> None:
        # The timer last, because it runs everything at once that was scheduled: calls that were to
        # be retried find their channel closed, and end.
        end_all(self.calls.close, self.timer.stop)

    def _retire(self, seconds: float, channel: Channel) -> None:
        """Close *channel* once its calls have ended, each of which takes at most *seconds*."""
        if self.timer.after(2 * seconds, channel.close) is None:
            channel.close()

    def _connect(self, probes: Sequence[Any], seconds: float) -> None:
        """Read something that the user may read, to know that it works."""
        until = time.monotonic() + seconds
        refusal: BaseException | None = None
        for probe in probes:
            look = TypedRequest(RANGE, probe, acknowledged)
            error = self.calls.send(look, seconds_left(until)).exception()
            if error is None:
                self.calls.probe = probe
                return
            refusal = refusal or error
            if not isinstance(error, AuthenticationError):
                break
        if refusal is not None:
            raise refusal

    def _authenticate(self, settings: EtcdSettings, seconds: float) -> Future[str]:
        return OperationFuture(self._token(settings, seconds))

    def _token(self, settings: EtcdSettings, seconds: float) -> Steps[str]:
        password = settings.password.current() if settings.password else None
        request = MESSAGES["AuthenticateRequest"](name=settings.user, password=password)
        try:
            token: str = yield self.calls.send(TypedRequest(AUTHENTICATE, request, _token), seconds)
        except NotDemandedError:
            return ""
        return token


def _probes(root: str, reads: str | None) -> list[Any]:
    """Return reads of which one succeeds if the user has any of the permissions needed."""
    ranges = (
        [messages.below(reads.encode())]
        if reads is not None
        else [(f"{root}{folder}/".encode(), b"") for folder in _FOLDERS]
    )
    return [messages.page(*one, limit=1, names_only=True) for one in ranges]


def _reached(settings: EtcdSettings) -> tuple[Sequence[Channel], Metadata]:
    """Return the channels to use, and the metadata of every call."""
    if settings.client is None:
        return channels(settings), ()
    borrowed = borrow(settings.client)
    return [borrowed.channel], borrowed.metadata


def _tls_probe(settings: EtcdSettings) -> TlsProbe:
    return TlsProbe(
        files=settings.tls_files,
        is_encrypted=settings.secure,
        addresses="plugin.etcd.endpoints",
        protocols=("h2",),
        is_lenient=True,
    )


def _token(answer: Any, _sent: OrderMark) -> str:
    token: str = answer.token
    return token

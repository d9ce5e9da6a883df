"""What the drivers of one backend share, put together, and taken apart in the right order."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from kip30 import forks
from kip30.closing import Ending, on_thread_of
from kip30.driver import Context
from kip30.following import otherwise
from kip30.futures import Completed
from kip30.paths import Paths
from kip30.pulse import Pulse
from kip30_backends.etcd import requests
from kip30_backends.etcd.borrowed import borrow
from kip30_backends.etcd.call import Ask
from kip30_backends.etcd.calls import Calls, acknowledged
from kip30_backends.etcd.channel import AUTHENTICATE, RANGE, Channel, Metadata, channels
from kip30_backends.etcd.endpoints import Endpoints
from kip30_backends.etcd.errors import NotDemandedError
from kip30_backends.etcd.messages import MESSAGES
from kip30_backends.etcd.orders import Mark
from kip30_backends.etcd.session import Sessions
from kip30_backends.etcd.settings import EtcdSettings
from kip30_backends.etcd.states import States
from kip30_backends.etcd.tokens import Tokens
from kip30_backends.etcd.watches import Watches


class Engine:
    """An open connection. Nothing in it refers to the backend, so that one can be dropped."""

    def __init__(self, context: Context, settings: EtcdSettings) -> None:
        """Connect.

        Raises:
            ConfigError: A file of the settings cannot be read. Nothing is connected.
            AuthenticationError: The cluster wants other credentials.
            UnavailableError: No server answered in the connect timeout.
        """
        reached, given = _reached(settings)
        endpoints = Endpoints(reached)
        self.pulse = Pulse("kip30-etcd")
        self.paths = Paths(context.namespace)
        tokens = Tokens(partial(self._authenticate, settings) if settings.user else None, given)
        seconds = context.operation_timeout_seconds
        self.calls = Calls(
            endpoints, tokens, self.pulse, seconds=seconds, root=f"{self.paths.root}/"
        )
        self.sessions = Sessions(context, self.calls, self.pulse)
        self.states = States(self.paths, self.calls)
        self.watches = Watches(self.states, self.calls, self.pulse)
        self._ending = Ending(on_thread_of("kip30-etcd"))
        try:
            self._connect(context.connect_timeout_seconds)
        except BaseException:
            self.calls.close()
            self.pulse.stop()
            raise
        forks.register(self)

    def close(self) -> None:
        """End the lease, all watches, calls, threads and connections. Idempotent."""
        self._ending.once(self._close)

    def drop(self) -> None:
        """Close, because nobody can use this any more; on a thread that may be doing anything."""
        threading.Thread(target=self.close, name="kip30-etcd-drop", daemon=True).start()

    def abandon(self) -> None:
        """In a forked child: leave everything to the parent."""
        self._ending.forgo()

    def _close(self) -> None:
        self.watches.stop()
        self.sessions.close()
        self.calls.close()
        self.pulse.stop()
        self.watches.join()

    def _connect(self, seconds: float) -> None:
        """Read something, so that it is known to work."""
        root = self.paths.root.encode()
        request = requests.page(root + b"/", root + b"0", limit=1, names_only=True)
        self.calls.send(Ask(RANGE, request, acknowledged), seconds).result()

    def _authenticate(self, settings: EtcdSettings, seconds: float) -> Future[str]:
        request = MESSAGES["AuthenticateRequest"](name=settings.user, password=settings.password)
        token = self.calls.send(Ask(AUTHENTICATE, request, _token), seconds)
        return otherwise(token, NotDemandedError, lambda: Completed(""))


def _reached(settings: EtcdSettings) -> tuple[Sequence[Channel], Metadata]:
    """Return the channels to use, and what to send with every call."""
    if settings.client is None:
        return channels(settings), ()
    borrowed = borrow(settings.client)
    return [borrowed.channel], borrowed.metadata


def _token(answer: Any, _sent: Mark) -> str:
    token: str = answer.token
    return token

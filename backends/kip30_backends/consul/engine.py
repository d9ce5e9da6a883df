"""What the drivers of one backend share, put together, and taken apart in the right order."""

import logging
import threading
from collections.abc import Mapping

from kip30.driver import Context
from kip30.driver.key_layout import Paths
from kip30.driver.kit import fork_safety
from kip30.driver.kit.lifecycle import Ending, on_thread_of
from kip30.driver.kit.threads import start_eventually
from kip30.errors import AuthenticationError, UnavailableError
from kip30_backends.consul.blocking_query import Backoff
from kip30_backends.consul.client.exchange import Exchange
from kip30_backends.consul.client.library import Agent, Endpoints
from kip30_backends.consul.errors import NO_LEADER, TroubleError, translate
from kip30_backends.consul.request import Calls
from kip30_backends.consul.session import Sessions
from kip30_backends.consul.settings import ConsulSettings
from kip30_backends.consul.snapshots import States
from kip30_backends.consul.transactions import at_key, key_of
from kip30_backends.consul.watch import Watches

_log = logging.getLogger(__name__)

_FOR_READING = 0.9
"""The part of the connect timeout after which it is asked what is the matter instead."""
_PROBES = ("kv/connecting", "group/connecting", "service/connecting")
_LEAST_WAIT_SECONDS = 1.0
_LONGEST_WAIT_SECONDS = 10.0


class Engine:
    """An open connection. Nothing in it refers to the backend, so that one can be dropped."""

    def __init__(
        self, context: Context, settings: ConsulSettings, *, session: bool = True, probe: str = ""
    ) -> None:
        """Connect.

        Args:
            context: What to connect for.
            settings: Where to connect to.
            session: Whether to open a session, for which the node of sessions may be registered.
            probe: The key to read at first; if it is not given, one below that of all values, or
                else of all groups or services.

        Raises:
            ConfigError: A file of the settings cannot be read, or the servers grant no session
                that ends as soon as was asked for.
            AuthenticationError: The cluster wants another token or certificate.
            UnavailableError: No server answered in the connect timeout.
        """
        seconds = context.operation_timeout_seconds
        agents = [Agent(address, settings, seconds) for address in settings.address]
        self.paths = Paths(context.namespace)
        self._probes = [probe] if probe else [f"{key_of(self.paths.root)}/{one}" for one in _PROBES]
        self.calls = Calls(Endpoints(agents), seconds=seconds)
        self.sessions = Sessions(context, self.calls)
        self.states = States(self.paths, self.calls)
        wait = min(max(_LEAST_WAIT_SECONDS, context.session_timeout_seconds), _LONGEST_WAIT_SECONDS)
        self.watches = Watches(self.states, self.calls, Backoff(wait, seconds))
        self.sessions.on_renewed = self.watches.read_members
        self._ending = Ending(on_thread_of("kip30-consul"))
        fork_safety.register(self)
        try:
            self._connect(self.calls.exchange(context.connect_timeout_seconds), session=session)
        except BaseException:
            self._close()
            raise

    def describe(self) -> Mapping[str, str]:
        """Ask the server in use about itself.

        Raises:
            UnavailableError: It did not answer.
        """
        self.calls.check()
        agent = self.calls.endpoints.current
        try:
            told = {"version": agent.version(), "server": agent.server, "leader": agent.leader()}
        except TroubleError as error:
            raise translate(error.failure, wrote=False, server=agent.server) from error
        return {**told, "session timeout": self.sessions.grants.describe()}

    def close(self) -> None:
        """End the session, all watches, calls, threads and connections. Idempotent."""
        self._ending.once(self._close)

    def drop(self) -> None:
        """Close, because nothing refers to this any more; on any thread."""
        thread = threading.Thread(target=self.close, name="kip30-consul-drop", daemon=True)
        start_eventually(thread)

    def abandon(self) -> None:
        """In a forked child: leave everything to the parent."""
        self._ending.forgo()
        self.calls.endpoints.abandon()

    def _close(self) -> None:
        self.watches.stop()
        self.sessions.close()
        self.calls.close()
        self.sessions.join()
        self.watches.join()

    def _connect(self, exchange: Exchange, *, session: bool) -> None:
        """Read something, so that it is known to work, and open a session if one is wanted."""
        try:
            self._read_something(_FOR_READING * exchange.left)
        except UnavailableError as error:
            if self.calls.endpoints.current.lacks_leader(exchange.until):
                raise UnavailableError(f"{error}: {NO_LEADER}") from error
            raise
        if not session:
            return
        try:
            self.sessions.current(exchange)
        except AuthenticationError:
            _log.info("the token may open no session: nothing can be joined or led with it")

    def _read_something(self, seconds: float) -> None:
        """Read what the token may read: it need not be allowed all that kip30 does."""
        exchange, refusals = self.calls.exchange(seconds), list[AuthenticationError]()
        for probe in self._probes:
            try:
                exchange.ask(at_key(probe))
            except AuthenticationError as error:
                refusals.append(error)
            else:
                return
        raise refusals[0]

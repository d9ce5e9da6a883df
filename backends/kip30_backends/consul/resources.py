"""Resources that the drivers of one backend share, started and closed in the right order."""

import logging
from collections.abc import Mapping

from kip30.driver import Context
from kip30.driver.key_layout import Paths
from kip30.driver.kit import fork_safety
from kip30.driver.kit.lifecycle import CloseOnce, close_on_thread, end_all, on_thread_of
from kip30.errors import AuthenticationError, UnavailableError
from kip30_backends.consul.blocking_query import QueryWait
from kip30_backends.consul.calls import Calls
from kip30_backends.consul.client.endpoints import Agent, Endpoints
from kip30_backends.consul.client.operation_requests import OperationRequests
from kip30_backends.consul.errors import NO_LEADER, RequestFailedError, translate
from kip30_backends.consul.session import Sessions
from kip30_backends.consul.settings import ConsulSettings
from kip30_backends.consul.target_states import TargetStates
from kip30_backends.consul.transactions import at_key, key_of
from kip30_backends.consul.watch import Watches

_log = logging.getLogger(__name__)

_FOR_READING = 0.9
"""The part of the connect timeout after which it is asked what is the matter instead."""
_PROBES = ("kv/connecting", "group/connecting", "service/connecting")
_LEAST_WAIT_SECONDS = 1.0
_LONGEST_WAIT_SECONDS = 10.0


class Resources:
    """An open connection. Nothing in it refers to the backend, so that one can be dropped."""

    def __init__(
        self, context: Context, settings: ConsulSettings, *, session: bool = True, probe: str = ""
    ) -> None:
        """Connect.

        Args:
            context: What to connect for.
            settings: Where to connect to.
            session: Whether to open a session, which may register the node of sessions.
            probe: The key to read first; by default one below that of all values, or else of all
                groups or services.

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
        self.states = TargetStates(self.paths, self.calls)
        wait = min(max(_LEAST_WAIT_SECONDS, context.session_timeout_seconds), _LONGEST_WAIT_SECONDS)
        self.watches = Watches(
            self.states, self.calls, QueryWait(wait, seconds), is_own=self.sessions.holds
        )
        self.sessions.on_renewed = self.watches.read_members
        self.sessions.on_released = self.watches.read_released
        self._close_once = CloseOnce(on_thread_of("kip30-consul"))
        fork_safety.register(self)
        try:
            self._connect(self.calls.requests(context.connect_timeout_seconds), session=session)
        except BaseException:
            self._close()
            raise

    def describe(self) -> Mapping[str, str]:
        """Return what the server in use reports about itself.

        Raises:
            UnavailableError: It did not answer.
        """
        self.calls.gate.check()
        agent = self.calls.endpoints.current
        try:
            described = {
                **agent.description(),
                "server": agent.server,
                "leader": agent.leader(),
            }
        except RequestFailedError as error:
            raise translate(error.failure, wrote=False, server=agent.server) from error
        return {**described, "session timeout": self.sessions.kind.describe()}

    def close(self) -> None:
        """End the session, all watches, calls, threads and connections. Idempotent."""
        self._close_once.once(self._close)

    def drop(self) -> None:
        """Close, because nothing refers to this any longer; on any thread."""
        close_on_thread(self.close, "kip30-consul-drop")

    def abandon(self) -> None:
        """In a forked child: leave everything to the parent."""
        self._close_once.forgo()
        self.calls.endpoints.abandon()

    def _close(self) -> None:
        # Deliveries stop first; the session ends while requests can still be sent; then all
        # requests end, and only after that the threads that wait for answers.
        end_all(
            self.watches.stop,
            self.sessions.close,
            self.calls.close,
            self.sessions.join,
            self.watches.join,
        )

    def _connect(self, requests: OperationRequests, *, session: bool) -> None:
        """Read something, to know that it works, and open a session if one is wanted."""
        try:
            self._read_something(_FOR_READING * requests.left)
        except UnavailableError as error:
            if self.calls.endpoints.current.lacks_leader(requests.until):
                raise UnavailableError(f"{error}: {NO_LEADER}") from error
            raise
        if not session:
            return
        try:
            self.sessions.current(requests)
        except AuthenticationError:
            _log.info("the token may not open a session: this client can neither join nor lead")

    def _read_something(self, seconds: float) -> None:
        """Read something that the token may read: it may lack some of kip30's permissions."""
        requests, refusals = self.calls.requests(seconds), list[AuthenticationError]()
        for probe in self._probes:
            try:
                requests.ask(at_key(probe))
            except AuthenticationError as error:
                refusals.append(error)
            else:
                return
        raise refusals[0]

"""Adapter for the `consul` module, and its only importer: HTTP over connections of our own.

Both py-consul and python-consul let a program supply its own HTTP client, with the interface of
their `HTTPClient`. Ours keeps connections open, gives every request a deadline, and sends the token
as a header. Of several servers one is used at a time, and the next one when it fails.

Their clients work with it, and are not created here: all of them read the environment, and
python-consul's cannot be created with a `CONSUL_HTTP_ADDR` that Consul's own programs understand.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import consul.base

from kip30.config import Address
from kip30.config.tls import ReloadingContext
from kip30.driver.kit.lifecycle import do_nothing
from kip30.errors import ConfigError
from kip30_backends.consul.client.http import Answer, Connections, HttpConnection
from kip30_backends.consul.errors import RequestFailedError
from kip30_backends.consul.settings import ConsulSettings

log: logging.Logger = logging.getLogger(__name__)

Parameters = Sequence[tuple[str, object]] | Mapping[str, object] | None
Callback = Callable[[Any], Any]

_UNKNOWN = "consul, unknown without agent:read"

_base: Any = consul.base
"""The same, of which no types are known: the two libraries have different ones, or none."""


class Token:
    """The token of one server's requests. Thread-safe.

    Attributes:
        header: The header line to send; empty without a token.
    """

    def __init__(self, settings: ConsulSettings) -> None:
        """Take the token from *settings*."""
        self._settings = settings
        self._lock = threading.Lock()
        # Written under the lock, read without it.
        self.header = _header(settings.current_token())

    def read_again(self) -> None:
        """Use the token that the settings name now. Does not raise."""
        with self._lock:
            try:
                self.header = _header(self._settings.current_token())
            except ConfigError as error:
                log.warning("the former token stays in use: %s", error)

    def replaces(self, refused: str) -> bool:
        """Return whether there is another token than that of the header *refused*."""
        if self.header == refused:
            self.read_again()
        return self.header != refused


def _header(token: str) -> str:
    return f"X-Consul-Token: {token}\r\n" if token else ""


class Adapter:
    """HTTP to one server, with the interface that the library's clients use. Thread-safe.

    Attributes:
        connections: The connections to the server.
        token: What requests are sent with.
    """

    def __init__(self, address: Address, settings: ConsulSettings, seconds: float) -> None:
        """Prepare to connect to *address*; the default timeout of a request is *seconds*.

        Raises:
            ConfigError: A file of the settings cannot be read.
        """
        tls = ReloadingContext(settings.tls_files) if settings.secure else None
        self.connections = Connections(partial(self._connect, address, tls))
        self.token = Token(settings)
        self._seconds = seconds
        self._datacenter = _datacenter(settings)
        self._headers = f" HTTP/1.1\r\nHost: {address}\r\n"

    def send(self, method: str, target: str, body: bytes, until: float) -> Answer:
        """Return the answer to a request.

        Raises:
            RequestFailedError: There is none by *until*.
        """
        return self.connections.send(self._request(method, target, body), until)

    def listen(self, connection: HttpConnection, target: str, until: float) -> Answer:
        """Return the answer to a GET over *connection*, one of `connections`; raises as `send`."""
        return self.connections.converse(connection, self._request("GET", target, b""), until)

    def get(self, callback: Callback, path: str, params: Parameters = None, **_other: Any) -> Any:
        """Return what *callback* makes of the answer to a GET."""
        return self._called(callback, "GET", path, params, b"")

    def put(
        self,
        callback: Callback,
        path: str,
        params: Parameters = None,
        data: str | bytes = "",
        **_other: Any,
    ) -> Any:
        """Return what *callback* makes of the answer to a PUT."""
        return self._called(callback, "PUT", path, params, data)

    def delete(
        self, callback: Callback, path: str, params: Parameters = None, **_other: Any
    ) -> Any:
        """Return what *callback* makes of the answer to a DELETE."""
        return self._called(callback, "DELETE", path, params, b"")

    def post(
        self,
        callback: Callback,
        path: str,
        params: Parameters = None,
        data: str | bytes = "",
        **_other: Any,
    ) -> Any:
        """Return what *callback* makes of the answer to a POST."""
        return self._called(callback, "POST", path, params, data)

    def close(self) -> None:
        """Close all connections; the library requires this name."""
        self.connections.close()

    def _connect(
        self, address: Address, tls: ReloadingContext | None, until: float
    ) -> HttpConnection:
        self.token.read_again()
        return HttpConnection(address, tls, until)

    def _called(
        self, callback: Callback, method: str, path: str, params: Parameters, data: str | bytes
    ) -> Any:
        target = f"{quote(path, safe='/:')}?{urlencode(params or ())}"
        body = data.encode() if isinstance(data, str) else data
        answer = self.send(method, target, body, time.monotonic() + self._seconds)
        headers = {name.title(): value for name, value in answer.headers.items()}
        return callback(_base.Response(answer.status, headers, answer.body.decode()))

    def _request(self, method: str, target: str, body: bytes) -> bytes:
        if self._datacenter:
            path, _, query = target.partition("?")
            target = f"{path}?{self._datacenter}{query}"
        length = f"Content-Length: {len(body)}\r\n\r\n"
        head = f"{method} {target}{self._headers}{self.token.header}{length}"
        return head.encode("latin-1", "replace") + body


_base.HTTPClient.register(Adapter)


class Agent:
    """One server."""

    def __init__(self, address: Address, settings: ConsulSettings, seconds: float) -> None:
        """Prepare to connect to *address*.

        Raises:
            ConfigError: A file of the settings cannot be read.
        """
        self.server = str(address)
        self.http = Adapter(address, settings, seconds)

    def description(self) -> dict[str, str]:
        """Ask for the server's version of Consul, and its role if it tells.

        Raises:
            RequestFailedError: The server did not answer.
        """
        agent = self.http.get(_body, "/v1/agent/self")
        if not agent:
            return {"version": _UNKNOWN}
        role = _role(agent)
        return {
            "version": f"consul {agent['Config']['Version']}",
            **({"role": role} if role else {}),
        }

    def lacks_leader(self, until: float) -> bool:
        """Return whether the server answers by *until* that no server leads the cluster."""
        try:
            answer = self.http.send("GET", "/v1/status/leader", b"", until)
        except RequestFailedError:
            return False
        return answer.body.strip() == b'""'

    def leader(self) -> str:
        """Ask which server leads the cluster; raises what `description` does."""
        leader: str = self.http.get(_body, "/v1/status/leader")
        return leader or "none"


def _role(agent: Any) -> str:
    """Return the role of *agent*, by its description; empty if it tells none."""
    if not agent["Config"].get("Server", True):
        return "client"
    stats: Any = agent.get("Stats", {})
    raft: Any = stats.get("raft", {})
    state: str = raft.get("state", "")
    return state.lower()


def _body(answer: Any) -> Any:
    """Return the content of *answer*, or nothing if the server refuses."""
    return json.loads(answer.body) if answer.code == HTTPStatus.OK else None


def _datacenter(settings: ConsulSettings) -> str:
    return f"{urlencode({'dc': settings.datacenter})}&" if settings.datacenter else ""


class Endpoints:
    """The servers of one cluster. Thread-safe."""

    def __init__(self, agents: Sequence[Agent]) -> None:
        """Start with the first of *agents*."""
        self._agents = agents
        self._lock = threading.Lock()
        # The server in use, and its number. Written under the lock, read without it.
        self._at = 0
        self.current = agents[0]
        # Called after each change of `current`. Set once, when the watches are made.
        self.on_move: Callable[[], None] = do_nothing

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._agents)

    def leave(self, agent: Agent) -> None:
        """Switch from the server of *agent* to another one, if any, and drop its connections.

        Its requests under way continue.
        """
        with self._lock:
            if agent is not self.current or len(self._agents) == 1:
                return
            self._at = (self._at + 1) % len(self._agents)
            self.current = self._agents[self._at]
            agent.http.connections.rest()
            self.current.http.connections.resume()
        # Without the lock, so that it is never held while the locks of watches are acquired.
        self.on_move()

    def close(self) -> None:
        """End all requests and connections."""
        for agent in self._agents:
            agent.http.connections.close()

    def abandon(self) -> None:
        """In a forked child: leave all connections to the parent."""
        for agent in self._agents:
            agent.http.connections.abandon()

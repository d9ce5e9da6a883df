"""The health endpoint: tells balancers and probes whether this process leads, and may lead."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from http import HTTPStatus
from itertools import groupby
from operator import attrgetter
from typing import Any
from urllib.parse import parse_qs

from typing_extensions import override

from kip30.driver.closeable import Closeable
from kip30.election import LeaderElection
from kip30.errors import Kip30Error, UsageError
from kip30.locator import PluginLocator
from kip30.serving.http_message import (
    HttpRequest,
    HttpResponse,
    RefusedRequestError,
    json_response,
)
from kip30.serving.http_server import HttpServer, SlowResponse
from kip30.serving.listen_address import ListenAddress, OwnHosts, listen_at, parse_address
from kip30.serving.service_state import Nomination, Nominations, ServiceState, ServiceStates

LEAST_SILENCE_SECONDS = 10.0
"""No loop is taken for stuck sooner, however short the session timeout is."""

_MOST_PARAMETERS = 16

Metrics = Callable[[], str]
"""Returns the metrics of this process as Prometheus reads them (text format 0.0.4)."""


class HealthServer(Closeable):
    """Answers balancers and probes about elections, from memory. Thread-safe.

    `kip30.serving` has the paths and the promises.
    """

    def __init__(  # noqa: PLR0913  the parts of one server
        self,
        locator: PluginLocator,
        nominations: Nominations,
        address: str,
        *,
        hosts: Iterable[str] = (),
        metrics: Metrics | None = None,
        session_timeout_seconds: float,
    ) -> None:
        """Listen at *address* for requests to its host, or to one of *hosts*.

        Args:
            locator: The store that *nominations* are in. It may be started later.
            nominations: Returns the candidates of this process.
            address: As `parse_address` takes it.
            hosts: Names by which clients ask for this server, besides IP addresses.
            metrics: Answers ``/metrics``, on a thread of the server.
            session_timeout_seconds: Twice that long the loop of the program may stand still.

        Raises:
            UsageError: *address* or one of *hosts* cannot be used. Nothing was opened.
            OSError: The address is in use, or may not be used. Nothing is listening.
            UnavailableError: The system has no thread to spare. Nothing is listening.
        """
        parsed = parse_address(address)
        own_hosts = OwnHosts.at(parsed, hosts)
        self._silence_seconds = max(2 * session_timeout_seconds, LEAST_SILENCE_SECONDS)
        # When the loop was last marked as alive, by `time.monotonic`; infinite before.
        self._marked_at = math.inf
        self._paths: Mapping[str, Callable[[HttpRequest], HttpResponse | SlowResponse]] = {
            "/": self._list_paths,
            "/leader": partial(self._judge, _is_led),
            "/replica": partial(self._judge, _is_replica),
            "/readiness": partial(self._judge, _is_ready),
            "/liveness": self._tell_liveness,
            "/service": partial(self._judge, lambda _: True),
            **({} if metrics is None else {"/metrics": lambda _: partial(_exposition, metrics)}),
        }
        with ExitStack() as undo:
            listener = undo.enter_context(listen_at(parsed))
            self.address: str = str(ListenAddress(parsed.host, listener.getsockname()[1]))
            self._states = undo.enter_context(ServiceStates(locator, nominations))
            self._server = HttpServer(listener, self._respond, own_hosts)
            undo.pop_all()

    def mark_alive(self) -> None:
        """Mark the loop of the program as alive. To be called in each iteration, by any thread.

        From the first call on ``/liveness`` is 503 if the next one does not come within two session
        timeouts, or within 10 s if those are shorter.
        """
        self._marked_at = time.monotonic()

    @override
    def close(self) -> None:
        """Stop listening, and end all threads, within a few seconds. Idempotent."""
        self._server.close()
        self._states.close()

    def _respond(self, request: HttpRequest) -> HttpResponse | SlowResponse:
        if request.path == "*":
            return self._list_paths(request)
        respond = self._paths.get(request.path)
        if respond is None:
            paths = ", ".join(self._paths)
            raise RefusedRequestError(HTTPStatus.NOT_FOUND, f"no such path; there are {paths}")
        return respond(request)

    def _list_paths(self, _request: HttpRequest) -> HttpResponse:
        return json_response(HTTPStatus.OK, {"paths": list(self._paths)})

    def _judge(
        self, holds: Callable[[Sequence[ServiceState]], bool], request: HttpRequest
    ) -> HttpResponse:
        """Return whether *holds* is true for each service that *request* is about."""
        states = _asked_for(self._states.read(), request.query)
        by_service = groupby(sorted(states, key=_service), _service)
        is_true = all(holds(list(some)) for _, some in by_service)
        return _verdict([state.record for state in states], is_true=is_true)

    def _tell_liveness(self, _request: HttpRequest) -> HttpResponse:
        ago = time.monotonic() - self._marked_at
        is_alive = ago <= self._silence_seconds
        shown = None if math.isinf(ago) else round(ago, 3)
        return _verdict([{"alive": is_alive, "seconds_since_iteration": shown}], is_true=is_alive)


class Health(HealthServer):
    """A health endpoint for a program that takes part in elections; a context manager.

    It keeps *locator* open. Close it before the locator.

    Attributes:
        address: Where it listens, ``HOST:PORT``, with the port that the system has chosen for 0.
    """

    def __init__(
        self,
        locator: PluginLocator,
        elections: Iterable[LeaderElection[Any]],
        address: str,
        *,
        hosts: Iterable[str] = (),
        metrics: Metrics | None = None,
    ) -> None:
        """Listen at *address* and answer about all that is nominated by *elections*.

        With asyncio: ``AsyncPluginLocator.locator``, and ``AsyncLeaderElection.handle`` of each.

        Args:
            locator: The started locator of *elections*.
            elections: At least one.
            address: ``HOST:PORT``, ``[IPv6]:PORT``, or ``PORT`` for 127.0.0.1; port 0 is any.
            hosts: Names by which clients ask for this server. IP addresses, ``localhost``, and the
                name in *address* need not be given.
            metrics: Returns what ``/metrics`` answers, in Prometheus' text format; called on
                threads of the server, several at once. Without it there is no such path.

        Raises:
            UsageError: *address* or one of *hosts* cannot be used, there are no *elections*, or
                *locator* is not started. Nothing was opened.
            OSError: The address is in use, or may not be used. Nothing is listening.
            UnavailableError: The system has no thread to spare. Nothing is listening.
        """
        known = list(elections)
        if not known:
            raise UsageError("there are no elections to answer about: give at least one")
        super().__init__(
            locator,
            lambda: [one for election in known for one in _nominations(election)],
            address,
            hosts=hosts,
            metrics=metrics,
            session_timeout_seconds=locator.context.session_timeout_seconds,
        )


def _nominations(election: LeaderElection[Any]) -> list[Nomination]:
    try:
        candidates = election.candidates()
    except Kip30Error:  # it, or its locator, is closed
        candidates = {}
    found = [
        Nomination(election.service, name, is_nominated=True, term=term)
        for name, term in candidates.items()
    ]
    return found or [Nomination(election.service, None, is_nominated=False, term=None)]


def _asked_for(states: Sequence[ServiceState], query: str) -> Sequence[ServiceState]:
    """Return those of *states* that the parameter ``service`` of *query* names, else all."""
    if not query:
        return states
    try:
        given = parse_qs(query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
    except ValueError as error:
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, "too many parameters") from error
    services = given.get("service")
    if services is None:
        return states
    found = [state for state in states if state.service in services]
    if not {*services} <= {state.service for state in found}:
        raise RefusedRequestError(HTTPStatus.NOT_FOUND, "no such service in this process")
    return found


def _exposition(metrics: Metrics) -> HttpResponse:
    kind = "text/plain; version=0.0.4; charset=utf-8"
    return HttpResponse(HTTPStatus.OK, metrics().encode(), kind)


def _verdict(records: Sequence[Mapping[str, Any]], *, is_true: bool) -> HttpResponse:
    status = HTTPStatus.OK if is_true else HTTPStatus.SERVICE_UNAVAILABLE
    return json_response(status, *records)


_service = attrgetter("service")


def _is_led(states: Sequence[ServiceState]) -> bool:
    return any(one.role == "leader" for one in states)


def _is_ready(states: Sequence[ServiceState]) -> bool:
    return any(one.role is not None for one in states)


def _is_replica(states: Sequence[ServiceState]) -> bool:
    return _is_ready(states) and not _is_led(states)

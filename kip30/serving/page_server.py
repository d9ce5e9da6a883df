"""`kip30 serve`: a page in the browser that shows a store, and the data behind it. Read-only.

The page itself is served to all who ask; it holds no data. Everything else needs the token, which
the page takes from the fragment of its address and sends as a header. So there is no cookie, and
a page of another site cannot ask for anything in the name of a viewer.
"""

import threading
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

from typing_extensions import override

from kip30.config import Properties
from kip30.driver.closeable import Closeable
from kip30.errors import Kip30Error, UsageError
from kip30.metrics.text_format import CONTENT_TYPE
from kip30.serving.access_token import AccessToken
from kip30.serving.http_message import (
    HttpRequest,
    HttpResponse,
    RefusedRequestError,
    StreamedResponse,
    json_response,
)
from kip30.serving.http_server import HttpServer, SlowResponse
from kip30.serving.listen_address import ListenAddress, OwnHosts, listen_at, parse_address
from kip30.serving.live_overview import LiveOverview
from kip30.serving.overview_metrics import metrics_of
from kip30.serving.store_details import StoreDetails

MOST_VIEWERS = 32
"""Of the places for connections, so many may be streams of events."""

_MOST_READERS = 4
_READER_SECONDS = 5.0
_MOST_PARAMETERS = 4
_PAGE = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
_POLICY = "; ".join(
    (
        *(f"{kind} 'none'" for kind in ("default-src", "base-uri", "form-action")),
        "frame-ancestors 'none'",
        *(f"{kind} 'self'" for kind in ("script-src", "style-src", "connect-src")),
    )
)
_FIELDS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}

_Parameters = Mapping[str, str]


class PageServer(Closeable):
    """Serves the page and its data. Thread-safe.

    Attributes:
        address: Where it listens, with the port that the system has chosen for 0.
    """

    def __init__(  # noqa: PLR0913  the parts of one server
        self,
        config: Properties,
        address: str,
        token: AccessToken,
        *,
        hosts: Iterable[str] = (),
        shows_values: bool = True,
        period_seconds: float | None = None,
    ) -> None:
        """Listen at *address* for requests to its host, or to one of *hosts*.

        Args:
            config: Chooses the store. It need not answer yet.
            address: As `parse_address` takes it.
            token: What clients must send to see data.
            hosts: Names by which clients ask for this server, besides IP addresses.
            shows_values: Whether the values of keys may be read.
            period_seconds: How often to look at the store; None: as fits it.

        Raises:
            ConfigError: A setting is wrong. Nothing was opened.
            UsageError: *address* or one of *hosts* cannot be used. Nothing was opened.
            UnsupportedError: The store does not declare ``scanning``. Nothing was opened.
            OSError: The address is in use, or may not be used. Nothing is listening.
            UnavailableError: The system has no thread to spare. Nothing is listening.
        """
        parsed = parse_address(address)
        own_hosts = OwnHosts.at(parsed, hosts)
        self._token = token
        self._details = StoreDetails(config)
        self._readers = threading.Semaphore(_MOST_READERS)
        self._static = {
            path: HttpResponse(HTTPStatus.OK, _static(name), kind, _FIELDS)
            for path, (name, kind) in _PAGE.items()
        }
        self._paths: Mapping[str, Callable[[_Parameters], HttpResponse]] = {
            "/api/overview": lambda _: _json(self._live.read()),
            "/api/servers": lambda _: _json(self._details.servers()),
            "/api/service": lambda given: _json(self._details.service(_required(given, "name"))),
            "/api/group": lambda given: _json(self._details.group(_required(given, "name"))),
            "/api/keys": self._list_keys,
            **({"/api/value": self._show_value} if shows_values else {}),
            "/metrics": self._export_metrics,
        }
        with ExitStack() as undo:
            self._live = undo.enter_context(LiveOverview(config, period_seconds))
            listener = undo.enter_context(listen_at(parsed))
            self.address = ListenAddress(parsed.host, listener.getsockname()[1])
            self._server = HttpServer(listener, self._respond, own_hosts)
            undo.pop_all()

    @override
    def close(self) -> None:
        """Stop listening, and end all threads, within a few seconds. Idempotent."""
        self._live.close()
        self._server.close()

    def _respond(self, request: HttpRequest) -> HttpResponse | SlowResponse | StreamedResponse:
        path = request.path
        if path in self._static:
            return self._static[path]
        if not self._token.is_in(request.fields.get("authorization")):
            return _without_token()
        if path == "/api/events":
            if self._live.viewers >= MOST_VIEWERS:
                raise RefusedRequestError(
                    HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_VIEWERS} viewers are the most"
                )
            return StreamedResponse(self._live.events(), "text/event-stream", _FIELDS)
        if path not in self._paths:
            raise RefusedRequestError(HTTPStatus.NOT_FOUND, "no such path")
        return partial(self._read, path, _parameters(request.query))

    def _read(self, path: str, given: _Parameters) -> HttpResponse:
        """Return the answer of *path*, for which the store may be asked."""
        if not self._readers.acquire(timeout=_READER_SECONDS):
            raise RefusedRequestError(
                HTTPStatus.SERVICE_UNAVAILABLE, "other requests read the store: try again"
            )
        try:
            return self._paths[path](given)
        except UsageError as error:  # a name that cannot be one
            raise RefusedRequestError(HTTPStatus.BAD_REQUEST, str(error)) from error
        except Kip30Error as error:
            raise RefusedRequestError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
        finally:
            self._readers.release()

    def _list_keys(self, given: _Parameters) -> HttpResponse:
        record = self._details.keys(given.get("namespace", ""), given.get("beginning", ""))
        return _json({**record, "shows_values": "/api/value" in self._paths})

    def _show_value(self, given: _Parameters) -> HttpResponse:
        key = _required(given, "key")
        value = self._details.value(key)
        if value is None:
            raise RefusedRequestError(HTTPStatus.NOT_FOUND, "no such key")
        try:
            return _json({"key": key, "value": value.decode()})
        except UnicodeDecodeError:
            return _json({"key": key, "value_base64": b64encode(value).decode()})

    def _export_metrics(self, _given: _Parameters) -> HttpResponse:
        text = metrics_of(self._live.read())
        return HttpResponse(HTTPStatus.OK, text.encode(), CONTENT_TYPE, _FIELDS)


def _static(name: str) -> bytes:
    return (files("kip30.serving") / "page" / name).read_bytes()


def _json(record: Mapping[str, Any]) -> HttpResponse:
    return json_response(HTTPStatus.OK, record)._replace(fields=_FIELDS)


def _without_token() -> HttpResponse:
    found = json_response(HTTPStatus.UNAUTHORIZED, {"error": "the token is missing, or is another"})
    return found._replace(fields={**_FIELDS, "WWW-Authenticate": "Bearer"})


def _parameters(query: str) -> _Parameters:
    try:
        given = parse_qs(
            query, keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS
        )
    except ValueError as error:
        raise RefusedRequestError(
            HTTPStatus.BAD_REQUEST, "too many parameters, or one that is not UTF-8"
        ) from error
    return {name: values[-1] for name, values in given.items()}


def _required(given: _Parameters, name: str) -> str:
    if name not in given:
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, f"the parameter {name} is missing")
    return given[name]

"""Requests and responses of HTTP/1, strictly read: nothing is guessed, nothing is repaired.

The parser of `http.server` takes requests of HTTP/0.9, bare line feeds, a ``Content-Length`` that
is no number and several hosts, and each version of Python takes others. A request here has no
body, so no two programs can disagree about where it ends.
"""

import json
import re
import time
from collections.abc import Generator, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, NamedTuple

from kip30.serving.listen_address import OwnHosts

HEAD_BYTES = 16 * 1024
"""The longest head of a request: its first line and its fields."""
HEAD_END = b"\r\n\r\n"
METHODS = ("GET", "HEAD", "OPTIONS")

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_FIRST_LINE = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]+) HTTP/1\.([0-9])")
_FIELD = re.compile(rb"(" + _TOKEN + rb"):(.*)")
_IMPOSSIBLE = re.compile(rb"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r[^\n]")
"""A control character, or one of the two that end a line without the other."""
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.*")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class RefusedRequestError(Exception):
    """A request is refused.

    Attributes:
        status: The status to answer with.
        reason: The reason, for the person who has sent it.
    """

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        """Keep both."""
        super().__init__(reason)
        self.status = status
        self.reason = reason


class HttpRequest(NamedTuple):
    """A request for this server.

    Attributes:
        method: One of `METHODS`.
        path: The path as it was sent, or ``*``; nothing in it is decoded.
        query: All that follows the first ``?``; may be empty.
        fields: The fields, by their names in lower case; of a repeated one the last.
        keeps_open: Whether the client may send another request over the same connection.
    """

    method: str
    path: str
    query: str
    fields: Mapping[str, str]
    keeps_open: bool


class HttpResponse(NamedTuple):
    """A response; `json_response` makes those that this server has composed itself.

    Attributes:
        fields: Further fields of its head.
    """

    status: HTTPStatus
    body: bytes
    content_type: str
    fields: Mapping[str, str] = MappingProxyType({})


class StreamedResponse(NamedTuple):
    """A response whose length is not known; its end is that of the connection.

    Attributes:
        chunks: The parts of the body, each sent when it is yielded. It is closed when the client
            is gone, and is not begun for a request by HEAD or OPTIONS.
        content_type: As in `HttpResponse`.
        fields: As in `HttpResponse`.
    """

    chunks: Generator[bytes]
    content_type: str
    fields: Mapping[str, str] = MappingProxyType({})


def json_response(status: HTTPStatus, *records: Mapping[str, Any]) -> HttpResponse:
    """Return a response of *records*, each of them an object on a line of its own."""
    body = "".join(f"{json.dumps(record)}\n" for record in records).encode()
    kind = "json" if len(records) == 1 else "x-ndjson"
    return HttpResponse(status, body, f"application/{kind}")


def refusal(error: RefusedRequestError) -> HttpResponse:
    """Return the response to a request that is refused by *error*."""
    return json_response(error.status, {"error": error.reason})


def encode_response(response: HttpResponse, method: str, *, closes: bool) -> bytes:
    """Return *response* to a request with *method* as it is sent.

    Args:
        response: What is answered. HEAD and OPTIONS get its status and its fields alone.
        method: The method; "" if the request could not be read.
        closes: Whether the connection is closed after it.
    """
    length = 0 if method == "OPTIONS" else len(response.body)
    fields = {"Content-Length": str(length), **response.fields}
    head = _head(response.status, response.content_type, fields, method, closes=closes)
    return head if method in {"HEAD", "OPTIONS"} else head + response.body


def encode_head(response: StreamedResponse, method: str) -> bytes:
    """Return the head of *response* to a request with *method* as it is sent."""
    return _head(HTTPStatus.OK, response.content_type, response.fields, method, closes=True)


def _head(
    status: HTTPStatus, content_type: str, fields: Mapping[str, str], method: str, *, closes: bool
) -> bytes:
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Date: {_date()}",
        f"Content-Type: {content_type}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        *(f"{name}: {value}" for name, value in fields.items()),
    ]
    if method == "OPTIONS" or status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append(f"Allow: {', '.join(METHODS)}")
    if closes:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


def check_beginning(received: bytes | bytearray, checked: int) -> None:
    """Raise if *received*, whose first *checked* bytes were checked before, begins no request.

    So a client that speaks TLS or HTTP/0.9 is answered at once, though its request has no end.

    Raises:
        RefusedRequestError: It does not.
    """
    if _IMPOSSIBLE.search(received, max(0, checked - 1), len(received)):
        raise _bad("not a request of HTTP/1.1: a control character, or a line not ended by CR LF")
    end = received.find(b"\r\n")
    if end >= max(0, checked - 1):
        _first_line(bytes(received[:end]))


def parse_request(head: bytes, hosts: OwnHosts) -> HttpRequest:
    """Return the request with this *head*, which `check_beginning` has let pass.

    Raises:
        RefusedRequestError: It is not one for this server: 400, 405 or 421.
    """
    first, *lines = head.removesuffix(HEAD_END).split(b"\r\n")
    method, target, minor = _first_line(first)
    fields = _fields(lines)
    _check_host(target, fields, hosts, needs_host=minor > 0)
    if method not in METHODS:
        raise RefusedRequestError(
            HTTPStatus.METHOD_NOT_ALLOWED, f"only {', '.join(METHODS)} are answered"
        )
    if fields.get("content-length", "0") != "0" or "transfer-encoding" in fields:
        raise _bad("a request has no body here")
    path, _, query = target.partition("?")
    if not path.startswith("/") and (method, path) != ("OPTIONS", "*"):
        raise _bad("the target of a request begins with a slash")
    tokens = {token.strip().lower() for token in fields.get("connection", "").split(",")}
    return HttpRequest(method, path, query, fields, minor > 0 and "close" not in tokens)


def _first_line(line: bytes) -> tuple[str, str, int]:
    """Return method, target and minor version."""
    found = _FIRST_LINE.fullmatch(line)
    if found is None:
        raise _bad("the first line is not METHOD TARGET HTTP/1.1")
    return found[1].decode(), found[2].decode(), int(found[3])


def _fields(lines: list[bytes]) -> dict[str, str]:
    fields = dict[str, str]()
    for line in lines:
        found = _FIELD.fullmatch(line)
        if found is None:
            raise _bad("a field is not NAME: VALUE")
        name, value = found[1].decode().lower(), found[2].decode("latin-1").strip(" \t")
        if name in {"host", "content-length"} and name in fields:
            raise _bad(f"the field {name} is there twice")
        fields[name] = value
    return fields


def _check_host(
    target: str, fields: Mapping[str, str], hosts: OwnHosts, *, needs_host: bool
) -> None:
    if _ABSOLUTE.fullmatch(target):
        raise RefusedRequestError(
            HTTPStatus.MISDIRECTED_REQUEST, "this is no proxy: the target must begin with a slash"
        )
    host = fields.get("host")
    if host is None:
        if needs_host:
            raise _bad("a request of HTTP/1.1 needs the field Host")
        return
    is_own = hosts.answer_for(host)
    if is_own is None:
        raise _bad("the field Host is not HOST or HOST:PORT")
    if not is_own:
        raise RefusedRequestError(
            HTTPStatus.MISDIRECTED_REQUEST,
            "the field Host names no host of this server: ask for an IP address or localhost, or"
            " give the server that name: `kip30 run --listen-host`, `kip30 serve --host`",
        )


def _bad(reason: str) -> RefusedRequestError:
    return RefusedRequestError(HTTPStatus.BAD_REQUEST, reason)


def _date() -> str:
    """Return the time of day as a header has it, whatever the locale."""
    now = time.gmtime()
    day, month = _DAYS[now.tm_wday], _MONTHS[now.tm_mon - 1]
    return f"{day}, {now.tm_mday:02} {month} {now.tm_year} {time.strftime('%H:%M:%S', now)} GMT"

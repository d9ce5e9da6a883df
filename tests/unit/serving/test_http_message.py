"""Requests as they are read, and responses as they are written."""

from http import HTTPStatus

import pytest

from kip30.serving.http_message import (
    HEAD_END,
    HttpResponse,
    RefusedRequestError,
    check_beginning,
    encode_response,
    json_response,
    parse_request,
)
from kip30.serving.listen_address import OwnHosts

OWN = OwnHosts([])


def test_a_request_is_read() -> None:
    head = (
        b"GET /a%2Fb?x=1?y HTTP/1.1\r\nHost:127.0.0.1:80\r\nX-Odd: \t a b \xff \r\nEmpty:\r\n\r\n"
    )
    check_beginning(head, 0)
    request = parse_request(head, OWN)
    assert request[:3] == ("GET", "/a%2Fb", "x=1?y")
    assert request.fields == {"host": "127.0.0.1:80", "x-odd": "a b \xff", "empty": ""}
    assert request.keeps_open


@pytest.mark.parametrize(
    ("version", "field", "keeps_open"),
    [
        ("1.1", "X: y", True),
        ("1.1", "Connection: close", False),
        ("1.1", "Connection: Upgrade , Close", False),
        ("1.9", "Connection: keep-alive", True),
        ("1.0", "X: y", False),
        ("1.0", "Connection: keep-alive", False),
    ],
)
def test_a_connection_stays_open_by_version_and_field(
    version: str, field: str, *, keeps_open: bool
) -> None:
    head = f"GET / HTTP/{version}\r\nHost: localhost\r\n{field}\r\n\r\n".encode()
    assert parse_request(head, OWN).keeps_open is keeps_open


def test_a_request_of_http_1_0_needs_no_host() -> None:
    assert parse_request(b"OPTIONS /leader HTTP/1.0\r\n\r\n", OWN).path == "/leader"


def test_each_beginning_of_a_request_may_become_one() -> None:
    head = b"GET /leader HTTP/1.1\r\nHost: localhost\r\nX: y\r\n\r\n"
    for length in range(len(head) + 1):
        for checked in range(length + 1):
            check_beginning(head[:length], checked)


@pytest.mark.parametrize("wrong", [b"\0", b"\n", b"\x7f", b"\x1b", b"\rx", b"\x0b"])
def test_a_mistake_is_found_wherever_it_is_and_however_it_comes(wrong: bytes) -> None:
    head = b"GET /leader HTTP/1.1\r\nHost: localhost\r\nX: y\r\n\r\n"
    for at in range(len(head)):
        if head[at - 1 : at] == b"\r" and wrong == b"\n":
            continue  # which ends the line
        with pytest.raises(RefusedRequestError):
            _check_byte_by_byte(head[:at] + wrong + head[at:])


def test_a_head_of_blanks_is_read_in_time() -> None:
    """An expression that tries each way to divide them would take minutes."""
    blanks = b" " * 16_000
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a" + blanks + b"b\r\nY:" + blanks + HEAD_END
    assert parse_request(head, OWN).fields["y"] == ""


@pytest.mark.parametrize(
    ("method", "has_body", "length"), [("GET", True, 9), ("HEAD", False, 9), ("OPTIONS", False, 0)]
)
def test_a_response_to_head_or_options_has_no_body(
    method: str, *, has_body: bool, length: int
) -> None:
    response = json_response(HTTPStatus.OK, {"a": 1})
    head, _, body = encode_response(response, method, closes=False).partition(HEAD_END)
    assert body == (b'{"a": 1}\n' if has_body else b"")
    assert f"Content-Length: {length}".encode() in head.split(b"\r\n")
    assert (b"Allow:" in head) == (method == "OPTIONS")
    assert b"Connection:" not in head


@pytest.mark.parametrize(("number", "kind"), [(0, "x-ndjson"), (1, "json"), (2, "x-ndjson")])
def test_records_are_lines_of_json(number: int, kind: str) -> None:
    hostile = {"a": "<b>\r\n\t\x1b\u202e\ud800"}
    response = json_response(HTTPStatus.OK, *[hostile] * number)
    assert response.content_type == f"application/{kind}"
    assert response.body.count(b"\n") == number
    assert response.body.isascii()


def test_a_response_says_that_it_is_the_last() -> None:
    response = HttpResponse(HTTPStatus.METHOD_NOT_ALLOWED, b"", "text/plain")
    lines = encode_response(response, "", closes=True).decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 405 Method Not Allowed"
    assert {"Connection: close", "Cache-Control: no-store", "Allow: GET, HEAD, OPTIONS"} <= {*lines}
    assert "X-Content-Type-Options: nosniff" in lines


def _check_byte_by_byte(sent: bytes) -> None:
    for length in range(1, len(sent) + 1):
        check_beginning(sent[:length], length - 1)

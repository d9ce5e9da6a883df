"""Responses: their meaning, and whether Consul sent them."""

from collections.abc import Mapping
from http.client import HTTPMessage

import pytest

from kip30 import AuthenticationError, Kip30Error, StoreError
from kip30_backends.consul.client.http import Answer
from kip30_backends.consul.errors import RequestFailedError, translate
from kip30_backends.consul.transactions import PairsAtIndex, found

INDEX = {"X-Consul-Index": "7"}
FILTERED = {**INDEX, "X-Consul-Results-Filtered-By-Acls": "true"}


def _answer(status: int, headers: Mapping[str, str], body: bytes) -> Answer:
    message = HTTPMessage()
    for name, value in headers.items():
        message[name] = value
    return Answer(status, message, body)


def _refused(answer: Answer) -> Kip30Error:
    with pytest.raises(RequestFailedError) as raised:
        found(answer)
    return translate(raised.value.failure, wrote=False, server="h:1")


def test_a_404_with_an_index_means_an_absent_key() -> None:
    assert found(_answer(404, INDEX, b"")) == PairsAtIndex(7, [])


def test_a_404_without_an_index_is_an_error() -> None:
    error = _refused(_answer(404, {}, b"no such page"))
    assert type(error) is StoreError
    assert "no such page: is this Consul" in str(error)


@pytest.mark.parametrize("status", [200, 404])
def test_a_response_filtered_by_acls_is_an_error(status: int) -> None:
    error = _refused(_answer(status, FILTERED, b"[]"))
    assert type(error) is AuthenticationError
    assert "key_prefix" in str(error)

"""What answers mean, and whose they are."""

import pytest

from kip30 import AuthenticationError, Kip30Error, StoreError
from kip30_backends.consul.errors import TroubleError, translate
from kip30_backends.consul.records import Found, found
from kip30_backends.consul.wire import Answer

INDEX = {"x-consul-index": "7"}
FILTERED = {**INDEX, "x-consul-results-filtered-by-acls": "true"}


def _refused(answer: Answer) -> Kip30Error:
    with pytest.raises(TroubleError) as raised:
        found(answer)
    return translate(raised.value.failure, wrote=False, server="h:1")


def test_consul_says_that_a_key_is_not_there() -> None:
    assert found(Answer(404, INDEX, b"")) == Found(7, [])


def test_nobody_else_says_that_a_key_is_not_there() -> None:
    error = _refused(Answer(404, {}, b"no such page"))
    assert type(error) is StoreError
    assert "no such page: is this Consul" in str(error)


@pytest.mark.parametrize("status", [200, 404])
def test_what_is_filtered_is_no_answer(status: int) -> None:
    error = _refused(Answer(status, FILTERED, b"[]"))
    assert type(error) is AuthenticationError
    assert "key_prefix" in str(error)

"""Certain and uncertain outcomes of a failed call."""

import pytest

from kip30 import (
    AuthenticationError,
    ClosedError,
    Kip30Error,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
)
from kip30_backends.etcd.errors import Access, Failure, LeaseGoneError, translate

CERTAIN = [
    ("UNAVAILABLE", "failed to connect to all addresses; last error: refused", UnavailableError),
    ("UNAVAILABLE", "etcdserver: no leader", UnavailableError),
    ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", UnavailableError),
    ("FAILED_PRECONDITION", "etcdserver: rpc not supported for learner", UnavailableError),
    ("UNAUTHENTICATED", "etcdserver: invalid auth token", AuthenticationError),
    ("PERMISSION_DENIED", "etcdserver: permission denied", AuthenticationError),
    ("INVALID_ARGUMENT", "etcdserver: user name is empty", AuthenticationError),
    ("RESOURCE_EXHAUSTED", "grpc: received message larger than max (9 vs. 8)", StoreError),
    ("INVALID_ARGUMENT", "etcdserver: request is too large", StoreError),
    ("NOT_FOUND", "etcdserver: requested lease not found", LeaseGoneError),
]
UNCERTAIN = [
    ("DEADLINE_EXCEEDED", "Deadline Exceeded"),
    ("UNAVAILABLE", "Socket closed"),
    ("UNAVAILABLE", "etcdserver: request timed out"),
    ("UNAVAILABLE", "etcdserver: leader changed"),
    ("UNAVAILABLE", "etcdserver: server stopped"),
    ("UNKNOWN", "not a primary lessor"),
    ("CANCELLED", "etcdserver: request canceled"),
    ("CANCELLED", "context canceled"),
    ("INTERNAL", "anything else"),
]
AFTER_THE_WRITE = [
    ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded"),
    ("RESOURCE_EXHAUSTED", "CLIENT: Received message larger than max (9 vs. 8)"),
]


def _translated(failure: Failure, *, wrote: bool) -> Kip30Error:
    return translate(failure, wrote=wrote, access=Access("/ns/"), server="h:1")


@pytest.mark.parametrize(("code", "said", "error"), CERTAIN, ids=str)
def test_certainly_not_done(code: str, said: str, error: type[Kip30Error]) -> None:
    for wrote in (True, False):
        assert type(_translated(Failure(code, said), wrote=wrote)) is error


@pytest.mark.parametrize(("code", "said"), UNCERTAIN)
def test_an_uncertain_failure_leaves_the_outcome_of_a_write_unknown(code: str, said: str) -> None:
    assert type(_translated(Failure(code, said), wrote=True)) is OutcomeUnknownError
    assert type(_translated(Failure(code, said), wrote=False)) is UnavailableError


@pytest.mark.parametrize(("code", "said"), AFTER_THE_WRITE)
def test_a_refusal_that_may_follow_a_write_leaves_its_outcome_unknown(code: str, said: str) -> None:
    assert isinstance(_translated(Failure(code, said), wrote=True), OutcomeUnknownError)
    assert type(_translated(Failure(code, said), wrote=False)) is StoreError


def test_a_write_that_was_under_way_at_the_end_may_have_been_done() -> None:
    closed = Failure("CANCELLED", "Channel closed!")
    assert type(_translated(closed, wrote=True)) is OutcomeUnknownError
    assert type(_translated(closed, wrote=False)) is ClosedError


def test_the_range_to_grant_is_named() -> None:
    denied = Failure("PERMISSION_DENIED", "etcdserver: permission denied")
    assert "readwrite on the prefix /ns/" in str(_translated(denied, wrote=True))

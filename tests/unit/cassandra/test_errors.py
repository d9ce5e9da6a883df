"""Certain and uncertain outcomes of failed requests."""

import pytest

from kip30 import (
    AuthenticationError,
    Kip30Error,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
)
from kip30_backends.cassandra.errors import NEVER_SENT, Failure, is_missing, is_refused, translate

CERTAIN = [
    (NEVER_SENT, "Host has been marked down or removed", UnavailableError),
    ("AuthenticationFailed", "Bad credentials", AuthenticationError),
    ("Unauthorized", "User has no MODIFY permission", AuthenticationError),
    ("SSLError", "certificate verify failed", AuthenticationError),
    ("InvalidRequest", "unconfigured table records", StoreError),
    ("InvalidRequest", "Undefined column name rev", StoreError),
    ("SyntaxException", "no viable alternative", StoreError),
]
UNCERTAIN = [
    ("WriteTimeout", "Operation timed out of CAS"),
    ("WriteTimeout", "Operation timed out of SIMPLE"),
    ("WriteFailure", "Operation failed"),
    ("ReadTimeout", "Operation timed out"),
    ("Unavailable", "Cannot achieve consistency level SERIAL"),
    ("OverloadedErrorMessage", "Too many in flight hints"),
    ("ErrorMessage", "CAS operation result is unknown"),
    ("ConnectionShutdown", "Connection was closed"),
    ("Silence", "no answer in time"),
]


def _translated(failure: Failure, *, wrote: bool) -> Kip30Error:
    return translate(failure, wrote=wrote, subject="ks", server="h:1")


@pytest.mark.parametrize(("kind", "said", "error"), CERTAIN, ids=str)
def test_certainly_not_done(kind: str, said: str, error: type[Kip30Error]) -> None:
    for wrote in (True, False):
        assert type(_translated(Failure(kind, said), wrote=wrote)) is error


@pytest.mark.parametrize(("kind", "said"), UNCERTAIN)
def test_an_uncertain_failure_of_a_write_leaves_its_outcome_unknown(kind: str, said: str) -> None:
    assert type(_translated(Failure(kind, said), wrote=True)) is OutcomeUnknownError
    assert type(_translated(Failure(kind, said), wrote=False)) is UnavailableError
    assert not is_refused(Failure(kind, said))


def test_a_permission_error_names_the_rights_to_grant() -> None:
    denied = Failure("Unauthorized", "User bob has no MODIFY permission")
    assert "grant the role SELECT and MODIFY on keyspace ks" in str(_translated(denied, wrote=True))


def test_missing_tables_are_distinguished_from_other_errors() -> None:
    assert is_missing(Failure("InvalidRequest", "unconfigured table records"))
    assert is_missing(Failure("InvalidRequest", "Keyspace 'kip30' does not exist"))
    assert not is_missing(Failure("InvalidRequest", "Undefined column name rev"))

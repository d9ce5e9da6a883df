"""Certain and uncertain outcomes of a refusal."""

import pytest

from kip30 import OutcomeUnknownError, StoreError, UnavailableError
from kip30_backends.zookeeper.errors import refusal, translate


@pytest.mark.parametrize("code", [-4, -5, -7, -122])
def test_a_number_that_may_follow_a_write_leaves_its_outcome_unknown(code: int) -> None:
    assert type(translate(refusal(code), writes=True)) is OutcomeUnknownError


@pytest.mark.parametrize(
    ("code", "error"), [(-4, UnavailableError), (-5, StoreError), (-7, UnavailableError)]
)
def test_the_same_number_fails_a_read(code: int, error: type[Exception]) -> None:
    assert type(translate(refusal(code), writes=False)) is error

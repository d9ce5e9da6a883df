"""A claim whose answer was lost is refused only if it cannot be granted any more."""

from concurrent.futures import Future

import pytest

from kip30 import OutcomeUnknownError
from kip30.driver import Backend
from kip30.driver.records import Claim, HeldByOther, new_nonce
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Link
from tests.unit.clients import Open

from .test_lost_answers import PATIENT

WITHIN = 10


@pytest.fixture
def deaf(link: Link, open_client: Open) -> Backend:
    return open_client(**link.settings(), **PATIENT).backend


@pytest.fixture
def other(open_client: Open) -> Backend:
    return open_client().backend


def test_a_term_that_may_come_once_the_leader_resigns(
    deaf: Backend, link: Link, other: Backend
) -> None:
    assert isinstance(_claim(other).result(WITHIN * time_scale()), Claim)
    assert isinstance(_claim(deaf).result(WITHIN * time_scale()), HeldByOther)
    claiming = _with_lost_answer(deaf, link)
    assert type(claiming.exception(WITHIN * time_scale())) is OutcomeUnknownError
    assert isinstance(_claim(deaf).result(WITHIN * time_scale()), HeldByOther)


def test_a_term_that_another_one_has(deaf: Backend, link: Link, other: Backend) -> None:
    assert isinstance(_claim(other).result(WITHIN * time_scale()), Claim)
    claiming = _with_lost_answer(deaf, link)
    assert isinstance(claiming.result(WITHIN * time_scale()), HeldByOther)


def _with_lost_answer(deaf: Backend, link: Link) -> Future[Claim | HeldByOther]:
    """Claim, and hear of it only once a first answer is lost."""
    link.swallow_answers()
    claiming = _claim(deaf)
    eventually(lambda: link.counted().dropped_to_client, what="an answer is lost")
    link.heal()
    return claiming


def _claim(backend: Backend) -> Future[Claim | HeldByOther]:
    return backend.election.claim("s", "c", new_nonce(), b"")

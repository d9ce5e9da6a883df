import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from kip30 import PluginLocator
from kip30.config import load
from kip30.driver import Capability
from kip30.driver.kit.futures import failed
from kip30.driver.records import Claim
from kip30.errors import AuthenticationError, ConfigError
from kip30.runner import Contest
from kip30.runner.service_election import StoreContest
from kip30.runtime.candidacy import Leadership
from kip30_conformance.driver_faults import wrap
from kip30_conformance.polling import time_scale

from .shell import PATIENCE_SECONDS, SESSION_SECONDS, Shell


@pytest.fixture
def contest(shell: Shell) -> Iterator[StoreContest]:
    with StoreContest(load(shell.properties), "s", "n1") as opened:
        yield opened


def won(contest: Contest) -> Leadership:
    until = time.monotonic() + PATIENCE_SECONDS * time_scale()
    while (term := contest.wait(0.1)) is None:
        assert time.monotonic() < until
    assert isinstance(term, Leadership)
    return term


def test_a_term_is_what_the_leadership_is(contest: StoreContest) -> None:
    term = won(contest)
    assert term.epoch == 1
    assert term.timeout_seconds == SESSION_SECONDS * time_scale()
    assert term.is_valid()
    assert term.remaining_seconds() > 0
    assert not term.lost.is_set()


def test_a_term_ends_with_the_resignation(contest: StoreContest) -> None:
    term = won(contest)
    contest.resign()
    assert term.lost.is_set()
    assert not term.is_valid()


def test_the_next_term_has_a_greater_epoch(contest: StoreContest) -> None:
    first = won(contest)
    contest.resign()
    assert won(contest).epoch > first.epoch


def test_resigning_is_idempotent_also_before_the_first_term(contest: StoreContest) -> None:
    contest.resign()
    won(contest)
    contest.resign()
    contest.resign()
    assert contest.share_fd() is None


def test_the_shared_descriptor_is_that_of_the_lease(contest: StoreContest) -> None:
    won(contest)
    descriptor = contest.share_fd()
    assert descriptor is not None
    assert contest.share_fd() == descriptor


def test_a_lease_that_is_not_the_stores_any_more_has_nothing_to_share(
    contest: StoreContest, shell: Shell
) -> None:
    won(contest)
    with (
        PluginLocator().startup(shell.properties) as other,
        other.leader_election("t").lead("n2", "") as leadership,
    ):
        contest._term = leadership
        assert contest.share_fd() is None


def test_a_store_that_was_opened_without_lease_sharing_has_nothing_to_share(
    contest: StoreContest, monkeypatch: pytest.MonkeyPatch
) -> None:
    won(contest)
    backend = contest._locator.backend
    monkeypatch.setattr(backend, "capabilities", backend.capabilities - {Capability.LEASE_SHARING})
    assert contest.share_fd() is None


def test_wait_returns_none_after_its_timeout_while_another_leads(
    contest: StoreContest, shell: Shell
) -> None:
    with (
        PluginLocator().startup(shell.properties) as other,
        other.leader_election("s").lead("n2", ""),
    ):
        began = time.monotonic()
        assert contest.wait(0.2) is None
        assert time.monotonic() - began < PATIENCE_SECONDS * time_scale()


@pytest.fixture
def withdrawn(contest: StoreContest) -> StoreContest:
    """Return a contest whose candidate was withdrawn, as the store's refusal of a claim does it."""
    won(contest)
    assert contest._election is not None
    contest._election.resign("n1")
    return contest


def test_a_candidate_that_is_not_nominated_any_longer_is_nominated_again(
    withdrawn: StoreContest,
) -> None:
    assert won(withdrawn).epoch == 2


def test_wait_raises_the_error_of_a_candidate_that_the_store_refuses_meanwhile(
    withdrawn: StoreContest,
) -> None:
    def claim(*_real: object, **_more: object) -> Future[Claim]:
        return failed(AuthenticationError("not permitted"))

    wrap(withdrawn._locator.backend.election, "claim", claim)
    with pytest.raises(AuthenticationError, match="not permitted"):
        won(withdrawn)


def test_a_wait_without_a_nomination_takes_its_whole_timeout(withdrawn: StoreContest) -> None:
    began = time.monotonic()
    assert withdrawn.wait(0.2) is None
    assert time.monotonic() - began >= 0.19


def test_wait_raises_a_configuration_error(shell: Shell) -> None:
    shell.configure(plugin_nonsense=1)
    with (
        StoreContest(load(shell.properties), "s", "n1") as contest,
        pytest.raises(ConfigError, match=r"plugin\.nonsense"),
    ):
        won(contest)

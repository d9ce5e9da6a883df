"""What is known of services: in any order of news, and for any number of services."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from kip30.driver.clock import ManualClock
from kip30.driver.lease import Lease
from kip30.driver.records import Claim, Entry, Snapshot, Version
from kip30.metrics import Metrics
from kip30.runtime.service_metrics import KEPT, ServiceMetrics
from kip30_conformance.clients.metric_samples import Samples, parsed

SESSION_SECONDS = 10.0


class Term:
    """A term of this process."""

    def __init__(self, service: str, epoch: int, order: int, lease: Lease) -> None:
        self.service = service
        self.claim = Claim("c", Entry(Version(epoch, 0), f"nonce {epoch}", b""), lease, order)
        self.ending_reason = ""
        self.step_down_reason = ""

    def is_valid(self) -> bool:
        return not self.ending_reason and self.claim.lease.is_valid()


class Setting(NamedTuple):
    """Metrics of services, all of which are watched; *standing* are those with candidates."""

    clock: ManualClock
    watched: set[str]
    standing: set[str]
    services: ServiceMetrics

    def lead(self, epoch: int = 1, order: int = 10, service: str = "s") -> Term:
        lease = Lease(
            self.clock,
            sent_at=self.clock.now(),
            timeout_seconds=SESSION_SECONDS,
            margin_seconds=0,
        )
        term = Term(service, epoch, order, lease)
        self.services.elected(term)
        return term

    def end(self, term: Term, reason: str = "resigned") -> None:
        term.ending_reason = reason
        self.services.ended(term)

    def see(self, order: int, epoch: int | None, service: str = "s", nonce: str = "") -> None:
        entries: Mapping[str, Entry] = {}
        if epoch is not None:
            entries = {"x": Entry(Version(epoch, 0), nonce or f"nonce {epoch}", b"")}
        self.services.saw(service, Snapshot(order, entries))

    def read(self) -> dict[str, Samples]:
        return parsed(Metrics("toy", self.services.instruments).text())

    def values(self, service: str = "s") -> tuple[float, float, float, float]:
        """Return whether this process leads, whether any does, the epoch, and the changes."""
        found = self.read()
        names = ("leader", "has_leader", "leader_epoch", "leader_changes_seen_total")
        leads, is_led, epoch, changes = (
            found[f"kip30_{name}"].value(service=service) for name in names
        )
        return leads, is_led, epoch, changes

    def elections(self) -> tuple[float, float]:
        found = self.read()["kip30_election_duration_seconds"]
        return found.value("_count"), found.value("_sum")


@pytest.fixture
def setting() -> Setting:
    clock, watched, standing = ManualClock(), {"s"}, set[str]()
    services = ServiceMetrics(clock, lambda: watched, lambda: watched | standing)
    return Setting(clock, watched, standing, services)


def test_a_term_that_has_ended_by_the_clock_is_no_leader(setting: Setting) -> None:
    setting.services.nominated("s")
    setting.lead()
    assert setting.values() == (1, 1, 1, 1)
    setting.clock.advance(SESSION_SECONDS)
    assert setting.values() == (0, 0, 1, 1)  # nothing has noticed it


def test_a_leader_is_shown_although_the_service_is_not_watched(setting: Setting) -> None:
    setting.watched.clear()
    setting.services.nominated("s")
    term = setting.lead()
    assert setting.values() == (1, 1, 1, 1)
    setting.end(term)
    assert "kip30_has_leader{" not in Metrics("toy", setting.services.instruments).text()


def test_a_service_that_is_only_watched_has_no_sample_of_own_terms(setting: Setting) -> None:
    setting.see(1, 4)
    assert setting.values() == (0, 1, 4, 1)
    assert not setting.read()["kip30_leader"].label_names()


@pytest.mark.parametrize("is_seen_first", [True, False])
def test_an_own_term_is_one_change(setting: Setting, *, is_seen_first: bool) -> None:
    setting.services.nominated("s")
    if is_seen_first:
        setting.see(10, 1)
    setting.lead(epoch=1, order=10)
    setting.see(10, 1)
    assert setting.values() == (1, 1, 1, 1)


def test_late_news_change_nothing(setting: Setting) -> None:
    setting.services.nominated("s")
    term = setting.lead(epoch=2, order=10)
    setting.see(8, 1)
    setting.see(9, None)
    assert setting.values() == (1, 1, 2, 1)
    setting.end(term)
    setting.see(11, 2)  # the store has not released it yet
    assert setting.values() == (0, 0, 2, 1)
    setting.see(12, 3)
    assert setting.values() == (0, 1, 3, 2)


def test_a_store_that_came_back_empty_counts_from_1_again(setting: Setting) -> None:
    term = setting.lead(epoch=7, order=10)
    setting.end(term, "the store has another leader, or none")
    setting.see(11, 7, nonce="of another")
    setting.see(12, 1)
    assert setting.values() == (0, 1, 1, 3)


def test_a_store_that_was_made_anew_counts_epochs_from_1(setting: Setting) -> None:
    """The end of the old term may be noted after the beginning of the new one."""
    setting.services.nominated("s")
    old = setting.lead(epoch=7, order=10)
    new = setting.lead(epoch=1, order=20)
    setting.end(old, "lost")
    assert setting.values() == (1, 1, 1, 2)
    setting.end(new)
    assert setting.values() == (0, 0, 1, 2)


def test_an_unreadable_leader_is_no_vacancy(setting: Setting) -> None:
    setting.see(1, 4)
    setting.services.saw("s", Snapshot(2, {}, {"x": "written by a newer kip30"}))
    assert setting.values() == (0, 1, 4, 1)


def test_an_election_lasts_from_the_vacancy_until_a_leader_is_known(setting: Setting) -> None:
    setting.see(1, 1)
    setting.see(2, None)
    setting.clock.advance(1)
    setting.see(3, None)
    setting.clock.advance(2)
    setting.see(4, 2)
    assert setting.elections() == (1, 3)


def test_an_election_after_an_own_term_lasts_from_its_end(setting: Setting) -> None:
    setting.services.nominated("s")
    setting.end(setting.lead(1, 10), "not renewed in time")
    setting.clock.advance(2)
    setting.see(11, None)
    setting.clock.advance(2)
    setting.lead(2, 12)
    assert setting.elections() == (1, 4)


def test_a_vacancy_without_a_candidate_is_no_election(setting: Setting) -> None:
    setting.see(1, None)
    setting.clock.advance(3600)
    setting.services.nominated("s")
    setting.clock.advance(1)
    setting.lead()
    assert setting.elections() == (1, 1)


def test_a_vacancy_that_was_not_watched_to_its_end_is_not_counted(setting: Setting) -> None:
    setting.see(1, None)
    setting.services.unwatched("s")
    setting.clock.advance(3600)
    setting.see(9, 5)
    assert setting.elections() == (0, 0)


@pytest.mark.parametrize(
    ("reason", "ended"),
    [
        ("resigned", "resigned"),
        ("closed", "closed"),
        ("not renewed in time: disk is full", "lost"),
        ("the store has another leader, or none", "lost"),
    ],
)
def test_an_ended_term_is_counted_by_its_reason(setting: Setting, reason: str, ended: str) -> None:
    setting.end(setting.lead(), reason)
    terms = setting.read()["kip30_terms_total"]
    assert terms.value() == terms.value(service="s", ended=ended) == 1


def test_services_of_kip30_have_no_samples(setting: Setting) -> None:
    setting.services.nominated("kip30.lock/l")
    setting.end(setting.lead(service="kip30.lock/l"))
    setting.see(1, 1, "kip30.lock/l")
    assert not any(one.label_names() for one in setting.read().values())


def test_a_thousand_services_one_after_the_other_do_not_add_up(setting: Setting) -> None:
    setting.standing.update({"standing", "quiet"})
    setting.services.nominated("quiet")
    setting.services.nominated("standing")
    setting.lead(service="standing")
    for number in range(1000):
        service = f"s{number}"
        setting.services.nominated(service)
        term = setting.lead(service=service)
        setting.clock.advance(0.001)
        setting.end(term)
        setting.see(11, None, service)
    found = setting.read()
    for name, samples in found.items():
        services = {dict(has)["service"] for one in samples.values.values() for has in one}
        assert len(services) <= 2 * (KEPT + 3), name
    last = [f"s{number}" for number in range(1000 - KEPT, 1000)]
    terms = found["kip30_terms_total"]
    assert [terms.value(service=one, ended="resigned") for one in last] == [1] * KEPT
    assert setting.values("standing") == (1, 1, 1, 1)
    assert "quiet" in {dict(has)["service"] for has in found["kip30_leader"].values["kip30_leader"]}


def test_a_service_that_is_used_again_keeps_its_counts(setting: Setting) -> None:
    for epoch in range(1, 11):
        for number in range(KEPT - 1):
            setting.services.nominated(f"s{epoch}-{number}")
        setting.end(setting.lead(epoch, epoch, service="again"))
    assert setting.read()["kip30_terms_total"].value(service="again") == 10


def test_a_thousand_services_in_use_are_all_kept(setting: Setting) -> None:
    for number in range(1000):
        setting.standing.add(f"s{number}")
        setting.services.nominated(f"s{number}")
    assert len(setting.read()["kip30_leader"].values["kip30_leader"]) == 1000

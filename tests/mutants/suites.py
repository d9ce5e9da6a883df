"""The suites against the backend class that $KIP30_MUTANT names, for `test_suite_bites`.

With $KIP30_ALONE the suites know the store by its configuration alone, as ``kip30 conform`` does.
"""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from typing_extensions import override

from kip30 import PluginLocator
from kip30.config import Written
from kip30.driver.clock import Clock
from kip30_conformance.fault_suites.election_faults import ElectionFaultTests
from kip30_conformance.fault_suites.fork_faults import ForkTests
from kip30_conformance.fault_suites.listener_faults import ListenerFaultTests
from kip30_conformance.fault_suites.membership_faults import MembershipFaultTests
from kip30_conformance.fault_suites.membership_without_rejoin import WithoutRejoinTests
from kip30_conformance.harness import Harness
from kip30_conformance.neighbour.embedded import EmbeddedNeighbour
from kip30_conformance.suites.driver_rules import DriverTests
from kip30_conformance.suites.election import ElectionTests
from kip30_conformance.suites.event_loops import EventLoopTests
from kip30_conformance.suites.fence_races import FenceRaceTests
from kip30_conformance.suites.fencing import FencingTests
from kip30_conformance.suites.foreign_records import NeighbourTests
from kip30_conformance.suites.guard_races import GuardRaceTests
from kip30_conformance.suites.incarnations import IncarnationTests
from kip30_conformance.suites.leases import LeaseTests
from kip30_conformance.suites.letting_go import LettingGoTests
from kip30_conformance.suites.lifecycle import LifecycleTests
from kip30_conformance.suites.listeners import KeySetListenerTests, ValueListenerTests
from kip30_conformance.suites.lookalikes import LookalikeTests
from kip30_conformance.suites.membership import MembershipTests
from kip30_conformance.suites.membership_views import MembershipViewTests
from kip30_conformance.suites.namespace_isolation import IsolationTests
from kip30_conformance.suites.nonces import NonceTests
from kip30_conformance.suites.page_bounds import PageBoundTests
from kip30_conformance.suites.scanning import ScanningTests
from kip30_conformance.suites.storage import StorageTests
from kip30_conformance.suites.storage_histories import StorageHistoryTests
from kip30_conformance.suites.storage_races import StorageRaceTests
from kip30_conformance.suites.storage_set import StorageSetTests
from kip30_conformance.suites.storage_versions import StorageVersionTests
from kip30_conformance.suites.terms import TermTests
from kip30_conformance.suites.vacancies import VacancyTests
from kip30_conformance.suites.verb_events import VerbEventTests
from kip30_conformance.suites.write_guards import GuardTests
from tests.late_answers import late_answers


class MutantHarness(Harness):
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @override
    def settings(self) -> Mapping[str, Written]:
        return {
            "plugin.locator.classname": os.environ["KIP30_MUTANT"],
            "plugin.additional.paths": Path(__file__).parents[1],
            "plugin.embedded.directory": self._directory,
        }

    @override
    def late_answers(self, client: PluginLocator) -> AbstractContextManager[None]:
        return late_answers(client)

    @override
    def neighbour(self, root: str) -> EmbeddedNeighbour:
        return EmbeddedNeighbour(self._directory / "kip30.db", root)


class LoneHarness(Harness):
    """A store of which nothing but the configuration is known, not even its backend's faults."""

    def __init__(self, settings: Mapping[str, Written]) -> None:
        self._settings = settings

    @override
    def settings(self) -> Mapping[str, Written]:
        return self._settings

    @override
    def started(self, root: str, *, clock: Clock | None = None, **more: Written) -> PluginLocator:
        client = super().started(root, clock=clock, **more)
        del vars(client.backend)["faults"]
        return client


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    harness = MutantHarness(tmp_path / "state")
    return LoneHarness(harness.settings()) if "KIP30_ALONE" in os.environ else harness


class TestDriver(DriverTests):
    """Rules of the driver."""


class TestElection(ElectionTests):
    """Election."""


class TestEventLoop(EventLoopTests):
    """Event loops."""


class TestElectionFaults(ElectionFaultTests):
    """Election under faults."""


class TestFencing(FencingTests):
    """Fencing."""


class TestFenceRace(FenceRaceTests):
    """Fences."""


class TestFork(ForkTests):
    """Forks."""


class TestGuards(GuardTests):
    """Guards."""


class TestGuardRace(GuardRaceTests):
    """Guards under races."""


class TestIsolation(IsolationTests):
    """Namespaces of the configuration."""


class TestKeySetListeners(KeySetListenerTests):
    """Key-set listeners."""


class TestIncarnations(IncarnationTests):
    """The order of joins."""


class TestLease(LeaseTests):
    """Leases."""


class TestLettingGo(LettingGoTests):
    """Work that lets go."""


class TestLifecycle(LifecycleTests):
    """Lifecycle."""


class TestLookalike(LookalikeTests):
    """Names that look alike."""


class TestListenerFault(ListenerFaultTests):
    """Listeners under faults."""


class TestMembership(MembershipTests):
    """Membership."""


class TestMembershipFaults(MembershipFaultTests):
    """Membership under faults."""


class TestMembershipViews(MembershipViewTests):
    """Views of a group."""


class TestNeighbour(NeighbourTests):
    """Records of other programs."""


class TestNonce(NonceTests):
    """Nonces."""


class TestPageBound(PageBoundTests):
    """More than a page."""


class TestScanning(ScanningTests):
    """Reading in bulk."""


class TestStorage(StorageTests):
    """Storage."""


class TestStorageHistories(StorageHistoryTests):
    """Storage histories."""


class TestStorageRaces(StorageRaceTests):
    """Storage under races."""


class TestStorageSet(StorageSetTests):
    """Storage: create or replace."""


class TestStorageVersions(StorageVersionTests):
    """Storage: versions that were never issued."""


class TestTerms(TermTests):
    """Terms."""


class TestVerbEvent(VerbEventTests):
    """Events of each verb."""


class TestWithoutRejoin(WithoutRejoinTests):
    """Members that are over with their session."""


class TestValueListeners(ValueListenerTests):
    """Value listeners."""


class TestVacancies(VacancyTests):
    """Vacancies."""

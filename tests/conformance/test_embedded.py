"""The embedded store against the conformance suite."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest
from typing_extensions import override

from kip30 import PluginLocator
from kip30.config import Written
from kip30_conformance.clients.run_processes import Arena
from kip30_conformance.evidence import Evidence
from kip30_conformance.fault_suites.ban_faults import BanFaultTests
from kip30_conformance.fault_suites.commit_faults import CommitFaultTests
from kip30_conformance.fault_suites.controller_faults import ControllerFaultTests
from kip30_conformance.fault_suites.coordinator_crashes import CoordinatorWriteTests
from kip30_conformance.fault_suites.coordinator_faults import CoordinatorFaultTests
from kip30_conformance.fault_suites.directive_faults import DirectiveFaultTests
from kip30_conformance.fault_suites.election_faults import ElectionFaultTests
from kip30_conformance.fault_suites.fork_faults import ForkTests
from kip30_conformance.fault_suites.frozen_faults import FrozenServerTests
from kip30_conformance.fault_suites.health_faults import HealthFaultTests
from kip30_conformance.fault_suites.kafka_elector_faults import ElectorFaultTests
from kip30_conformance.fault_suites.link_faults import LinkFaultTests
from kip30_conformance.fault_suites.listener_faults import ListenerFaultTests
from kip30_conformance.fault_suites.membership_faults import MembershipFaultTests
from kip30_conformance.fault_suites.membership_rejoins import MembershipRejoinTests
from kip30_conformance.fault_suites.membership_removals import MembershipRemovalTests
from kip30_conformance.fault_suites.membership_without_rejoin import WithoutRejoinTests
from kip30_conformance.fault_suites.missed_changes import MissedChangeTests
from kip30_conformance.fault_suites.node_faults import NodeFaultTests
from kip30_conformance.fault_suites.partition_faults import PartitionFaultTests
from kip30_conformance.fault_suites.recipe_faults import RecipeFaultTests
from kip30_conformance.fault_suites.recovery import RecoveryTests
from kip30_conformance.fault_suites.runner_faults import RunnerFaultTests
from kip30_conformance.fault_suites.share_faults import ShareFaultTests
from kip30_conformance.fault_suites.storage_faults import StorageFaultTests
from kip30_conformance.fault_suites.termination import TerminationTests
from kip30_conformance.fault_suites.thread_faults import ThreadFaultTests
from kip30_conformance.fault_suites.vacancy_faults import VacancyFaultTests
from kip30_conformance.harness import Harness
from kip30_conformance.neighbour.embedded import EmbeddedNeighbour
from kip30_conformance.suites.bans import BanTests
from kip30_conformance.suites.controller import ControllerTests
from kip30_conformance.suites.coordinate_command import ShareTests
from kip30_conformance.suites.coordinator_crowds import CoordinatorCrowdTests
from kip30_conformance.suites.coordinator_fencing import CoordinatorFencingTests
from kip30_conformance.suites.coordinator_rounds import CoordinatorRoundTests
from kip30_conformance.suites.coordinator_static import StaticMemberTests
from kip30_conformance.suites.directives import (
    DirectiveTests,
    PastTermTests,
    PriorityTests,
    RunnerDirectiveTests,
)
from kip30_conformance.suites.driver_rules import DriverTests
from kip30_conformance.suites.election import ElectionTests
from kip30_conformance.suites.error_taxonomy import TaxonomyTests
from kip30_conformance.suites.event_loops import EventLoopTests
from kip30_conformance.suites.fence_races import FenceRaceTests
from kip30_conformance.suites.fencing import FencingTests
from kip30_conformance.suites.foreign_records import NeighbourTests
from kip30_conformance.suites.groups import GroupTests
from kip30_conformance.suites.guard_races import GuardRaceTests
from kip30_conformance.suites.health import HealthTests
from kip30_conformance.suites.incarnations import IncarnationTests
from kip30_conformance.suites.kafka_elector import ElectorTests
from kip30_conformance.suites.leases import LeaseTests
from kip30_conformance.suites.letting_go import LettingGoTests
from kip30_conformance.suites.lifecycle import LifecycleTests
from kip30_conformance.suites.line_recipes import LineRecipeTests
from kip30_conformance.suites.listener_callbacks import ListenerCallbackTests
from kip30_conformance.suites.listeners import KeySetListenerTests, ValueListenerTests
from kip30_conformance.suites.lookalikes import LookalikeTests
from kip30_conformance.suites.membership import MembershipTests
from kip30_conformance.suites.membership_views import MembershipViewTests
from kip30_conformance.suites.metrics import MetricTests
from kip30_conformance.suites.namespace_isolation import IsolationTests
from kip30_conformance.suites.nominations import NominationTests
from kip30_conformance.suites.nonces import NonceTests
from kip30_conformance.suites.once_per_key import OncePerKeyTests
from kip30_conformance.suites.page_bounds import PageBoundTests
from kip30_conformance.suites.pruning import PruningTests
from kip30_conformance.suites.recipes import RecipeTests
from kip30_conformance.suites.round_trips import RoundTripTests
from kip30_conformance.suites.run_command import RunnerTests
from kip30_conformance.suites.scanning import ScanningTests
from kip30_conformance.suites.storage import StorageTests
from kip30_conformance.suites.storage_histories import StorageHistoryTests
from kip30_conformance.suites.storage_machine import StorageMachineTests
from kip30_conformance.suites.storage_names import NamesAndValuesTests
from kip30_conformance.suites.storage_races import StorageRaceTests
from kip30_conformance.suites.storage_set import StorageSetTests
from kip30_conformance.suites.storage_versions import StorageVersionTests
from kip30_conformance.suites.terms import TermTests
from kip30_conformance.suites.tooz_locks import ToozLockTests
from kip30_conformance.suites.vacancies import VacancyTests
from kip30_conformance.suites.verb_events import VerbEventTests
from kip30_conformance.suites.write_guards import GuardTests
from tests.late_answers import late_answers

_NOBODY_LEADS = """
UPDATE service SET candidate = NULL, nonce = NULL, data = NULL, session = NULL
WHERE scope = ? AND root = (SELECT id FROM root WHERE name = ?)
"""
_SERVICE_CHANGES = """
INSERT INTO change (root, kind, scope, name) SELECT root.id, 3, ?, x'' FROM root WHERE name = ?
"""
_NO_MEMBER = """
DELETE FROM member WHERE scope = ? AND root = (SELECT id FROM root WHERE name = ?) AND id = ?
"""
_MEMBER_CHANGES = """
INSERT INTO change (root, kind, scope, name) SELECT root.id, 2, ?, ? FROM root WHERE name = ?
"""


class EmbeddedHarness(Harness):
    processes_per_crowd_fault = 100

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.open(self.unique_root()).close()

    @override
    def settings(self) -> Mapping[str, Written]:
        return {"plugin.backend": "embedded", "plugin.embedded.directory": self._directory}

    def session_files(self) -> list[Path]:
        return list((self._directory / "sessions").iterdir())

    @override
    def delete_leader(self, root: str, service: str) -> None:
        with self._locked() as database:
            place = (service.encode(), root.encode())
            database.execute(_NOBODY_LEADS, place)
            database.execute(_SERVICE_CHANGES, place)

    @override
    def late_answers(self, client: PluginLocator) -> AbstractContextManager[None]:
        return late_answers(client)

    @override
    def neighbour(self, root: str) -> EmbeddedNeighbour:
        return EmbeddedNeighbour(self._directory / "kip30.db", root)

    @override
    def delete_member(self, root: str, group: str, member_id: str) -> None:
        with self._locked() as database:
            scope, name, at = group.encode(), member_id.encode(), root.encode()
            database.execute(_NO_MEMBER, (scope, at, name))
            database.execute(_MEMBER_CHANGES, (scope, name, at))

    @contextmanager
    @override
    def frozen(self) -> Iterator[None]:
        with self._locked():
            yield

    @contextmanager
    def _locked(self) -> Iterator[sqlite3.Connection]:
        """Keep all others from writing."""
        file = self._directory / "kip30.db"
        with closing(sqlite3.connect(file, timeout=5, isolation_level=None)) as database, database:
            database.execute("BEGIN IMMEDIATE")
            yield database


class PollingHarness(EmbeddedHarness):
    @override
    def settings(self) -> Mapping[str, Written]:
        return {**super().settings(), "plugin.embedded.notify": "poll"}


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> EmbeddedHarness:
    return EmbeddedHarness(tmp_path_factory.mktemp("embedded") / "state")


class TestLease(LeaseTests):
    """Deadlines of leases."""


class TestLettingGo(LettingGoTests):
    """Work that lets go on the embedded store."""


class TestLifecycle(LifecycleTests):
    """Lifecycle on the embedded store."""


class TestLookalike(LookalikeTests):
    """Names that look alike on the embedded store."""


class TestNonce(NonceTests):
    """Nonces on the embedded store."""


class TestPageBound(PageBoundTests):
    """More than a page on the embedded store."""


class TestVerbEvent(VerbEventTests):
    """Events of each verb on the embedded store."""


class TestFork(ForkTests):
    """Forks of a process that uses the embedded store."""


class TestThreadFaults(ThreadFaultTests):
    """Moments without a spare thread, on the embedded store."""


class TestEventLoops(EventLoopTests):
    """Event loops on the embedded store."""


class TestTaxonomy(TaxonomyTests):
    """Errors and capabilities on the embedded store."""


class TestIsolation(IsolationTests):
    """Namespaces on the embedded store."""


class TestStorage(StorageTests):
    """Storage on the embedded store."""


class TestNamesAndValues(NamesAndValuesTests):
    """Names, values and limits on the embedded store."""


class TestStorageRaces(StorageRaceTests):
    """Races for keys of the embedded store."""


class TestStorageFaults(StorageFaultTests):
    """Storage of the embedded store under faults."""


class TestStorageMachine(StorageMachineTests):
    """Random calls to the embedded store."""


class TestStorageSet(StorageSetTests):
    """Storage: create or replace."""


class TestStorageVersions(StorageVersionTests):
    """Storage: versions that were never issued."""


class TestScanning(ScanningTests):
    """Reading in bulk."""


class TestDriver(DriverTests):
    """Rules of the driver of the embedded store."""


class TestValueListeners(ValueListenerTests):
    """Value listeners on the embedded store."""


class TestKeySetListeners(KeySetListenerTests):
    """Key-set listeners on the embedded store."""


class TestListenerCallbacks(ListenerCallbackTests):
    """Callbacks of listeners on the embedded store."""


class TestListenerFaults(ListenerFaultTests):
    """Listeners on the embedded store under faults."""


class TestStorageHistories(StorageHistoryTests):
    """Recorded histories of the embedded store."""


class TestMembership(MembershipTests):
    """Membership of the embedded store."""


class TestIncarnations(IncarnationTests):
    """The order of joins on the embedded store."""


class TestGroups(GroupTests):
    """Groups of the embedded store."""


class TestMembershipFaults(MembershipFaultTests):
    """Membership of the embedded store under faults."""


class TestMembershipRejoins(MembershipRejoinTests):
    """Re-joins and evictions on the embedded store."""


class TestMembershipRemovals(MembershipRemovalTests):
    """Members of the embedded store whose record is removed."""


class TestWithoutRejoin(WithoutRejoinTests):
    """Members of the embedded store that are over with their session."""


class TestMembershipViews(MembershipViewTests):
    """Views of groups of the embedded store."""


class TestNeighbour(NeighbourTests):
    """Rows that another program writes to the embedded store."""


class TestElection(ElectionTests):
    """Elections on the embedded store."""


class TestTerms(TermTests):
    """Terms of leadership on the embedded store."""


class TestMetrics(MetricTests):
    """Metrics of clients of the embedded store."""


class TestNominations(NominationTests):
    """Nominations on the embedded store."""


class TestPruning(PruningTests):
    """Pruning on the embedded store."""


class TestFencing(FencingTests):
    """Fencing on the embedded store."""


class TestFenceRace(FenceRaceTests):
    """Fences and the next leader at once."""


class TestGuards(GuardTests):
    """Guards on the embedded store."""


class TestGuardRace(GuardRaceTests):
    """Guards and what changes them at once."""


class TestElectionFaults(ElectionFaultTests):
    """Elections on the embedded store under faults."""


class TestElector(ElectorTests):
    """Kafka's elector on the embedded store."""


class TestElectorFaults(ElectorFaultTests):
    """Kafka's elector on the embedded store under faults."""


class TestController(ControllerTests):
    """The controller of the documents on the embedded store."""


class TestControllerFaults(ControllerFaultTests):
    """The controller of the documents when brokers of the embedded store fail."""


class TestRunner(RunnerTests):
    """`kip30 run` on the embedded store."""


class TestOncePerKey(OncePerKeyTests):
    """`kip30 run --once-per` on the embedded store."""


class TestDirectives(DirectiveTests):
    """Pauses, step-downs and hand-overs on the embedded store."""


class TestPriorities(PriorityTests):
    """Candidates with priorities on the embedded store."""


class TestPastTerms(PastTermTests):
    """The record of past terms on the embedded store."""


class TestDirectiveFaults(DirectiveFaultTests):
    """The same when processes of the embedded store fail."""


class TestBans(BanTests):
    """Bans of members on the embedded store."""


class TestBanFaults(BanFaultTests):
    """The same when processes of the embedded store are stopped."""


class TestRunnerDirectives(RunnerDirectiveTests):
    """The same for `kip30 run`."""


class TestRunnerFaults(RunnerFaultTests):
    """`kip30 run` on the embedded store under faults."""

    def test_killed_runners_leave_no_files(
        self, arena: Arena, harness: EmbeddedHarness, evidence: Evidence
    ) -> None:
        epoch = 0
        for _ in range(3):
            runner = arena.start(*arena.ticker())
            epoch = arena.await_term(epoch)[0].epoch
            runner.end()
            evidence.saw("dead runner", runner.pid)
        assert arena.start("true").wait() == 0
        assert harness.session_files() == []


class TestHealth(HealthTests):
    """`kip30 run --listen` on the embedded store."""


class TestHealthFaults(HealthFaultTests):
    """`kip30 run --listen` on the embedded store under faults."""


class TestShares(ShareTests):
    """`kip30 coordinate` on the embedded store."""


class TestShareFaults(ShareFaultTests):
    """`kip30 coordinate` on the embedded store, under faults."""


class TestTermination(TerminationTests):
    """Processes with claims in the embedded store that a signal ends."""


class TestCommitFaults(CommitFaultTests):
    """Connections cut after a commit: skipped, the embedded store has no servers."""


class TestRoundTrips(RoundTripTests):
    """Round trips on the wire: skipped, the embedded store has no servers."""


class TestLinkFaults(LinkFaultTests):
    """Bad connections: skipped, the embedded store has no servers."""


class TestMissedChanges(MissedChangeTests):
    """Changes missed over a cut connection: skipped, the embedded store has no servers."""


class TestFrozenServers(FrozenServerTests):
    """Servers that stand still: skipped, the embedded store has no servers."""


class TestRecovery(RecoveryTests):
    """Pauses of the embedded store: another program keeps the database locked."""


class TestNodeFaults(NodeFaultTests):
    """Servers killed and started again: skipped, the embedded store has no servers."""


class TestPartitionFaults(PartitionFaultTests):
    """Servers cut off from each other: skipped, the embedded store has no servers."""


class TestValueListenersByPolling(ValueListenerTests):
    """Value listeners on the embedded store where the system tells of no changes."""

    @pytest.fixture
    def harness(self, tmp_path: Path) -> PollingHarness:
        return PollingHarness(tmp_path / "state")


class TestKeySetListenersByPolling(KeySetListenerTests):
    """Key-set listeners on the embedded store where the system tells of no changes."""

    @pytest.fixture
    def harness(self, tmp_path: Path) -> PollingHarness:
        return PollingHarness(tmp_path / "state")


class TestVacancies(VacancyTests):
    """Vacancies on the embedded store."""


class TestVacancyFaults(VacancyFaultTests):
    """Vacancies under faults on the embedded store."""


class TestRecipes(RecipeTests):
    """Recipes on the embedded store."""


class TestLineRecipes(LineRecipeTests):
    """Recipes that wait in a line on the embedded store."""


class TestToozLocks(ToozLockTests):
    """Tooz's tests of locks on the embedded store."""


class TestRecipeFaults(RecipeFaultTests):
    """Recipes under faults on the embedded store."""


class TestCoordinatorRounds(CoordinatorRoundTests):
    """Rounds of groups on the embedded store."""


class TestCoordinatorFencing(CoordinatorFencingTests):
    """Writes of members of groups on the embedded store."""


class TestStaticMembers(StaticMemberTests):
    """Static members of groups on the embedded store."""


class TestCoordinatorCrowds(CoordinatorCrowdTests):
    """Large groups on the embedded store."""


class TestCoordinatorWrites(CoordinatorWriteTests):
    """Members of groups on the embedded store that are struck at each write."""


class TestCoordinatorFaults(CoordinatorFaultTests):
    """Groups on the embedded store under faults."""

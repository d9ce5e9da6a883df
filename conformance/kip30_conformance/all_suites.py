"""All suites in one place: what `kip30 conform` runs, and a store's test file subclasses."""

from kip30_conformance.faults.commit_faults import CommitFaultTests
from kip30_conformance.faults.election_faults import ElectionFaultTests
from kip30_conformance.faults.fork_faults import ForkTests
from kip30_conformance.faults.frozen_faults import FrozenServerTests
from kip30_conformance.faults.link_faults import LinkFaultTests
from kip30_conformance.faults.listener_faults import ListenerFaultTests
from kip30_conformance.faults.membership_faults import MembershipFaultTests
from kip30_conformance.faults.membership_rejoins import MembershipRejoinTests
from kip30_conformance.faults.membership_removals import MembershipRemovalTests
from kip30_conformance.faults.missed_changes import MissedChangeTests
from kip30_conformance.faults.node_faults import NodeFaultTests
from kip30_conformance.faults.partition_faults import PartitionFaultTests
from kip30_conformance.faults.recovery import RecoveryTests
from kip30_conformance.faults.runner_faults import RunnerFaultTests
from kip30_conformance.faults.storage_faults import StorageFaultTests
from kip30_conformance.faults.termination import TerminationTests
from kip30_conformance.faults.thread_faults import ThreadFaultTests
from kip30_conformance.suite import Suite
from kip30_conformance.suites.driver_rules import DriverTests
from kip30_conformance.suites.election import ElectionTests
from kip30_conformance.suites.event_loops import EventLoopTests
from kip30_conformance.suites.fence_races import FenceRaceTests
from kip30_conformance.suites.fencing import FencingTests
from kip30_conformance.suites.groups import GroupTests
from kip30_conformance.suites.isolation import IsolationTests, TaxonomyTests
from kip30_conformance.suites.leases import LeaseTests
from kip30_conformance.suites.lifecycle import LifecycleTests
from kip30_conformance.suites.listener_callbacks import ListenerCallbackTests
from kip30_conformance.suites.listeners import KeySetListenerTests, ValueListenerTests
from kip30_conformance.suites.membership import MembershipTests
from kip30_conformance.suites.membership_views import MembershipViewTests
from kip30_conformance.suites.neighbours import NeighbourTests
from kip30_conformance.suites.nominations import NominationTests
from kip30_conformance.suites.pruning import PruningTests
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

SUITES: tuple[type[Suite], ...] = (
    LifecycleTests,
    ForkTests,
    ThreadFaultTests,
    EventLoopTests,
    TaxonomyTests,
    IsolationTests,
    StorageTests,
    NamesAndValuesTests,
    StorageRaceTests,
    StorageHistoryTests,
    StorageFaultTests,
    StorageMachineTests,
    StorageSetTests,
    StorageVersionTests,
    DriverTests,
    ScanningTests,
    ValueListenerTests,
    KeySetListenerTests,
    ListenerCallbackTests,
    ListenerFaultTests,
    MembershipTests,
    GroupTests,
    MembershipFaultTests,
    MembershipRejoinTests,
    MembershipRemovalTests,
    MembershipViewTests,
    NeighbourTests,
    ElectionTests,
    TermTests,
    NominationTests,
    PruningTests,
    FencingTests,
    FenceRaceTests,
    LeaseTests,
    ElectionFaultTests,
    RunnerTests,
    RunnerFaultTests,
    TerminationTests,
    CommitFaultTests,
    RoundTripTests,
    LinkFaultTests,
    MissedChangeTests,
    FrozenServerTests,
    RecoveryTests,
    NodeFaultTests,
    PartitionFaultTests,
)


def suite_classes() -> dict[str, type[Suite]]:
    """Return a subclass of each suite, by a name that pytest collects.

    ``globals().update(suite_classes())`` in a store's test file runs them all, also those that are
    still to be written.
    """
    return {name: type(name, (suite,), {"__doc__": suite.__doc__}) for name, suite in _named()}


def _named() -> list[tuple[str, type[Suite]]]:
    return [(f"Test{suite.__name__.removesuffix('Tests')}", suite) for suite in SUITES]

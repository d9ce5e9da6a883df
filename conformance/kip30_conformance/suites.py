"""All suites in one place: what `kip30 conform` runs, and a store's test file subclasses."""

from kip30_conformance.commit_faults import CommitFaultTests
from kip30_conformance.driver_rules import DriverTests
from kip30_conformance.election import ElectionTests
from kip30_conformance.election_faults import ElectionFaultTests
from kip30_conformance.event_loops import EventLoopTests
from kip30_conformance.fence_races import FenceRaceTests
from kip30_conformance.fencing import FencingTests
from kip30_conformance.fork_faults import ForkTests
from kip30_conformance.frozen_faults import FrozenServerTests
from kip30_conformance.groups import GroupTests
from kip30_conformance.isolation import IsolationTests, TaxonomyTests
from kip30_conformance.leases import LeaseTests
from kip30_conformance.lifecycle import LifecycleTests
from kip30_conformance.link_faults import LinkFaultTests
from kip30_conformance.listener_callbacks import ListenerCallbackTests
from kip30_conformance.listener_faults import ListenerFaultTests
from kip30_conformance.listeners import KeySetListenerTests, ValueListenerTests
from kip30_conformance.machines import StorageMachineTests
from kip30_conformance.membership import MembershipTests
from kip30_conformance.membership_faults import MembershipFaultTests
from kip30_conformance.membership_rejoins import MembershipRejoinTests
from kip30_conformance.membership_removals import MembershipRemovalTests
from kip30_conformance.membership_views import MembershipViewTests
from kip30_conformance.missed_changes import MissedChangeTests
from kip30_conformance.neighbours import NeighbourTests
from kip30_conformance.node_faults import NodeFaultTests
from kip30_conformance.nominations import NominationTests
from kip30_conformance.partition_faults import PartitionFaultTests
from kip30_conformance.pruning import PruningTests
from kip30_conformance.recovery import RecoveryTests
from kip30_conformance.round_trips import RoundTripTests
from kip30_conformance.runner import RunnerTests
from kip30_conformance.runner_faults import RunnerFaultTests
from kip30_conformance.scanning import ScanningTests
from kip30_conformance.storage import StorageTests
from kip30_conformance.storage_faults import StorageFaultTests
from kip30_conformance.storage_histories import StorageHistoryTests
from kip30_conformance.storage_names import NamesAndValuesTests
from kip30_conformance.storage_races import StorageRaceTests
from kip30_conformance.storage_set import StorageSetTests
from kip30_conformance.storage_versions import StorageVersionTests
from kip30_conformance.suite import Suite
from kip30_conformance.termination import TerminationTests
from kip30_conformance.terms import TermTests
from kip30_conformance.thread_faults import ThreadFaultTests

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

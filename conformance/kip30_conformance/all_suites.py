"""All suites in one place, run by `kip30 conform` and subclassed by a store's test file."""

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
from kip30_conformance.suite import Suite
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

SUITES: tuple[type[Suite], ...] = (
    LifecycleTests,
    LettingGoTests,
    ForkTests,
    ThreadFaultTests,
    EventLoopTests,
    TaxonomyTests,
    IsolationTests,
    LookalikeTests,
    StorageTests,
    NamesAndValuesTests,
    StorageRaceTests,
    StorageHistoryTests,
    StorageFaultTests,
    StorageMachineTests,
    StorageSetTests,
    StorageVersionTests,
    DriverTests,
    NonceTests,
    PageBoundTests,
    ScanningTests,
    ValueListenerTests,
    KeySetListenerTests,
    VerbEventTests,
    ListenerCallbackTests,
    ListenerFaultTests,
    MembershipTests,
    IncarnationTests,
    GroupTests,
    MembershipFaultTests,
    MembershipRejoinTests,
    MembershipRemovalTests,
    WithoutRejoinTests,
    MembershipViewTests,
    NeighbourTests,
    ElectionTests,
    TermTests,
    MetricTests,
    NominationTests,
    VacancyTests,
    PruningTests,
    FencingTests,
    FenceRaceTests,
    GuardTests,
    GuardRaceTests,
    LeaseTests,
    RecipeTests,
    LineRecipeTests,
    ToozLockTests,
    RecipeFaultTests,
    ElectionFaultTests,
    VacancyFaultTests,
    ElectorTests,
    ElectorFaultTests,
    ControllerTests,
    ControllerFaultTests,
    RunnerTests,
    OncePerKeyTests,
    DirectiveTests,
    PriorityTests,
    PastTermTests,
    RunnerDirectiveTests,
    BanTests,
    BanFaultTests,
    DirectiveFaultTests,
    RunnerFaultTests,
    HealthTests,
    HealthFaultTests,
    TerminationTests,
    CommitFaultTests,
    RoundTripTests,
    LinkFaultTests,
    MissedChangeTests,
    FrozenServerTests,
    RecoveryTests,
    NodeFaultTests,
    PartitionFaultTests,
    CoordinatorRoundTests,
    CoordinatorFencingTests,
    StaticMemberTests,
    CoordinatorCrowdTests,
    CoordinatorFaultTests,
    CoordinatorWriteTests,
    ShareTests,
    ShareFaultTests,
)


def suite_classes() -> dict[str, type[Suite]]:
    """Return a subclass of each suite, by a name that pytest collects.

    ``globals().update(suite_classes())`` in a store's test file runs them all, also those that are
    still to be written.
    """
    return {name: type(name, (suite,), {"__doc__": suite.__doc__}) for name, suite in _named()}


def _named() -> list[tuple[str, type[Suite]]]:
    return [(f"Test{suite.__name__.removesuffix('Tests')}", suite) for suite in SUITES]

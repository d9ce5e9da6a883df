"""All suites in one place: what `kip30 conform` runs, and a store's test file subclasses."""

from kip30_conformance.election import ElectionTests
from kip30_conformance.election_faults import ElectionFaultTests
from kip30_conformance.fencing import FencingTests
from kip30_conformance.groups import GroupTests
from kip30_conformance.isolation import IsolationTests, TaxonomyTests
from kip30_conformance.lifecycle import LifecycleTests
from kip30_conformance.listener_callbacks import ListenerCallbackTests
from kip30_conformance.listener_faults import ListenerFaultTests
from kip30_conformance.listeners import KeySetListenerTests, ValueListenerTests
from kip30_conformance.machines import StorageMachineTests
from kip30_conformance.membership import MembershipTests
from kip30_conformance.membership_faults import MembershipFaultTests
from kip30_conformance.runner import RunnerTests
from kip30_conformance.runner_faults import RunnerFaultTests
from kip30_conformance.storage import StorageTests
from kip30_conformance.storage_faults import StorageFaultTests
from kip30_conformance.storage_histories import StorageHistoryTests
from kip30_conformance.storage_names import NamesAndValuesTests
from kip30_conformance.storage_races import StorageRaceTests
from kip30_conformance.suite import Suite
from kip30_conformance.terms import TermTests

SUITES: tuple[type[Suite], ...] = (
    LifecycleTests,
    TaxonomyTests,
    IsolationTests,
    StorageTests,
    NamesAndValuesTests,
    StorageRaceTests,
    StorageHistoryTests,
    StorageFaultTests,
    StorageMachineTests,
    ValueListenerTests,
    KeySetListenerTests,
    ListenerCallbackTests,
    ListenerFaultTests,
    MembershipTests,
    GroupTests,
    MembershipFaultTests,
    ElectionTests,
    TermTests,
    FencingTests,
    ElectionFaultTests,
    RunnerTests,
    RunnerFaultTests,
)

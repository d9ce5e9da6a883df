"""The toy store against the conformance suite, found through ``plugin.additional.paths``."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from typing_extensions import override

from kip30.config import Written
from kip30_conformance.fault_suites.membership_without_rejoin import WithoutRejoinTests
from kip30_conformance.harness import Harness
from kip30_conformance.suites.coordinator_fencing import CoordinatorFencingTests
from kip30_conformance.suites.coordinator_rounds import CoordinatorRoundTests
from kip30_conformance.suites.coordinator_static import StaticMemberTests
from kip30_conformance.suites.driver_rules import DriverTests
from kip30_conformance.suites.election import ElectionTests
from kip30_conformance.suites.error_taxonomy import TaxonomyTests
from kip30_conformance.suites.fence_races import FenceRaceTests
from kip30_conformance.suites.fencing import FencingTests
from kip30_conformance.suites.guard_races import GuardRaceTests
from kip30_conformance.suites.incarnations import IncarnationTests
from kip30_conformance.suites.leases import LeaseTests
from kip30_conformance.suites.letting_go import LettingGoTests
from kip30_conformance.suites.lifecycle import LifecycleTests
from kip30_conformance.suites.line_recipes import LineRecipeTests
from kip30_conformance.suites.listener_callbacks import ListenerCallbackTests
from kip30_conformance.suites.listeners import KeySetListenerTests, ValueListenerTests
from kip30_conformance.suites.lookalikes import LookalikeTests
from kip30_conformance.suites.membership import MembershipTests
from kip30_conformance.suites.membership_views import MembershipViewTests
from kip30_conformance.suites.namespace_isolation import IsolationTests
from kip30_conformance.suites.nonces import NonceTests
from kip30_conformance.suites.page_bounds import PageBoundTests
from kip30_conformance.suites.pruning import PruningTests
from kip30_conformance.suites.recipes import RecipeTests
from kip30_conformance.suites.scanning import ScanningTests
from kip30_conformance.suites.storage import StorageTests
from kip30_conformance.suites.storage_machine import StorageMachineTests
from kip30_conformance.suites.storage_names import NamesAndValuesTests
from kip30_conformance.suites.storage_races import StorageRaceTests
from kip30_conformance.suites.storage_set import StorageSetTests
from kip30_conformance.suites.storage_versions import StorageVersionTests
from kip30_conformance.suites.vacancies import VacancyTests
from kip30_conformance.suites.verb_events import VerbEventTests
from kip30_conformance.suites.write_guards import GuardTests

pytestmark = pytest.mark.large

INSTALLED = os.environ.get("KIP30_TOYSTORE")
"""Path where the toy was installed, to be found by its entry point; else its source is used."""


class ToyHarness(Harness):
    @override
    def settings(self) -> Mapping[str, Written]:
        if INSTALLED:
            return {"plugin.backend": "toy", "plugin.additional.paths": INSTALLED}
        return {
            "plugin.locator.classname": "toystore:ToyBackend",
            "plugin.additional.paths": Path(__file__).parent,
        }


@pytest.fixture(scope="module")
def harness() -> ToyHarness:
    return ToyHarness()


class TestLease(LeaseTests):
    """Deadlines of leases."""


class TestLettingGo(LettingGoTests):
    """Work that lets go on the toy store."""


class TestLifecycle(LifecycleTests):
    """Lifecycle on the toy store."""


class TestTaxonomy(TaxonomyTests):
    """Errors and capabilities on the toy store."""


class TestIsolation(IsolationTests):
    """Namespaces on the toy store."""


class TestLookalike(LookalikeTests):
    """Names that look alike."""


class TestNonce(NonceTests):
    """Nonces."""


class TestPageBound(PageBoundTests):
    """More than a page."""


class TestVerbEvent(VerbEventTests):
    """Events of each verb."""


class TestStorage(StorageTests):
    """Storage on the toy store."""


class TestNamesAndValues(NamesAndValuesTests):
    """Names and values on the toy store."""


class TestStorageRaces(StorageRaceTests):
    """Racing writers on the toy store."""


class TestStorageMachine(StorageMachineTests):
    """The toy store against a model."""


class TestDriver(DriverTests):
    """Rules of the driver."""


class TestStorageSet(StorageSetTests):
    """Storage: create or replace."""


class TestStorageVersions(StorageVersionTests):
    """Storage: versions that were never issued."""


class TestScanning(ScanningTests):
    """Reading in bulk."""


class TestValueListeners(ValueListenerTests):
    """Value listeners on the toy store."""


class TestKeySetListeners(KeySetListenerTests):
    """Key-set listeners on the toy store."""


class TestListenerCallbacks(ListenerCallbackTests):
    """Callbacks of listeners on the toy store."""


class TestMembership(MembershipTests):
    """Membership on the toy store."""


class TestIncarnations(IncarnationTests):
    """The order of joins on the toy store."""


class TestWithoutRejoin(WithoutRejoinTests):
    """Members of the toy store that are over with their session."""


class TestMembershipViews(MembershipViewTests):
    """Views of groups of the toy store."""


class TestElection(ElectionTests):
    """Elections on the toy store."""


class TestPruning(PruningTests):
    """Pruning on the toy store."""


class TestFencing(FencingTests):
    """Fencing, which the toy store does not offer."""


class TestFenceRace(FenceRaceTests):
    """Fences and the next leader at once, which the toy store refuses."""


class TestGuards(GuardTests):
    """Guards on the toy store."""


class TestGuardRace(GuardRaceTests):
    """Guards and what changes them at once."""


class TestVacancies(VacancyTests):
    """Vacancies on the toy store."""


class TestRecipes(RecipeTests):
    """Recipes on the toy store."""


class TestLineRecipes(LineRecipeTests):
    """Recipes that wait in a line on the toy store."""


class TestCoordinatorRounds(CoordinatorRoundTests):
    """Rounds of groups on the toy store."""


class TestCoordinatorFencing(CoordinatorFencingTests):
    """Writes of members of groups on the toy store."""


class TestStaticMembers(StaticMemberTests):
    """Static members of groups on the toy store."""

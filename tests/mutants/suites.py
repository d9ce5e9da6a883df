"""The suites against the backend class that $KIP30_MUTANT names, for `test_suite_bites`."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from typing_extensions import override

from kip30.config import Written
from kip30_conformance.election import ElectionTests
from kip30_conformance.election_faults import ElectionFaultTests
from kip30_conformance.fencing import FencingTests
from kip30_conformance.fork_faults import ForkTests
from kip30_conformance.harness import Harness
from kip30_conformance.lifecycle import LifecycleTests
from kip30_conformance.listeners import KeySetListenerTests, ValueListenerTests
from kip30_conformance.membership import MembershipTests
from kip30_conformance.membership_faults import MembershipFaultTests
from kip30_conformance.membership_views import MembershipViewTests
from kip30_conformance.scanning import ScanningTests
from kip30_conformance.storage import StorageTests
from kip30_conformance.storage_histories import StorageHistoryTests
from kip30_conformance.storage_races import StorageRaceTests
from kip30_conformance.storage_set import StorageSetTests
from kip30_conformance.storage_versions import StorageVersionTests
from kip30_conformance.terms import TermTests


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


@pytest.fixture
def harness(tmp_path: Path) -> MutantHarness:
    return MutantHarness(tmp_path / "state")


class TestElection(ElectionTests):
    """Election."""


class TestElectionFaults(ElectionFaultTests):
    """Election under faults."""


class TestFencing(FencingTests):
    """Fencing."""


class TestFork(ForkTests):
    """Forks."""


class TestKeySetListeners(KeySetListenerTests):
    """Key-set listeners."""


class TestLifecycle(LifecycleTests):
    """Lifecycle."""


class TestMembership(MembershipTests):
    """Membership."""


class TestMembershipFaults(MembershipFaultTests):
    """Membership under faults."""


class TestMembershipViews(MembershipViewTests):
    """Views of a group."""


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


class TestValueListeners(ValueListenerTests):
    """Value listeners."""

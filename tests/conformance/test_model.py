"""The modelled store of simulations against the conformance suite, under virtual time. D11."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager

import pytest
from typing_extensions import override

from kip30 import PluginLocator
from kip30.config import Written
from kip30_conformance.all_suites import SUITES
from kip30_conformance.fault_suites.commit_faults import CommitFaultTests
from kip30_conformance.fault_suites.controller_faults import ControllerFaultTests
from kip30_conformance.fault_suites.coordinator_crashes import CoordinatorWriteTests
from kip30_conformance.fault_suites.fork_faults import ForkTests
from kip30_conformance.fault_suites.frozen_faults import FrozenServerTests
from kip30_conformance.fault_suites.health_faults import HealthFaultTests
from kip30_conformance.fault_suites.link_faults import LinkFaultTests
from kip30_conformance.fault_suites.missed_changes import MissedChangeTests
from kip30_conformance.fault_suites.node_faults import NodeFaultTests
from kip30_conformance.fault_suites.partition_faults import PartitionFaultTests
from kip30_conformance.fault_suites.runner_faults import RunnerFaultTests
from kip30_conformance.fault_suites.share_faults import ShareFaultTests
from kip30_conformance.fault_suites.termination import TerminationTests
from kip30_conformance.fault_suites.thread_faults import ThreadFaultTests
from kip30_conformance.harness import Harness
from kip30_conformance.simulation.dialects import DIALECTS, StoreDialect
from kip30_conformance.simulation.model_client import ModelBackend
from kip30_conformance.simulation.model_service import ModelService, offered
from kip30_conformance.simulation.model_store import ModelStore
from kip30_conformance.simulation.network import Network, NetworkConditions
from kip30_conformance.simulation.present import simulation
from kip30_conformance.simulation.simulated_peer import SimulatedPeer
from kip30_conformance.suites.controller import ControllerTests
from kip30_conformance.suites.coordinate_command import ShareTests
from kip30_conformance.suites.directives import RunnerDirectiveTests
from kip30_conformance.suites.event_loops import EventLoopTests
from kip30_conformance.suites.foreign_records import NeighbourTests
from kip30_conformance.suites.health import HealthTests
from kip30_conformance.suites.once_per_key import OncePerKeyTests
from kip30_conformance.suites.round_trips import RoundTripTests
from kip30_conformance.suites.run_command import RunnerTests
from kip30_conformance.suites.scanning import ScanningTests
from tests.gate.sizes import others_large

pytestmark = [pytest.mark.virtual_time(always=True)]

_UNFIT_SUITES = {
    CommitFaultTests,
    ControllerFaultTests,
    ControllerTests,
    CoordinatorWriteTests,
    EventLoopTests,
    ForkTests,
    FrozenServerTests,
    HealthFaultTests,
    HealthTests,
    LinkFaultTests,
    MissedChangeTests,
    NeighbourTests,
    NodeFaultTests,
    OncePerKeyTests,
    PartitionFaultTests,
    RoundTripTests,
    RunnerDirectiveTests,
    RunnerFaultTests,
    RunnerTests,
    ScanningTests,
    ShareFaultTests,
    ShareTests,
    TerminationTests,
    ThreadFaultTests,
}
"""Suites about commands, signals, forks, event loops, servers, other programs, and scans."""

_UNFIT = {
    "asyncio": "it runs an event loop",
    "Q14_cancelled_await": "it runs an event loop",
    "A06_forked_child": "it forks",
    "G11_fork_safety": "it forks",
    "G11_future_of_the_parent": "it forks",
    "G42_": "it starts processes",
    "L15_wall_clock": "processes of a simulation have no wall clock of their own",
}
"""Parts of the names of other checks that need the system, and why."""


class ModelHarness(Harness):
    peer_class = SimulatedPeer

    def __init__(self, service: ModelService) -> None:
        self._service = service

    @override
    def settings(self) -> Mapping[str, Written]:
        return {
            "plugin.locator.classname": f"{ModelBackend.__module__}:{ModelBackend.__qualname__}",
            "plugin.model.store": "model",
        }

    @override
    def frozen(self) -> AbstractContextManager[None]:
        return self._service.frozen()

    @override
    def late_answers(self, client: PluginLocator) -> AbstractContextManager[None]:
        assert isinstance(client.backend, ModelBackend)
        return client.backend.link.held_answers()


@pytest.fixture(autouse=True)
def _fits(request: pytest.FixtureRequest) -> None:
    """Skip a check that needs more than one thread of the system, or thousands of claims."""
    if request.node.get_closest_marker("heavy"):
        pytest.skip("it is about the costs of a crowd, which are those of real stores")
    for part, reason in _UNFIT.items():
        if part in request.node.name:
            pytest.skip(reason)


@pytest.fixture(params=others_large(DIALECTS))
def dialect(request: pytest.FixtureRequest) -> StoreDialect:
    """Return what the modelled store does in its own way."""
    return DIALECTS[request.param]


@pytest.fixture
def harness(dialect: StoreDialect) -> Iterator[ModelHarness]:
    present = simulation()
    store = ModelStore(present, dialect)
    service = ModelService(store, Network(present, 1, NetworkConditions()))
    with offered("model", service):
        yield ModelHarness(service)


for _suite in SUITES:
    if _suite not in _UNFIT_SUITES:
        _name = "Test" + _suite.__name__.removesuffix("Tests")
        globals()[_name] = type(_name, (_suite,), {"__doc__": _suite.__doc__})

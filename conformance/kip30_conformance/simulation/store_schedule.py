"""Runs of a plan on any store of this process, behind a bad network, in place of the model."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from typing_extensions import override

from kip30.config import Properties, Written, load
from kip30.driver import Backend
from kip30.driver.records import Entry, Kind, Target
from kip30.errors import ConfigError
from kip30.runtime.resolution import Configuration, resolve
from kip30_conformance.simulation.observable_promises import OBSERVABLE_PROMISES
from kip30_conformance.simulation.plan import RunPlan
from kip30_conformance.simulation.processes import SimulatedProcess
from kip30_conformance.simulation.programs import ROOT, ClientProgram, Event
from kip30_conformance.simulation.promises import Failure
from kip30_conformance.simulation.schedule import Schedule
from kip30_conformance.simulation.stand_ins import late_modules
from kip30_conformance.simulation.store_faults import StoreFaults
from kip30_conformance.simulation.store_reader import StoreReader
from kip30_conformance.simulation.unreliable import named, unreliable

_ORIGIN = "simulation"
_OWN_STORES = "kip30_backends."
_LIBRARY = {"abc", "builtins"}

_numbers = itertools.count(1)


class SimulatedStore:
    """A store of this process for runs, in place of the model.

    Attributes:
        backend: Its class.
        prefixes: The beginnings of the names of modules that run in virtual time.
    """

    def __init__(self, configuration: Configuration, *, modules: tuple[str, ...] = ()) -> None:
        """Run on the store that *configuration* chooses.

        Args:
            configuration: As for `PluginLocator.startup`. The namespace and the timeouts are those
                of the plan.
            modules: The beginnings of the names of other modules that run in virtual time, such as
                those of a client library in Python. kip30, and the packages of the backend's class
                and of its bases, run in it anyway.

        Raises:
            ConfigError: A setting is wrong, the class is not found, or it is one of kip30's own.
        """
        self._properties: Properties = (
            configuration if isinstance(configuration, Properties) else load(configuration)
        )
        self.backend: type[Backend] = resolve(self._properties).choice.backend
        if self.backend.__module__.startswith(_OWN_STORES):
            raise ConfigError(
                f"store {self.backend.name!r} waits in the system, where there is no virtual time:"
                " `kip30 conform` tests it"
            )
        packages = dict.fromkeys(one.__module__.partition(".")[0] for one in self.backend.__mro__)
        self.prefixes = ("kip30", *(name for name in packages if name not in _LIBRARY), *modules)

    def properties(self, plan: Mapping[str, Written]) -> Properties:
        """Return the configuration of the store with that of *plan* over it."""
        return self._properties | load(plan, origin=_ORIGIN)

    def behind_network(self, plan: Mapping[str, Written], class_name: str) -> Properties:
        """Return the same for the class *class_name*, in place of the one that is configured."""
        named_otherwise = {"plugin.backend", "plugin.locator.classname"}
        others = {key: one for key, one in self._properties.items() if key not in named_otherwise}
        own = load({**plan, "plugin.locator.classname": class_name}, origin=_ORIGIN)
        return Properties(others) | own


class StoreSchedule(Schedule):
    """One run on another store than the model.

    Processes reach it over the simulated network. Promises are judged by the records that a reader
    reads on a reliable link. While the store is down, it is the network that passes nothing.
    """

    promises = OBSERVABLE_PROMISES

    def __init__(
        self,
        store: SimulatedStore,
        plan: RunPlan,
        noted: Callable[[float, str, str], object] | None = None,
    ) -> None:
        """Prepare a run of *plan* on *store*; *noted* is that of `Schedule`.

        Without locks and coordinators: what stands on the four interfaces is not the store's.
        """
        self.prefixes = store.prefixes
        super().__init__(replace(plan, has_locks=False, has_items=False, operators=0), noted)
        self.network.noted = self._note
        self._under_test = store
        self._root = f"{ROOT}-{next(_numbers)}"  # another run may have left something there
        self._class_name = ""
        self._reader = StoreReader(
            self.simulation,
            store.properties(self._own_settings()),
            opened=self._can_strike,
            has_read=self._judge,
            failed=partial(self.fail, "error"),
        )

    @override
    def run(self) -> list[Failure]:
        with named(unreliable(self._under_test.backend, self.network)) as name:
            self._class_name = name
            return super().run()

    @override
    def rows(self, kind: Kind, scope: str) -> Mapping[str, Entry]:
        return self._reader.rows.get(Target(kind, scope), {})

    @override
    def _observe_store(self) -> None:
        self._reader.start()

    @override
    def _properties(self) -> Configuration:
        return self._under_test.behind_network(self._own_settings(), self._class_name)

    @override
    def _watch(self) -> None:
        """Judge nothing before the reader has read."""

    @override
    def _new_faults(self) -> StoreFaults:
        self._store_faults = StoreFaults(self.plan, self._service, self._replace_dead)
        return self._store_faults

    @override
    def _heard(self, program: ClientProgram, event: Event) -> None:
        self._store_faults.excuse(event)
        super()._heard(program, event)

    def _can_strike(self, process: SimulatedProcess, backend: Backend) -> None:
        self._store_faults.reader = process, backend

    def _own_settings(self) -> dict[str, Written]:
        plan = self.plan
        return {
            "plugin.namespace": self._root,
            "plugin.session.timeout.ms": round(1000 * plan.session_seconds),
            "plugin.operation.timeout.ms": round(1000 * plan.operation_seconds),
            "plugin.connect.timeout.ms": 5000,
        }

    def _judge(self) -> None:
        for late in late_modules(self.prefixes):
            self.fail("error", f"{late} was imported during the run: import it with the backend")
        for promise in self._watching:
            promise.watched()

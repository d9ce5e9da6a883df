"""The class that the entry point names: connects, declares, and provides the four drivers."""

from collections.abc import Mapping

from typing_extensions import override

from kip30.driver import Backend, Capability, Context
from kip30.driver.kit.watch import Observe
from toystore.election import ToyElection
from toystore.membership import ToyMembership
from toystore.memory import memory_of
from toystore.session import Sessions
from toystore.settings import ToySettings
from toystore.storage import ToyStorage
from toystore.watch import Watches


class ToyBackend(Backend):
    """A store in the memory of one process, gone with it; its clients are those in the process."""

    name = "toy"
    settings_class = ToySettings
    capabilities = frozenset(
        {Capability.COMPARE_AND_SET, Capability.GUARDS, Capability.LISTING, Capability.FORKING}
    )

    @override
    def __init__(self, context: Context, settings: ToySettings) -> None:
        self._memory = memory_of(context.namespace, settings.capacity)
        self._sessions = Sessions(context, self._memory)
        self._watches = Watches(self._memory, self._sessions)
        self.membership = ToyMembership(self._memory, self._sessions)
        self.election = ToyElection(self._memory, self._sessions)
        self.storage = ToyStorage(self._memory, self._sessions)
        self.observe = Observe(self._watches.read, self._watches.add)
        self.faults = self._sessions  # for the suite: ends sessions

    @override
    def describe(self) -> Mapping[str, str]:
        return {"version": "1.0", "records": str(self._memory.size())}

    @override
    def close(self) -> None:
        self._watches.close()
        self._sessions.close()

"""What the entry point names: connects, declares, and hands out the four drivers."""

from collections.abc import Mapping

from typing_extensions import override

from kip30.driver import Backend, Capability, Context
from toystore.election import ToyElection
from toystore.listeners import ToyObserve
from toystore.membership import ToyMembership
from toystore.memory import memory_of
from toystore.session import Session
from toystore.settings import ToySettings
from toystore.storage import ToyStorage


class ToyBackend(Backend):
    """A store in the memory of one process, gone with it; its clients are those in the process."""

    name = "toy"
    settings_class = ToySettings
    capabilities = frozenset({Capability.COMPARE_AND_SET, Capability.LISTING, Capability.FORKING})

    @override
    def __init__(self, context: Context, settings: ToySettings) -> None:
        self._memory = memory_of(context.namespace, settings.capacity)
        self._session = Session(context, self._memory)
        self._observe = ToyObserve(self._memory, self._session)
        self.membership = ToyMembership(self._memory, self._session)
        self.election = ToyElection(self._memory, self._session)
        self.storage = ToyStorage(self._memory, self._session)
        self.observe = self._observe

    def expire_session(self) -> None:
        """End the session as the store does: the way in for tests."""
        self._session.expire()

    @override
    def describe(self) -> Mapping[str, str]:
        return {"version": "1.0", "records": str(self._memory.size())}

    @override
    def close(self) -> None:
        self._observe.close()
        self._session.close()

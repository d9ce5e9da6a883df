"""A broker that takes part in Kafka's election, and the callbacks that it has received."""

from collections.abc import Callable

from kip30 import PluginLocator
from kip30.kafka_elector import LeaderElectorAdapter
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually

SERVICE = "controller"
BECOMING = "becoming"
RESIGNING = "resigning"


class ElectorLog:
    """An adapter whose callbacks are recorded, and then run the check's own code.

    Attributes:
        adapter: The adapter.
    """

    def __init__(
        self,
        client: PluginLocator,
        broker: int = 1,
        *,
        becoming: Callable[[], object] = lambda: None,
        resigning: Callable[[], object] = lambda: None,
    ) -> None:
        """Let *broker* take part with *client*, once the adapter is started."""
        self._calls = Recorder[str]()
        self._then = {BECOMING: becoming, RESIGNING: resigning}
        self.adapter = LeaderElectorAdapter(
            lambda: self._called(BECOMING),
            lambda: self._called(RESIGNING),
            broker,
            client.leader_election(SERVICE),
        )

    @property
    def calls(self) -> list[str]:
        """The callbacks so far, in order."""
        return self._calls.events

    def expect(self, *calls: str) -> None:
        """Wait until exactly these are the callbacks so far."""
        eventually(lambda: self.calls == list(calls), what=f"{calls}, and not {self.calls}")

    def expect_leading(self) -> None:
        """Wait until the last callback was that of a term in which the broker still leads."""
        eventually(
            lambda: self.calls[-1:] == [BECOMING] and self.adapter.am_i_leader(),
            what="the broker leads",
        )

    def alternates(self) -> bool:
        """Return whether the callbacks alternate, starting with the begin of a term."""
        pairs = [BECOMING, RESIGNING] * (len(self.calls) // 2 + 1)
        return self.calls == pairs[: len(self.calls)]

    def _called(self, name: str) -> None:
        self._calls(name)
        self._then[name]()

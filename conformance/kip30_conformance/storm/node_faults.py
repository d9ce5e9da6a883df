"""Faults of the store's own servers."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from random import Random

from typing_extensions import override

from kip30_conformance.servers import Counts, Ensemble, Node
from kip30_conformance.storm.faults import Fault, Scene, state_of

Choice = Callable[[Ensemble, Random], Sequence[Node]]


def one(ensemble: Ensemble, chance: Random) -> Sequence[Node]:
    """Choose some node."""
    return [chance.choice(ensemble.nodes)]


def leader(ensemble: Ensemble, chance: Random) -> Sequence[Node]:
    """Choose the node that leads the others, or some node if none reports that it does."""
    chosen = chance.choice(ensemble.nodes)
    return [next((node for node in ensemble.nodes if node.is_leader()), chosen)]


def majority(ensemble: Ensemble, chance: Random) -> Sequence[Node]:
    """Choose enough nodes that the rest cannot continue."""
    return chance.sample(ensemble.nodes, len(ensemble.nodes) // 2 + 1)


def everyone(ensemble: Ensemble, _: Random) -> Sequence[Node]:
    """Choose all nodes."""
    return ensemble.nodes


class _NodeFault(Fault):
    """A fault of the nodes of some choice."""

    def __init__(self, scene: Scene, chance: Random, choose: Choice) -> None:
        """Hit the nodes that *choose* returns at the time."""
        super().__init__(scene, chance)
        self._choose = choose
        self._nodes: Sequence[Node] = ()

    @override
    def begin(self) -> None:
        self._nodes = self._choose(self.scene.ensemble, self.chance)
        self.target = ", ".join(f"node {node.index}" for node in self._nodes)
        self._strike()

    @abstractmethod
    def _strike(self) -> None: ...


class Killed(_NodeFault):
    """Nodes are killed with -9, and started again in the end."""

    @override
    def _strike(self) -> None:
        for node in self._nodes:
            node.kill()

    @override
    def end(self) -> None:
        pids = [(node.pid, node.restart()[1]) for node in self._nodes]
        self.evidence = ", ".join(f"pid {old} became {new}" for old, new in pids if old != new)


class Stopped(_NodeFault):
    """Nodes are stopped (SIGSTOP)."""

    @override
    def _strike(self) -> None:
        for node in self._nodes:
            node.stop()

    @override
    def end(self) -> None:
        stopped = [node.pid for node in self._nodes if state_of(node.pid) in ("T", "t")]
        for node in self._nodes:
            node.resume()
        if len(stopped) == len(self._nodes):
            self.evidence = f"stopped: pid {', '.join(map(str, stopped))}"


class Isolated(_NodeFault):
    """The other nodes and one cannot reach each other; clients still reach them all."""

    _before = Counts()

    @override
    def _strike(self) -> None:
        self._before = self._counts()
        for node in self._nodes:
            self.scene.ensemble.isolate(node)

    @override
    def end(self) -> None:
        dropped = (self._counts() - self._before).dropped
        self.scene.ensemble.heal()
        self.evidence = f"{dropped} bytes lost between nodes" if dropped else ""

    def _counts(self) -> Counts:
        return sum(self.scene.ensemble.peer_counts().values(), Counts())

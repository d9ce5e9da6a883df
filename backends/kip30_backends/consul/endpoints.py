"""Which of several servers is used: one at a time, and the next one when it fails."""

import threading
from collections.abc import Callable, Sequence

from kip30_backends.consul.library import Agent


class Endpoints:
    """The servers of one cluster. Thread-safe."""

    def __init__(self, agents: Sequence[Agent]) -> None:
        """Begin with the first of *agents*."""
        self._agents = agents
        self._at = 0
        self._lock = threading.Lock()
        self.current = agents[0]
        self.on_move: Callable[[], None] = _nothing

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._agents)

    def leave(self, agent: Agent) -> None:
        """Use another server than that of *agent*, if there is one, and keep no connection to it.

        Requests to it that are under way go on.
        """
        with self._lock:
            if agent is not self.current or len(self._agents) == 1:
                return
            self._at = (self._at + 1) % len(self._agents)
            self.current = self._agents[self._at]
            agent.http.connections.rest()
            self.current.http.connections.resume()
        self.on_move()

    def close(self) -> None:
        """End all requests and connections."""
        for agent in self._agents:
            agent.http.connections.close()

    def abandon(self) -> None:
        """In a forked child: leave all connections to the parent."""
        for agent in self._agents:
            agent.http.connections.abandon()


def _nothing() -> None:
    """Stand in until somebody wants to know."""

"""One server of an ensemble."""

import shutil
from collections.abc import Sequence

from typing_extensions import override

from kip30_conformance.servers.ports import HOST
from kip30_conformance.servers.store import NodePorts, Plan, Store
from kip30_conformance.servers.supervisor_client import SupervisorClient

_TAIL_LINES = 40


class Node:
    """One server process, which may be killed, stopped and started again.

    Attributes:
        index: Its place in `Ensemble.nodes`.
        pid: Of the process that runs, or ran last.
        pids: Of all that have run here, in their order: the evidence of restarts.
    """

    def __init__(
        self, supervisor: SupervisorClient, store: Store, command: Sequence[str], plan: Plan
    ) -> None:
        """Prepare; nothing is started before `start`."""
        self.index = plan.index
        self.pids: list[int] = []
        self._supervisor = supervisor
        self._store = store
        self._command = command
        self._plan = plan

    @property
    def pid(self) -> int:
        """The process id."""
        return self.pids[-1]

    @property
    def place(self) -> NodePorts:
        """The ports that it has."""
        return self._plan.place

    @property
    def port(self) -> int:
        """The port for clients."""
        return self.place.client

    @property
    def address(self) -> str:
        """``host:port`` for clients, without any proxy in between."""
        return f"{HOST}:{self.port}"

    def start(self) -> int:
        """Start it, with its present data, and return its pid without waiting further.

        Raises:
            WardenError: The program cannot be started.
        """
        self._plan.folder.mkdir(parents=True, exist_ok=True)
        pid: int = self._supervisor.ask(
            "launch",
            node=self.index,
            command=self._store.prepare(self._command, self._plan),
            folder=str(self._plan.folder),
            environment=dict(self._plan.environment),
        )
        self.pids.append(pid)
        return pid

    def kill(self) -> int:
        """Kill it with -9, wait until it is gone, and return the pid it had."""
        pid: int = self._supervisor.ask("kill", node=self.index)
        return pid

    def stop(self) -> int:
        """Stop it (SIGSTOP), wait until the kernel says that it has stopped; return its pid."""
        pid: int = self._supervisor.ask("stop", node=self.index)
        return pid

    def resume(self) -> int:
        """Continue it after a `stop`, and return its pid."""
        pid: int = self._supervisor.ask("resume", node=self.index)
        return pid

    def restart(self, *, empty: bool = False) -> tuple[int, int]:
        """Kill it if it runs, and start it again; return the old and the new pid.

        This does not wait until it serves: see `Ensemble.await_ready`.

        Args:
            empty: Remove its data in between.
        """
        old = self.kill()
        if empty:
            shutil.rmtree(self._plan.data, ignore_errors=True)
        return old, self.start()

    def is_alive(self) -> bool:
        """Return whether its process exists, even if it is stopped."""
        return self._supervisor.ask("status", node=self.index) is None

    def is_ready(self) -> bool:
        """Return whether it serves clients right now."""
        return self._store.is_ready(self.place)

    def is_leader(self) -> bool:
        """Return whether it reports that it leads; alone, it always does."""
        return self._store.is_leader(self.place)

    def compact(self) -> None:
        """Make the store forget its history; see `Ensemble.compact`."""
        self._store.compact(self.place)

    def log_tail(self, lines: int = _TAIL_LINES) -> str:
        """Return the end of its log."""
        log = self._plan.folder / "log"
        if not log.exists():
            return ""
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])

    @override
    def __repr__(self) -> str:
        return f"<node {self.index} at {self.address}>"

"""The simulation that runs in this process now."""

from kip30_conformance.simulation.scheduler import SimulatedThread, Simulation


class _Present:
    """Where stand-ins find it.

    Attributes:
        simulation: None while none runs.
    """

    simulation: Simulation | None = None


def simulation() -> Simulation:
    """Return it.

    Raises:
        RuntimeError: None runs.
    """
    found = _Present.simulation
    if found is None:
        raise RuntimeError("no simulation runs: this object belongs to one that has ended")
    return found


def enter(entered: Simulation) -> None:
    """Let *entered* run.

    Raises:
        RuntimeError: Another one does.
    """
    if _Present.simulation is not None:
        raise RuntimeError("a simulation runs already")
    _Present.simulation = entered


def leave() -> None:
    """Let none run."""
    _Present.simulation = None


def running_thread() -> SimulatedThread:
    """Return the thread that runs.

    Raises:
        RuntimeError: An event runs, which must not block.
    """
    thread = simulation().current
    if thread is None:
        raise RuntimeError("an event of the simulation must not block")
    return thread


def clock() -> float:
    """Return what the clock of the running process shows; for events, the virtual time."""
    thread = simulation().current
    return simulation().now if thread is None else thread.process.now()

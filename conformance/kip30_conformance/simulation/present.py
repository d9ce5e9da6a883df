"""The simulation that runs in this process now, and the system's thread that it runs in."""

import threading
from typing import Final

from kip30_conformance.simulation.processes import SimulatedThread
from kip30_conformance.simulation.scheduler import Simulation

OUTSIDE: Final = "outside of any simulation"
"""The holder of a lock that is acquired where no simulation runs."""


class _Present:
    """The place where stand-ins find the simulation.

    Attributes:
        simulation: None while none runs.
        ident: The number of the system's thread that it runs in. All others are no part of it.
    """

    simulation: Simulation | None = None
    ident: int = 0


def found() -> Simulation | None:
    """Return the simulation; None if none runs in the calling thread of the system."""
    return _Present.simulation if threading.get_ident() == _Present.ident else None


def simulation() -> Simulation:
    """Return the simulation.

    Raises:
        RuntimeError: None runs in this thread of the system.
    """
    present = found()
    if present is not None:
        return present
    if _Present.simulation is None:
        raise RuntimeError("no simulation runs: this object belongs to one that has ended")
    raise RuntimeError("this object belongs to a simulation, which runs in another thread")


def enter(entered: Simulation) -> None:
    """Let *entered* run in the calling thread of the system.

    Raises:
        RuntimeError: Another one does.
    """
    if _Present.simulation is not None:
        raise RuntimeError("a simulation runs already")
    _Present.ident = threading.get_ident()
    _Present.simulation = entered


def leave() -> None:
    """Leave the simulation, so that none runs."""
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


def holder(present: Simulation | None) -> object:
    """Return what holds a lock that is acquired now, where `found` has returned *present*.

    Objects outlive their simulation, and finalizers take their locks.
    """
    return OUTSIDE if present is None else present.current or present


def clock() -> float:
    """Return what the clock of the running process shows; for events, the virtual time."""
    present = simulation()
    present.count_step()
    thread = present.current
    return present.now if thread is None else thread.process.now()

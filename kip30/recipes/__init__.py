"""Recipes over the four interfaces: locks, semaphores, barriers and counters that clients share.

They work on every store; `kip30.recipes.aio` offers them for asyncio.
"""

from kip30.recipes.barrier import Barrier
from kip30.recipes.counter import Counter
from kip30.recipes.grips import FencedGrip, Grip
from kip30.recipes.lock import Holder, Lock
from kip30.recipes.read_write_lock import ReadWriteLock
from kip30.recipes.semaphore import Semaphore

__all__ = [
    "Barrier",
    "Counter",
    "FencedGrip",
    "Grip",
    "Holder",
    "Lock",
    "ReadWriteLock",
    "Semaphore",
]

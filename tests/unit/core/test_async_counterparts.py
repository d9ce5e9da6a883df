"""Parity of interfaces: everything offered for threads is offered for event loops, too."""

import inspect
import re

import pytest

from kip30 import (
    GroupMembership,
    LeaderElection,
    Leadership,
    ListenerRegistry,
    Member,
    PluginLocator,
    Storage,
)
from kip30.aio import (
    AsyncGroupMembership,
    AsyncLeaderElection,
    AsyncLeadership,
    AsyncListenerRegistry,
    AsyncMember,
    AsyncPluginLocator,
    AsyncStorage,
)
from kip30.recipes import Barrier, Counter, FencedGrip, Grip, Lock, ReadWriteLock, Semaphore
from kip30.recipes.aio import (
    AsyncBarrier,
    AsyncCounter,
    AsyncFencedGrip,
    AsyncGrip,
    AsyncLock,
    AsyncReadWriteLock,
    AsyncSemaphore,
)

_HOLDABLE = dict.fromkeys(("on_work_begun", "on_work_done"), "for the library")
_WORK = dict.fromkeys(("begin_work", "end_work"), "for the library")
_STEP_DOWN = dict.fromkeys(("request_step_down", "on_step_down"), "for the library")
_BLOCK = dict.fromkeys(("enter_block", "leave_block"), "for the library")
_GRIP = dict.fromkeys(("held", "begin_release"), "for the library")
OTHERWISE = {
    PluginLocator: {"startup": "entering the block opens it", "context": "`locator.context`"},
    Member: {"over": "`lost` is awaited", "lease": "for the library", **_HOLDABLE},
    Leadership: {
        "over": "`lost` is awaited",
        "lease": "for the library",
        **_HOLDABLE,
        **_WORK,
        **_STEP_DOWN,
    },
    Storage: {"last_write": "for the library"},
    Grip: {**_GRIP, **_BLOCK},
    FencedGrip: {**_GRIP, **_BLOCK},
}
"""Names that event loops offer in another way, with the reason."""

INTERNAL = {"end", "lost_error"}


_ATTRIBUTE = re.compile(r"^        (\w+): ", re.MULTILINE)


def _names(kind: type) -> set[str]:
    members = {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}
    return members.union(*map(_documented, inspect.getmro(kind))) - INTERNAL


def _documented(kind: type) -> set[str]:
    """Return the attributes that the docstring names; those that a constructor sets are no member.

    They are after ``Attributes:``, and nothing else is.
    """
    _, _, attributes = (kind.__doc__ or "").partition("\n    Attributes:\n")
    return {name for name in _ATTRIBUTE.findall(attributes) if not name.startswith("_")}


COUNTERPARTS = [
    (PluginLocator, AsyncPluginLocator),
    (GroupMembership, AsyncGroupMembership),
    (LeaderElection, AsyncLeaderElection),
    (ListenerRegistry, AsyncListenerRegistry),
    (Storage, AsyncStorage),
    (Member, AsyncMember),
    (Leadership, AsyncLeadership),
    (Grip, AsyncGrip),
    (FencedGrip, AsyncFencedGrip),
    (Lock, AsyncLock),
    (ReadWriteLock, AsyncReadWriteLock),
    (Semaphore, AsyncSemaphore),
    (Barrier, AsyncBarrier),
    (Counter, AsyncCounter),
]


@pytest.mark.parametrize(("threads", "loops"), COUNTERPARTS)
def test_a_loop_has_what_a_thread_has(threads: type, loops: type) -> None:
    missing = _names(threads) - _names(loops)
    assert missing == OTHERWISE.get(threads, {}).keys()


def _parameters(method: object) -> set[str]:
    if not callable(method):
        return set()
    return set(inspect.signature(method).parameters) - {"callback"}  # here it is a `listener`


@pytest.mark.parametrize(("threads", "loops"), COUNTERPARTS)
def test_its_methods_take_what_the_others_take(threads: type, loops: type) -> None:
    for name in _names(threads) & _names(loops):
        offered = _parameters(getattr(loops, name, None))
        missing = _parameters(getattr(threads, name, None)) - offered
        assert not missing, f"{name}: {missing}"

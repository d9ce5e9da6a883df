"""Threads that gevent or eventlet has replaced, where a store cannot work with them."""

import sys
from typing import Any

from kip30.driver import Backend
from kip30.errors import UnsupportedError

_REMEDY = "use it in a process without that, such as a worker of another class"


def check_threads(store: type[Backend]) -> None:
    """Return unless threads are replaced in this process in a way that *store* cannot work with.

    Neither library is imported for that.

    Raises:
        UnsupportedError: They are. Nothing was opened.
    """
    eventlet: Any = sys.modules.get("eventlet.patcher")
    if eventlet is not None and any(map(eventlet.is_monkey_patched, ("thread", "select"))):
        raise UnsupportedError(
            f"eventlet.monkey_patch() was called, and kip30 needs poll: {_REMEDY}"
        )
    gevent: Any = sys.modules.get("gevent.monkey")
    if store.needs_system_threads and gevent is not None and gevent.is_module_patched("threading"):
        raise UnsupportedError(
            f"gevent.monkey has replaced threads, and the library of store {store.name!r} would"
            f" block them all: {_REMEDY}, or use another store"
        )

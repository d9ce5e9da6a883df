"""Faults for the core's tests: the embedded store causes them itself, on purpose."""

import threading
from typing import Any

from kip30 import PluginLocator
from kip30_backends.embedded.faults import Faults


def faults(client: PluginLocator) -> Faults:
    hook: Any = client.backend
    injected: Faults = hook.faults
    return injected


def has_arrived() -> bool:
    """Say whether all that was delayed has been done."""
    return all(thread.name != "kip30-embedded-delay" for thread in threading.enumerate())

"""Faults for the core's tests: the embedded store causes them itself, on purpose."""

from typing import Any

from kip30 import PluginLocator
from kip30_backends.embedded.faults import Faults


def faults(client: PluginLocator) -> Faults:
    hook: Any = client.backend
    injected: Faults = hook.faults
    return injected

"""Faults for the core's tests."""

import threading

from kip30 import PluginLocator
from tests.embedded_faults import EmbeddedFaults, faults_of


def faults(client: PluginLocator) -> EmbeddedFaults:
    """Return the faults of *client*, which uses the embedded store."""
    return faults_of(client.backend)


def has_arrived() -> bool:
    """Return whether all that was delayed has been done."""
    return all(thread.name != "kip30-conformance-delay" for thread in threading.enumerate())

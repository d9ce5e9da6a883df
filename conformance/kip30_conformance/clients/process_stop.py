"""Stopping a client's process, but not in a write that keeps the store locked for all others."""

import os
import signal
from collections.abc import Mapping
from typing import Final

import psutil

from kip30 import OutcomeUnknownError, PluginLocator, UnavailableError
from kip30.config import Written
from kip30_conformance.polling import time_scale

_PROBE_MS = 1_000
"""Time within which a write that no stopped process keeps out is done."""
_SESSION_MS = 10_000
"""A session timeout that every store takes."""

_locking: Final[dict[str, bool]] = {}
"""Whether a process locks the store while it writes, by the name of the store."""


class ProcessStop:
    """Stops processes (SIGSTOP) that are clients of one store.

    Some stores are files that a process locks while it writes (`ClientFaults`, ``between_writes``).
    If it is stopped meanwhile, the store stands still for all: another fault than the one that a
    check asks for. Then the process is continued, and stopped again.
    """

    def __init__(self, properties: Mapping[str, Written]) -> None:
        """Stop clients with *properties*; open one, unless that store was asked before."""
        self._properties = properties
        self._may_lock = _may_lock(properties)

    def send(self, process: psutil.Popen, number: int) -> None:
        """Send *process* a signal; if that stops it, as `stop` does."""
        if number == signal.SIGSTOP:
            self.stop(process.pid)
        else:
            process.send_signal(number)

    def stop(self, pid: int) -> None:
        """Stop the child process *pid* as `stop_process` does, and in no write."""
        stop_process(pid)
        may_lock = self._may_lock
        while may_lock and self._is_locked():
            os.kill(pid, signal.SIGCONT)
            may_lock = not self._is_locked()  # else it is another one that does
            stop_process(pid)

    def _is_locked(self) -> bool:
        """Return whether a write of another client is kept out; it waits for its turn a while."""
        milliseconds = int(_PROBE_MS * max(1.0, time_scale()))
        properties: dict[str, Written] = {
            **self._properties,
            "plugin.namespace": f"{self._properties.get('plugin.namespace', 'kip30')}-stops",
            "plugin.operation.timeout.ms": milliseconds,
            "plugin.connect.timeout.ms": milliseconds,
            # No session is opened, but none may be shorter than an operation.
            "plugin.session.timeout.ms": max(milliseconds, _SESSION_MS),
        }
        try:
            with PluginLocator().startup(properties) as client:
                client.storage().set("probe", "")
        except (UnavailableError, OutcomeUnknownError):
            return True
        return False


def _may_lock(properties: Mapping[str, Written]) -> bool:
    """Return whether processes lock the store of *properties*; false if it does not answer."""
    name = str(properties.get("plugin.backend") or properties.get("plugin.locator.classname"))
    if name not in _locking:
        try:
            with PluginLocator().startup(properties) as client:
                faults = getattr(client.backend, "faults", None)
                _locking[name] = hasattr(faults, "between_writes")
        except UnavailableError:
            return False
    return _locking[name]


def stop_process(pid: int) -> None:
    """Stop the child process *pid*, and wait until the kernel says that it has stopped."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED)

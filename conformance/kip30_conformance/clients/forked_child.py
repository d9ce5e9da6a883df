"""The children that `fork_main` forks: their work, their ends, and their reports."""

import json
import multiprocessing
import os
import select
import signal
import sys
import threading
import time
from multiprocessing.process import BaseProcess
from typing import Any

from kip30 import Fence, PluginLocator
from kip30_conformance.polling import time_scale

CHILD_SECONDS = 20.0
EVENT_SECONDS = 10.0
TERM_SECONDS = 0.02
_EXIT_SECONDS = 5.0
_SERVICE = "forks"

Properties = dict[str, str]


class ChildReport:
    """The lines that a child reports to its parent, as long as it lives."""

    def __init__(self, descriptor: int) -> None:
        """Write to *descriptor*."""
        self._descriptor = descriptor

    def tell(self, what: str, value: object) -> None:
        """Report *value* as *what*."""
        os.write(self._descriptor, json.dumps([what, value]).encode() + b"\n")


def use_fully(properties: Properties, number: int, report: ChildReport) -> None:
    """Run as a child: start a locator, use everything it offers, and close it."""
    begun = time.monotonic()
    with PluginLocator().startup(properties) as own:
        report.tell("started", time.monotonic() - begun)
        storage, key = own.storage(), f"children/{number}"
        storage.put(key, "1")
        report.tell("acknowledged", key)
        heard = threading.Event()
        registry = own.listener_registry()
        registry.add_value_change_listener(
            key, lambda change: heard.set() if change.value else None
        )
        storage.update(key, "2")
        assert storage.fetch(key).result(EVENT_SECONDS * time_scale()) == "2"
        assert heard.wait(EVENT_SECONDS * time_scale()), "a listener was not called"
        report.tell("listened", value=True)
        lead(own, f"child-{number}", report)
    report.tell("closed", value=True)


def lead(own: PluginLocator, name: str, report: ChildReport) -> None:
    """Lead for a moment, with a fenced write."""
    election, storage = own.leader_election(_SERVICE), own.storage()
    with election.lead(name, "", timeout_seconds=EVENT_SECONDS * time_scale()) as term:
        first = last = now = time.monotonic()
        while now < first + TERM_SECONDS and term.is_valid():
            # Read before the request, so that the answer covers all up to it.
            last, now = now, time.monotonic()
        report.tell("led", [term.epoch, first, last])
        key = f"fenced/{term.epoch}"
        storage.put(key, name, fence=Fence(_SERVICE, term.epoch))
        report.tell("acknowledged", key)


class Child:
    """A forked child, seen by its parent."""

    def __init__(self, properties: Properties, number: int, how: str) -> None:
        """Fork it; it ends *how*."""
        self._how = how
        self._begun = time.monotonic()
        self._reading, writing = os.pipe()
        self._process: BaseProcess | None = None
        self._status: int | None = None
        if how == "process":
            self._process = _process(properties, number, writing)
            self._process.start()
        self.pid = (self._process and self._process.pid) or _forked(
            properties, number, how, writing
        )
        os.close(writing)

    def wait(self) -> dict[str, Any]:
        """Return what it printed, and how long it took; end it if it hangs."""
        output = self._read_output()
        hung = not self._is_gone()
        if hung:
            os.kill(self.pid, signal.SIGKILL)
            self._is_gone()
        lines = [json.loads(line) for line in output.splitlines()]
        return {
            "how": self._how,
            "hung": hung,
            "exit": self._status,
            "seconds": time.monotonic() - self._begun,
            "lines": lines,
        }

    def _read_output(self) -> bytes:
        """Read until the child closes its end, or takes too long, or is to be killed."""
        output = b""
        until = self._begun + CHILD_SECONDS * time_scale()
        with os.fdopen(self._reading, "rb", buffering=0) as reading:
            while (left := until - time.monotonic()) > 0:
                if select.select([reading], [], [], left)[0]:
                    if not (chunk := reading.read(65536)):
                        break
                    output += chunk
                    if self._how == "killed" and b"led" in output:
                        os.kill(self.pid, signal.SIGKILL)
        return output[: output.rfind(b"\n") + 1]

    def _is_gone(self) -> bool:
        if self._process is not None:
            self._process.join(_EXIT_SECONDS * time_scale())
            self._status = self._process.exitcode
            return self._status is not None
        until = time.monotonic() + _EXIT_SECONDS * time_scale()
        while time.monotonic() < until:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self._status = os.waitstatus_to_exitcode(status)
                return True
            time.sleep(0.005)
        return False


def _forked(properties: Properties, number: int, how: str, writing: int) -> int:
    if pid := os.fork():
        return pid
    _live(properties, number, writing)
    if how == "exit at once":
        os._exit(0)
    os.close(writing)
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123  until the end
    if how == "raise":
        raise RuntimeError("how this child ends")
    sys.exit()


def _process(properties: Properties, number: int, writing: int) -> BaseProcess:
    context = multiprocessing.get_context("fork")
    return context.Process(target=_live, args=(properties, number, writing))


def _live(properties: Properties, number: int, writing: int) -> None:
    report = ChildReport(writing)
    try:
        use_fully(properties, number, report)
    except BaseException as error:  # noqa: BLE001  the parent wants to know
        report.tell("error", f"{type(error).__name__}: {error}")

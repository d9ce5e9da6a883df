"""Real brokers, each a process of `kip30_conformance.clients.controller`, and their output."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import psutil
from typing_extensions import override

from kip30.config import Written
from kip30.driver.closeable import Closeable
from kip30_conformance.clients import controller, ends_with_parent
from kip30_conformance.clients.process_stop import ProcessStop
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.settings_memfd import PrivateSettings

_END_SECONDS = 30.0
_CONTROLLER = re.compile(r"^controller, epoch (\d+)$", re.MULTILINE)
_STATE = re.compile(r"^(state/\S+) is .*, controller epoch (\d+)$", re.MULTILINE)


class SeenState(NamedTuple):
    """One state of a topic that a broker followed."""

    key: str
    epoch: int


class BrokerProcess:
    """A broker that was started."""

    def __init__(
        self, broker: int, output: Path, settings: PrivateSettings, stop: ProcessStop
    ) -> None:
        """Start *broker* with *settings*; its output goes to *output*.

        It is killed when this process ends, or the calling thread.
        """
        self.broker = broker
        self._output = output
        self._stop = stop
        tie = [sys.executable, "-I", "-S", ends_with_parent.__file__, str(os.getpid())]
        program = [sys.executable, "-m", controller.__name__]
        words = [*program, f"--broker={broker}", f"--config={settings.path}"]
        with output.open("wb") as stdout:
            self._process = psutil.Popen(
                [*tie, *words],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stdout,
                pass_fds=[settings.descriptor],
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def printed(self) -> str:
        """Its output so far, without an unfinished line."""
        return self._output.read_text().rpartition("\n")[0]

    def epochs(self) -> list[int]:
        """Return the epochs in which it became the controller."""
        return [int(epoch) for epoch in _CONTROLLER.findall(self.printed)]

    def states(self) -> list[SeenState]:
        """Return the states that it followed, in order."""
        return [SeenState(key, int(epoch)) for key, epoch in _STATE.findall(self.printed)]

    def send(self, number: int) -> None:
        """Send it a signal; after a stop, wait until it has stopped, in no write."""
        self._stop.send(self._process, number)

    def ended_by(self, number: int) -> int:
        """Send it a signal, wait until it has ended, and return its exit status."""
        self._process.send_signal(number)
        return self._process.wait(_END_SECONDS * time_scale())

    def end(self) -> None:
        """Kill it, if it has not ended, and wait until it is gone."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._process.kill()
        self._process.wait()


class BrokerCluster(Closeable):
    """Brokers of one store, and a file for the output of each process."""

    def __init__(self, folder: Path, properties: Mapping[str, Written]) -> None:
        """Start without brokers."""
        self._folder = folder
        self._settings = PrivateSettings(properties)
        self._stop = ProcessStop(properties)
        self._started: list[BrokerProcess] = []

    def start(self, *brokers: int) -> list[BrokerProcess]:
        """Start these *brokers*, which must have ended if they were started before."""
        return [self._start(broker) for broker in brokers]

    def controller(self, after: int = 0, *, within: float = 30.0) -> tuple[BrokerProcess, int]:
        """Wait for a controller with an epoch above *after*; return it and its epoch."""

        def find() -> tuple[BrokerProcess, int] | None:
            terms = [(epoch, one) for one in self._started for epoch in one.epochs()]
            newest = max(terms, key=lambda term: term[0], default=None)
            return (newest[1], newest[0]) if newest is not None and newest[0] > after else None

        return eventually(find, within=within, what=f"a controller after epoch {after}")

    def expect_rising_states(self) -> None:
        """Require that no broker has followed a state of a controller whose term had ended."""
        for one in self._started:
            newest: dict[str, int] = {}
            for key, epoch in one.states():
                assert epoch >= newest.get(key, 0), one.printed
                newest[key] = epoch
            assert " refused: " not in one.printed

    @override
    def close(self) -> None:
        """End all brokers."""
        for one in self._started:
            one.end()
        self._settings.close()

    def _start(self, broker: int) -> BrokerProcess:
        output = self._folder / f"{broker}-{len(self._started)}"
        self._started.append(BrokerProcess(broker, output, self._settings, self._stop))
        return self._started[-1]

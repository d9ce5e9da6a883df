"""The process of one client of a storm: ``python -m`` this module.

It receives its orders as JSON lines on its standard input, the first of which names it, and reports
as JSON lines on its standard output. It ends when its input does, and is killed by the kernel when
the process that started it is.
"""

import ctypes
import json
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from kip30 import Kip30Error, PluginLocator
from kip30_conformance.process_resources import expect_no_more_than, resources_held
from kip30_conformance.storm.call_log import CallTimer
from kip30_conformance.storm.history_files import Slices
from kip30_conformance.storm.participant import Participant
from kip30_conformance.storm.process_journal import ProcessJournal
from kip30_conformance.storm.workload import ActionContext

_REPORT_SECONDS = 1.0
_SET_PARENT_DEATH_SIGNAL = 1
_PATIENCE = 3


class Client:
    """Carries out orders; each public method is one."""

    def __init__(self, process: str, folder: str, config: dict[str, str], **times: float) -> None:
        """Write to *folder*, and open the store as *config* says."""
        self._folder = Path(folder)
        self._config = config
        self._limit = times["limit"]
        self._slices = Slices(times["started"], times["slice"])
        self._members = int(times["members"])
        self._clients = int(times["clients"])
        self._pause_factor = times["pause_factor"]
        self._journal = ProcessJournal(self._folder / "journals", process)
        self._calls = CallTimer(self._journal, self._limit)
        self._over = threading.Event()
        # None before it is started, and after `close`. The thread that reports reads it.
        self._participant: Participant | None = None
        self._reporting = threading.Thread(target=self._report, daemon=True)
        self._reporting.start()
        # After a first call, a store's library has everything that it keeps forever.
        self._opened().close()
        self._before = resources_held()
        self._locator = self._opened()
        participant = Participant(self._action_context(), self._folder)
        participant.start()
        self._participant = participant
        self._journal.write("started", descriptors=len(self._before.descriptors))

    def expire(self) -> None:
        """End the session in the store, on a thread that may wait for that."""
        threading.Thread(target=self._expire, daemon=True).start()

    def quiet(self) -> None:
        """Stop writing."""
        self._end_of("quiet", Participant.fall_quiet)

    def close(self) -> None:
        """End everything, and report what is left."""
        self._end_of("end", Participant.end)
        self._guarded("close", self._locator.close)
        self._participant = None
        del self._locator
        self._journal.write("left behind", text=self._left_behind())
        self._over.set()
        self._reporting.join()
        self._calls.close()
        self._journal.close()

    def _opened(self) -> PluginLocator:
        while True:
            try:
                return PluginLocator().startup(self._config)
            except Kip30Error as error:
                self._journal.write("not opened", error=str(error))
                self._over.wait(_REPORT_SECONDS / 5)

    def _action_context(self) -> ActionContext:
        return ActionContext(
            process=self._journal.process,
            locator=self._locator,
            calls=self._calls,
            journal=self._journal,
            history=self._folder / "history",
            slices=self._slices,
            members=self._members,
            clients=self._clients,
            pause_factor=self._pause_factor,
        )

    def _expire(self) -> None:
        if self._participant is not None:
            self._participant.expire()

    def _guarded(self, kind: str, work: Any) -> None:
        with self._calls.call(kind):
            work()

    def _end_of(self, what: str, end: Callable[[Participant, float], list[str]]) -> None:
        participant = self._participant
        if participant is not None:
            seconds = max(_PATIENCE * self._limit, participant.longest_limit)
            for name in end(participant, seconds):
                self._journal.write("stuck", kind=name, seconds=seconds, text="")
        _say(what=what)

    def _left_behind(self) -> str:
        try:
            expect_no_more_than(self._before, within=_PATIENCE * self._limit)
        except AssertionError as error:
            return str(error)
        return ""

    def _report(self) -> None:
        try:
            self._report_repeatedly()
        except Exception as error:  # noqa: BLE001  nothing is measured from now on
            self._calls.record_broken("report", error)

    def _report_repeatedly(self) -> None:
        this = psutil.Process()
        has_begun = False
        while not self._over.wait(_REPORT_SECONDS):
            self._calls.look()
            participant = self._participant
            if not has_begun and participant is not None and participant.has_begun():
                has_begun = True
                _say(what="working")
            self._journal.write(
                "holds",
                threads=this.num_threads(),
                descriptors=this.num_fds(),
                bytes=this.memory_info().rss,
                names=Counter(thread.name for thread in threading.enumerate()),
            )
            _say(what="counts", **self._calls.counted())


def _say(**words: Any) -> None:
    sys.stdout.write(f"{json.dumps(words)}\n")
    sys.stdout.flush()


def main() -> None:
    """Carry out orders until there are no more."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    order = json.loads(sys.stdin.readline())
    _say(what="running")
    client = Client(**order)
    _say(what="ready")
    for line in sys.stdin:
        verb = json.loads(line)["verb"]
        getattr(client, verb)()
        if verb == "close":
            break
    _say(what="over")


if __name__ == "__main__":
    main()

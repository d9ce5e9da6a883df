"""The clients of a storm, seen from outside: started, killed, stopped, and given orders."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kip30_conformance.clients.process_stop import stop_process
from kip30_conformance.servers import Link
from kip30_conformance.storm.names import client_name
from kip30_conformance.storm.process_journal import Row, read_journal
from kip30_conformance.storm.timing import Timing


class ClientProcess:
    """One client: a process, and after a kill the next one, which reach the store by one link.

    Attributes:
        link: The way of this client alone.
        pids: Of all its processes, in their order.
        deaths: Processes that ended by themselves.
    """

    def __init__(
        self, name: str, link: Link, folder: Path, settings: Mapping[str, str], times: Any
    ) -> None:
        """Prepare; nothing is started before `start`."""
        self.name = name
        self.link = link
        self.pids: list[int] = []
        self.deaths: list[str] = []
        self._folder = folder
        self._settings = settings
        self._times = times
        self._process: subprocess.Popen[str] | None = None
        self._listening = threading.Thread()
        self._said: dict[str, Any] = {}
        self._earlier: Counter[str] = Counter()

    @property
    def process(self) -> str:
        """The name of the process that runs now, or ran last."""
        return f"{self.name}.{len(self.pids)}"

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.pids[-1]

    def start(self) -> None:
        """Start a process; it is not waited for."""
        self._said = {}
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kip30_conformance.storm.client"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is not for it
            )
        self.pids.append(self._process.pid)
        self._listening = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
        self._listening.start()
        config = {**self.link.settings(), **self._settings}
        folder = str(self._folder)
        self._tell(process=self.process, folder=folder, config=config, **self._times)

    def kill(self) -> int:
        """Kill the process with -9, wait until it is gone, and return the pid it had."""
        process = self._running()
        process.kill()
        self._forget(process)
        return process.pid

    def stop(self) -> None:
        """Stop the process, and wait until the kernel says that it has stopped."""
        stop_process(self.pid)

    def resume(self) -> None:
        """Continue it."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    def journal(self) -> list[Row]:
        """Return the journal of the present process so far."""
        return read_journal(self._folder / "journals" / f"{self.process}.jsonl")

    def tell(self, verb: str) -> None:
        """Give the process an order, without waiting for more."""
        self._tell(verb=verb)

    def has_said(self, what: str) -> bool:
        """Return whether the process has reported *what*."""
        return what in self._said

    def look(self) -> None:
        """If the process has died by itself, record that, and start the next one."""
        process = self._process
        if process is None or process.poll() is None:
            return
        self._listening.join()  # otherwise its last report could be missed
        if self.has_said("over"):
            return  # it was asked to close; others may still follow
        self.deaths.append(f"{self.process} ended with {process.returncode}")
        self._forget(process)
        self.start()

    def counted(self) -> Counter[str]:
        """Return the number of calls by outcome, in all processes so far."""
        return self._earlier + self.counted_now()

    def counted_now(self) -> Counter[str]:
        """Return the number of calls of the present process by outcome."""
        ended: Mapping[str, Mapping[str, int]] = self._said.get("counts", {}).get("ended", {})
        return sum((Counter(counts) for counts in ended.values()), Counter[str]())

    def end(self) -> None:
        """Kill the process, if there is one, and close the link."""
        if self._process is not None:
            self.kill()

    def _forget(self, process: "subprocess.Popen[str]") -> None:
        process.wait()
        self._listening.join()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        self._earlier += self.counted_now()
        self._said = {}
        self._process = None

    def _running(self) -> "subprocess.Popen[str]":
        assert self._process is not None, f"{self.name} does not run"
        return self._process

    def _tell(self, **words: Any) -> None:
        stdin = self._running().stdin
        assert stdin is not None
        with suppress(BrokenPipeError):
            stdin.write(f"{json.dumps(words)}\n")
            stdin.flush()

    def _listen(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            words = json.loads(line)
            if process is self._process:
                self._said[words["what"]] = words


class Clients:
    """All clients of a storm."""

    def __init__(
        self,
        links: list[Link],
        folder: Path,
        settings: Mapping[str, str],
        timing: Timing,
        *,
        members: int = 0,
    ) -> None:
        """Start a client on each of *links*; together they have *members* members.

        The clients have equally many members of the group that divides items, or one more.
        """
        times = {
            "limit": timing.limit,
            "pause_factor": timing.pause_factor,
            "slice": timing.slice,
            "clients": len(links),
            "started": time.monotonic(),
        }
        self.processes = [
            ClientProcess(
                client_name(number),
                link,
                folder,
                settings,
                {**times, "members": len(range(number, members, len(links)))},
            )
            for number, link in enumerate(links)
        ]
        for client in self.processes:
            client.start()

    @property
    def names(self) -> list[str]:
        """The names of the clients, as members and candidates."""
        return [client.name for client in self.processes]

    def tell(self, verb: str) -> None:
        """Give every client an order."""
        for client in self.processes:
            client.tell(verb)

    def have_said(self, what: str) -> bool:
        """Return whether every client has reported *what*."""
        return all(client.has_said(what) for client in self.processes)

    def look(self) -> None:
        """Replace clients that have died."""
        for client in self.processes:
            client.look()

    def counted(self) -> Counter[str]:
        """Return the number of calls of all clients by outcome."""
        return sum((client.counted() for client in self.processes), Counter[str]())

    def deaths(self) -> list[str]:
        """Return the clients that have died by themselves."""
        return [death for client in self.processes for death in client.deaths]

    def end(self) -> None:
        """Kill all clients."""
        for client in self.processes:
            client.end()

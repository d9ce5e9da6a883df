"""The runner over a contest of two files. Started as a program by the tests.

The contest is real: a session is a lock that the kernel drops when its last holder dies, a
term also ends when its deadline passes, and whoever reads the record under the mutex decides.
"""

import argparse
import fcntl
import json
import os
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from kip30.driver.clock import SystemClock
from kip30.driver.lease import Lease
from kip30.errors import UnavailableError
from kip30.runner import Contest, Job, Term, inherited_descriptors, run

CLOCK = SystemClock()
MARGIN_PART = 10
RENEWALS_PER_TIMEOUT = 3
POLL_SECONDS = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    epoch: int = 0
    session: str = ""
    deadline: float = 0.0


class Register:
    """One record in a folder, changed under a mutex."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def mutex(self) -> Generator[None]:
        with (self.folder / "mutex").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def read(self) -> Record:
        try:
            return Record(**json.loads((self.folder / "record").read_text()))
        except FileNotFoundError:
            return Record()

    def write(self, epoch: int, session: str, deadline: float) -> None:
        record = {"epoch": epoch, "session": session, "deadline": deadline}
        fresh = self.folder / f"fresh-{os.getpid()}"
        fresh.write_text(json.dumps(record))
        fresh.rename(self.folder / "record")

    def is_free(self) -> bool:
        record = self.read()
        if not record.session or CLOCK.now() >= record.deadline:
            return True
        with (self.folder / record.session).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True


class FileTerm(Term):
    def __init__(self, epoch: int, lease: Lease) -> None:
        self._epoch = epoch
        self.lease = lease
        self._lost = threading.Event()
        self._step_down_requested = threading.Event()
        lease.on_end(self._lost.set)

    @property
    @override
    def epoch(self) -> int:
        return self._epoch

    @property
    @override
    def deadline(self) -> float:
        return self.lease.deadline

    @property
    @override
    def timeout_seconds(self) -> float:
        return self.lease.timeout_seconds

    @property
    @override
    def lost(self) -> threading.Event:
        return self._lost

    @property
    @override
    def ending_reason(self) -> str:
        return self.lease.end_reason or self.lease.lateness

    @property
    @override
    def step_down_requested(self) -> threading.Event:
        return self._step_down_requested

    @override
    def is_valid(self) -> bool:
        return self.lease.is_valid()


class FileContest(Contest):
    def __init__(self, folder: Path, timeout: float) -> None:
        self._register = Register(folder)
        self._timeout = timeout
        self._session = (folder / f"session-{os.getpid()}").open("w")
        fcntl.flock(self._session, fcntl.LOCK_EX)
        self._name = Path(self._session.name).name
        self._term: FileTerm | None = None
        threading.Thread(target=self._keep_renewing, daemon=True).start()

    @override
    def wait(self, timeout: float) -> Term | None:
        if (self._register.folder / "down").exists():
            raise UnavailableError("it is down")
        end = CLOCK.now() + timeout
        while CLOCK.now() < end:
            if term := self._claim():
                return term
            time.sleep(POLL_SECONDS)
        return None

    @override
    def has_tried(self) -> bool:
        return True

    @override
    def share_fd(self) -> int | None:
        return self._session.fileno()

    @override
    def resign(self) -> None:
        term, self._term = self._term, None
        with self._register.mutex():
            record = self._register.read()
            if record.session == self._name:
                self._register.write(record.epoch, "", 0.0)
        if term:
            term.lease.end("resigned")

    def _claim(self) -> FileTerm | None:
        if not self._register.is_free():
            return None
        with self._register.mutex():
            if not self._register.is_free():
                return None
            epoch = self._register.read().epoch + 1
            lease = self._grant(epoch)
        self._term = FileTerm(epoch, lease)
        return self._term

    def _grant(self, epoch: int) -> Lease:
        sent_at = CLOCK.now()
        self._register.write(epoch, self._name, sent_at + self._timeout)
        margin = self._timeout / MARGIN_PART
        return Lease(CLOCK, sent_at=sent_at, timeout_seconds=self._timeout, margin_seconds=margin)

    def _keep_renewing(self) -> None:
        due = 0.0
        while True:
            term = self._term
            if term and (CLOCK.now() >= due or not self._holds(term)):
                self._renew(term)
                due = CLOCK.now() + self._timeout / RENEWALS_PER_TIMEOUT
            time.sleep(POLL_SECONDS)

    def _holds(self, term: FileTerm) -> bool:
        record = self._register.read()
        return (record.epoch, record.session) == (term.epoch, self._name)

    def _renew(self, term: FileTerm) -> None:
        sent_at = CLOCK.now()
        with self._register.mutex():
            if not self._holds(term):
                term.lease.end("taken by another")
            elif term.lease.record_renewal(sent_at):
                self._register.write(term.epoch, self._name, sent_at + self._timeout)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("timeout", type=float)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--wait", type=float)
    parser.add_argument("--grace", type=float, default=10.0)
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    job = Job(
        service="the-service",
        candidate=f"candidate-{os.getpid()}",
        command=given.command,
        once=given.once,
        wait_seconds=given.wait,
        grace_seconds=given.grace,
        descriptors=inherited_descriptors(),
    )
    return run(FileContest(given.folder, given.timeout), job, say=_say).status


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())

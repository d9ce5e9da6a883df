"""Reads of single keys that are asked for while others are on their way: they travel together."""

import threading
from collections import deque
from collections.abc import Sequence

from typing_extensions import override

from kip30.driver.records import Entry
from kip30.errors import Kip30Error
from kip30_backends.consul import transactions
from kip30_backends.consul.call import Call
from kip30_backends.consul.crew import Crew
from kip30_backends.consul.records import FILTERED, Record, at_key, entry_of
from kip30_backends.consul.talk import Talk

_MAX_UNDER_WAY = 3


class Read(Call[list[Entry | None]]):
    """A read of one key: a request of its own for who waits for it at once, else one of a batch."""

    def __init__(self, batches: "Batches", talk: Talk, key: str) -> None:
        """Read *key*."""
        super().__init__(batches.crew, talk, self._alone)
        self.key = key
        self.talk = talk
        self._batches = batches

    @override
    def _send(self) -> None:
        self._batches.add(self)

    def answer(self, record: Record | None) -> None:
        """Be done, with what was found."""
        if self.set_running_or_notify_cancel():
            try:
                self.set_result([entry_of(record)])
            except Kip30Error as error:
                self.set_exception(error)

    def _alone(self, talk: Talk) -> list[Entry | None]:
        found = talk.ask(at_key(self.key))
        return [entry_of(found.records[0] if found.records else None)]


class Batches:
    """Has few requests under way at a time; what comes meanwhile goes with the next one."""

    def __init__(self, crew: Crew) -> None:
        """Have *crew* ask."""
        self.crew = crew
        self._waiting: deque[Read] = deque()
        self._under_way = 0
        self._lock = threading.Lock()

    def add(self, read: Read) -> None:
        """Do *read*, now or with others."""
        with self._lock:
            self._waiting.append(read)
            if self._under_way == _MAX_UNDER_WAY:
                return
            self._under_way += 1
        try:
            self.crew.do(self._run)
        except Kip30Error as error:
            self._fail(error)

    def _run(self) -> None:
        while reads := self._next():
            _read(reads)

    def _fail(self, error: Kip30Error) -> None:
        while reads := self._next():
            for one in reads:
                one.fail(error)

    def _next(self) -> list[Read]:
        """Return what is waiting, or take note that one request less is under way."""
        with self._lock:
            count = min(transactions.MAX_OPS, len(self._waiting))
            reads = [self._waiting.popleft() for _ in range(count)]
            self._under_way -= not reads
            return reads


def _read(reads: Sequence[Read]) -> None:
    """Do all *reads* together or, if that fails, in halves: each fails by its own key or time."""
    if len(reads) == 1:
        reads[0].run()
        return
    try:
        talk = min((read.talk for read in reads), key=_end)
        records = talk.ask(transactions.read_granted([read.key for read in reads]))
    except Exception:  # noqa: BLE001  each tells what is the matter with it alone
        _read(reads[: len(reads) // 2])
        _read(reads[len(reads) // 2 :])
        return
    for read in reads:
        if read.key in records:
            read.answer(records[read.key])
        else:
            read.fail(talk.refusal(FILTERED))


def _end(talk: Talk) -> float:
    return talk.until

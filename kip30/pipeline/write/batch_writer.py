"""One batch of writes: read, send, read what was refused, and settle lost answers."""

from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future

from kip30.driver import Backend
from kip30.driver.kit.futures import failed
from kip30.driver.records import Condition, Entry, Version, Write
from kip30.errors import (
    FencedError,
    KeyExistsError,
    KeyMissingError,
    Kip30Error,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
    VersionConflictError,
)
from kip30.names import Key
from kip30.pipeline.write.change_selection import Decision
from kip30.pipeline.write.decisions import (
    Found,
    Rule,
    decide,
    decide_pipeline_replacement,
    decide_refused,
)
from kip30.pipeline.write.outcomes import WriteOutcome
from kip30.pipeline.write.rate_limit import RateLimit
from kip30.runtime.deadline_wait import DeadlineWait
from kip30.runtime.lost_answers import Wait, settle

_MOST_IN_ONE_READ = 200
"""Number of keys in a read: one answer has all their values, which may be large, in time."""

_ROUNDS = 3
"""Maximum number of sends of a write whose refusal does not match what is read afterwards."""

_REFUSED_BY_CONDITION = (KeyExistsError, KeyMissingError, VersionConflictError)
_NO_ANSWER = (UnavailableError, OutcomeUnknownError)

Writes = dict[int, Write]


class BatchWriter:
    """Writes one batch after the other. One thread uses it at a time.

    Attributes:
        silence: Why the store did not answer any of the requests that were sent last, if so. Then
            nothing more is sent: every request would take as long.
    """

    def __init__(self, backend: Backend, seconds: float, limit: RateLimit | None) -> None:
        """Write to *backend*; the answers of a batch may take *seconds*."""
        self._name = backend.name
        self._driver = backend.storage
        self._seconds = seconds
        self._limit = limit
        self._looks_first = False
        self._fenced = ""
        self.silence: Kip30Error | None = None

    def write(self, writes: Writes, *, only_own: bool = False) -> dict[int, Decision]:
        """Return the outcome of each of *writes*, by its number. No key is in them twice.

        With *only_own* a record that a program wrote is a conflict (`decide_pipeline_replacement`).

        Raises:
            Kip30Error: All of them failed with it or its like.
        """
        batch = _Batch(writes)
        if not (self._fenced or self.silence) and (only_own or self._must_look(writes)):
            self._look(batch, decide_pipeline_replacement if only_own else decide, batch.left)
        for _ in range(_ROUNDS):
            self._send(batch)
            if not batch.refused:
                break
            self._look(
                batch, decide_pipeline_replacement if only_own else decide_refused, batch.refused
            )
        batch.decide_all(batch.left, WriteOutcome.CONFLICT, "the key keeps changing")
        batch.raise_if_unusable()
        self._looks_first = batch.met
        return batch.decisions

    def _must_look(self, writes: Writes) -> bool:
        return self._looks_first or any(one.condition is Condition.ANY for one in writes.values())

    def _look(self, batch: "_Batch", rule: Rule, asked: Writes) -> None:
        """Decide by *rule*, and by the records at their keys, about the writes *asked*."""
        unread = deque(asked.items())
        batch.refused = {}
        while unread and not self.silence:
            some = [unread.popleft() for _ in range(min(len(unread), _MOST_IN_ONE_READ))]
            self._look_at(batch, rule, some)
        if self.silence:
            batch.fail([number for number, _ in unread], self.silence)

    def _look_at(self, batch: "_Batch", rule: Rule, asked: Sequence[tuple[int, Write]]) -> None:
        found: Sequence[Found] = ()
        try:
            found = self._read([write.key for _, write in asked])
        except Kip30Error as error:
            batch.fail([number for number, _ in asked], error)
            self._note_silence([error])
        for (number, write), one in zip(asked, found, strict=False):
            batch.met = batch.met or one is not None
            decision = rule(write, one)
            if isinstance(decision, Decision):
                batch.decide(number, decision)
            else:
                batch.left[number] = decision

    def _read(self, keys: Sequence[Key]) -> Sequence[Found]:
        wait = self._wait(UnavailableError)
        try:
            return wait(self._driver.read(keys))
        except StoreError:  # perhaps one of them is no record of kip30's
            alone = [self._driver.read((key,)) for key in keys]
            return [_found(wait, one) for one in alone]

    def _send(self, batch: "_Batch") -> None:
        """Send all writes that are left, as fast as the rate allows, while there are answers."""
        unsent = list(batch.left.items())
        while unsent and not self._fenced and not self.silence:
            granted = len(unsent) if self._limit is None else self._limit.take(len(unsent))
            self._send_now(dict(unsent[:granted]), batch)
            del unsent[:granted]
        if self._fenced:
            undecided = [number for number in batch.left if number not in batch.refused]
            batch.decide_all(undecided, WriteOutcome.FENCED, self._fenced)
        elif self.silence:
            batch.fail([number for number, _ in unsent], self.silence)

    def _send_now(self, writes: Writes, batch: "_Batch") -> None:
        wait = self._wait(OutcomeUnknownError)
        written: dict[int, Version] = {}
        lost: dict[int, OutcomeUnknownError] = {}
        futures = self._futures([*writes.values()])
        for number, future in zip(writes, futures, strict=True):
            try:
                written[number] = wait(future)
            except _REFUSED_BY_CONDITION:
                batch.refused[number] = writes[number]
            except FencedError as error:
                self._fenced = str(error)
            except OutcomeUnknownError as error:
                lost[number] = error
            except Kip30Error as error:
                batch.fail((number,), error)
        batch.decide_written(written)
        if lost:
            self._settle(writes, lost, batch)
        self._note_silence(batch.failures_of(writes))

    def _note_silence(self, failures: Sequence[Kip30Error | None]) -> None:
        if failures and all(isinstance(one, _NO_ANSWER) for one in failures):
            self.silence = failures[0]

    def _futures(self, writes: Sequence[Write]) -> Sequence[Future[Version]]:
        try:
            return self._driver.write_many(writes)
        except Kip30Error as error:
            return [failed(error) for _ in writes]

    def _settle(
        self, writes: Writes, lost: dict[int, OutcomeUnknownError], batch: "_Batch"
    ) -> None:
        """Settle writes whose answers were lost: with one request for most."""
        try:
            found = self._read([writes[number].key for number in lost])
        except Kip30Error:
            for number, error in lost.items():
                batch.fail((number,), error)
            return
        wait = self._wait(OutcomeUnknownError)
        for (number, error), one in zip(lost.items(), found, strict=True):
            write = writes[number]
            if isinstance(one, Entry) and one.nonce == write.nonce:
                batch.decide(number, Decision(WriteOutcome.WRITTEN, one.version))
            else:
                self._settle_one(number, write, wait, error, batch)

    def _settle_one(
        self, number: int, write: Write, wait: Wait, error: OutcomeUnknownError, batch: "_Batch"
    ) -> None:
        try:
            version = settle(self._driver, write, wait, error)
        except OutcomeUnknownError as still:
            batch.fail((number,), still)
        else:
            batch.decide(number, Decision(WriteOutcome.WRITTEN, version))

    def _wait(self, late: type[Kip30Error]) -> DeadlineWait:
        return DeadlineWait(self._name, self._seconds, late, slack=1.0)


class _Batch:
    """Progress of the writes of one batch.

    Attributes:
        left: Those that are not decided.
        refused: Those of them that the store refused because of the records at their keys.
        decisions: The outcomes of the others.
        met: Whether anything was found at any key.
    """

    def __init__(self, writes: Writes) -> None:
        self.left = dict(writes)
        self.refused: Writes = {}
        self.decisions: dict[int, Decision] = {}
        self.met = False
        self._failures: dict[int, Kip30Error] = {}

    def decide(self, number: int, decision: Decision) -> None:
        """Note the outcome of one write."""
        del self.left[number]
        self.decisions[number] = decision

    def decide_written(self, versions: dict[int, Version]) -> None:
        """Note the versions that several writes got: the case that must be fast."""
        written = WriteOutcome.WRITTEN
        for number, version in versions.items():
            del self.left[number]
            self.decisions[number] = Decision(written, version)

    def decide_all(self, numbers: Iterable[int], outcome: WriteOutcome, why: str) -> None:
        """Note the same outcome for several writes."""
        for number in list(numbers):
            self.decide(number, Decision(outcome, None, why))

    def fail(self, numbers: Iterable[int], error: Kip30Error) -> None:
        """Note that *error* is all that is known about these writes."""
        failed_now = list(numbers)
        self.decide_all(failed_now, WriteOutcome.UNKNOWN, str(error))
        self._failures.update(dict.fromkeys(failed_now, error))

    def failures_of(self, sent: Iterable[int]) -> list[Kip30Error | None]:
        """Return the error of each of the writes that were *sent*; nothing if none failed."""
        return [self._failures.get(number) for number in sent] if self._failures else []

    def raise_if_unusable(self) -> None:
        """Raise the error with which all writes failed, unless there was only no answer."""
        if self._failures and len(self._failures) == len(self.decisions):
            for error in self._failures.values():
                if not isinstance(error, _NO_ANSWER):
                    raise error


def _found(wait: Wait, future: Future[list[Entry | None]]) -> Found:
    try:
        return wait(future)[0]
    except StoreError as error:
        return error

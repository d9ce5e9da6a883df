"""Writing records in bulk into any store, so that repetitions are harmless and counts exact.

Each write carries a nonce derived from the run, the key and the source's version. A write that
finds its nonce at its key was done by this run before: in an earlier attempt of the task, or
before the run was resumed. So the counts of outcomes are exact over any number of repetitions.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from kip30.driver import Backend, Capability
from kip30.driver.clock import Clock, SystemClock
from kip30.driver.records import Fence, Version, Write, check_fence
from kip30.errors import UnsupportedError, UsageError
from kip30.names import Key
from kip30.pipeline.write.batch_writer import BatchWriter
from kip30.pipeline.write.change_selection import (
    Decision,
    Prefers,
    SelectedChanges,
    judge_repeated,
    prefers_last,
    prefers_smallest,
    select_changes,
)
from kip30.pipeline.write.outcomes import (
    Applied,
    Given,
    NewRecord,
    Nonces,
    Replacement,
    WriteOutcome,
)
from kip30.pipeline.write.rate_limit import RateLimit

__all__ = ["MOST_IN_FLIGHT", "Applied", "Applier", "NewRecord", "Replacement", "WriteOutcome"]

MOST_IN_FLIGHT = 3_200
"""Number of writes that are sent before their responses are awaited."""


_FIRST = 100
"""Number of writes in an applier's first batch; its outcome decides how to continue."""


class Applier:
    """Writes the records of one run into an open store. One thread uses it at a time.

    Every method answers one `Applied` for each record, in the order given. Where a method does not
    say otherwise:

    * A key that is not valid, or data over the store's limit, is rejected before any I/O.
    * Of several records for one key in one call one is written; see
      `kip30.pipeline.write.change_selection`.
    * A lost answer is looked up. A write whose outcome stays open, or that was not accepted because
      the store did not answer, is unknown: the run is incomplete; the same call decides it again.
    * Once a request and all that looked into it had no answer, the rest of the call is not sent.
    * Once the store refuses the fence nothing more is sent, by this call and all later ones:
      all that was not answered otherwise is fenced.
    * If all writes of a batch fail, and any of them because the store cannot be used at all
      (`AuthenticationError`, `StoreError`, `ClosedError`, `LifecycleError`), that error is raised:
      many unknown outcomes help no user. If only some writes fail like that, they are unknown, and
      say why. Earlier writes count as written when the call is repeated.

    A deletion leaves no nonce behind. If it is repeated, the key is gone already: same.
    """

    def __init__(  # noqa: PLR0913  each says one thing about the run
        self,
        backend: Backend,
        run: str,
        *,
        seconds: float,
        fence: Fence | None = None,
        rate: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Write to *backend*, which stays its owner's.

        Args:
            backend: The open target.
            run: What names the run, the same in all its tasks and when it is resumed.
            seconds: How long the answers of a batch may take, and as long again what finds out
                about lost ones.
            fence: Let the store refuse every write unless this leadership is the newest.
            rate: The greatest number of writes per second; without it there is no limit.
            clock: What *rate* is measured by; for tests.

        Raises:
            UsageError: *seconds* or *rate* is no number greater than 0, or *fence* is no fence.
            UnsupportedError: The store has no ``fencing``, and *fence* is given.
        """
        if not seconds > 0:
            raise UsageError(f"answers cannot come within {seconds} s: give more than 0")
        self._backend = backend
        self._fence = None if fence is None else check_fence(fence)
        if fence is not None:
            self._require(Capability.FENCING)
        limit = None if rate is None else RateLimit(rate, clock or SystemClock())
        self._nonces = Nonces(run)
        self._writer = BatchWriter(backend, seconds, limit)
        self._most = _FIRST

    def create(self, records: Iterable[NewRecord]) -> list[Applied]:
        """Create each of *records* whose key is not there yet.

        A key that is there is read: it was written by this run, it is the same, or it is a
        conflict. Once a batch found such keys the next one reads before it writes, until one finds
        none: a run that is repeated reads and does not write. The first batch is a small one.

        Raises:
            AuthenticationError, StoreError, ClosedError, LifecycleError: See `Applier`.
        """
        return self._apply(list(records), prefers_smallest)

    def replace(self, changes: Iterable[Replacement], *, only_own: bool = False) -> list[Applied]:
        """Replace or delete what each of *changes* names, if it is as expected.

        With *only_own* each must expect `Condition.ANY`, and what a job of the pipeline did not
        write is a conflict, unless it is equal. A key that is not there may be written.

        With `Condition.ANY` the key is read first, so that a batch that is replayed writes nothing;
        and equal data is not written again. With a version the write is refused if the key has
        another one by now: then it was written by this run, it is the same, or it is a conflict.
        To delete a key that is not there is the same.

        Raises:
            UnsupportedError: A version is expected, or *only_own* given, and the store has no
                ``compare-and-set``. Nothing was sent.
            AuthenticationError, StoreError, ClosedError, LifecycleError: See `Applier`.
        """
        given = list(changes)
        if only_own or any(isinstance(change.expected, Version) for change in given):
            self._require(Capability.COMPARE_AND_SET)
        return self._apply(given, prefers_last, only_own=only_own)

    def _require(self, capability: Capability) -> None:
        if capability not in self._backend.capabilities:
            raise UnsupportedError(
                f"store {self._backend.name!r} does not offer {capability.value}"
            )

    def _apply(
        self, changes: Sequence[Given], prefers: Prefers, *, only_own: bool = False
    ) -> list[Applied]:
        selected = select_changes(changes, self._backend.limits.value_bytes, prefers)
        decisions = selected.rejected
        self._writer.silence = None
        rest = iter(selected.chosen.items())
        while batch := list(islice(rest, self._most)):
            writes = self._writes(changes, batch)
            decisions.update(self._writer.write(writes, only_own=only_own))
            self._most = MOST_IN_FLIGHT
        _judge_repeated(changes, selected, decisions)
        return [Applied(change.key, *decisions[number]) for number, change in enumerate(changes)]

    def _writes(
        self, changes: Sequence[Given], batch: Sequence[tuple[Key, int]]
    ) -> dict[int, Write]:
        fence, nonce = self._fence, self._nonces.of
        writes: dict[int, Write] = {}
        for key, number in batch:
            one = changes[number]
            writes[number] = Write(key, nonce(one.key, one.source), one.data, one.expected, fence)
        return writes


def _judge_repeated(
    changes: Sequence[Given], selected: SelectedChanges, decisions: dict[int, Decision]
) -> None:
    for number, key in selected.repeated.items():
        chosen = selected.chosen[key]
        decisions[number] = judge_repeated(changes[number], changes[chosen], decisions[chosen])

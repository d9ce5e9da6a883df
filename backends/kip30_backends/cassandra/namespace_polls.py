"""Looking at a namespace: at its marks, and at what is watched of it when these have moved."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial

from typing_extensions import override

from kip30.driver.kit.following import gathered, then
from kip30.driver.kit.futures import Completed, mapped
from kip30.driver.records import Entry, Kind, Snapshot
from kip30_backends.cassandra.polls import Poll, Rhythm, Watcher
from kip30_backends.cassandra.readings import MOST, snapshot
from kip30_backends.cassandra.states import Revision, States


class _Track:
    """Watchers of one kind, and the mark that moves with what they watch.

    A write may be decided, but known to few nodes: a look may then meet its mark at one of them,
    and what was there before at others. So once the mark is at rest, a look that misses nothing
    decided ends what is under way.
    """

    def __init__(self) -> None:
        """Begin without a mark."""
        # The mark whose state all watchers received; None before the first one.
        self._seen: str | None = None
        # Whether they received it by a look that misses nothing decided. A partition that is
        # dropped has the mark again that it had before it was made, so any other mark ends this
        # before its state is read: watchers may receive it even if the look fails in the end.
        self._is_settled = False

    def unaware(self, watchers: Sequence[Watcher], mark: str) -> Sequence[Watcher]:
        """Return those of *watchers* that need the state, now that *mark* was met."""
        self._is_settled = self._is_settled and mark == self._seen
        if self._is_settled:
            return [one for one in watchers if one.knows() is None]
        return watchers

    def settles(self, mark: str) -> bool:
        """Say whether what is read now must miss nothing decided."""
        return mark == self._seen and not self._is_settled

    def end(self, mark: str) -> None:
        """Take note that all watchers received what *mark* stands for."""
        self._is_settled = mark == self._seen
        self._seen = mark


_Told = Future[bool | None]
"""Whether what was read was news; None: it must be read again."""
_Read = Callable[[Sequence[Watcher], bool], Sequence[_Told]]
"""Reads what watchers watch, surely or not."""


class NamespacePoll(Poll):
    """Reads the marks of a namespace: one moves with every write, one with its names."""

    def __init__(self, namespace: str, states: States, rhythm: Rhythm) -> None:
        """Read *namespace* from *states*."""
        super().__init__(rhythm)
        self._namespace = namespace
        self._states = states
        self._tracks = dict[Kind, _Track]()

    @override
    def look(self, watchers: Sequence[Watcher]) -> Future[bool]:
        told = self._states.told
        behind = [one for one in watchers if (known := one.knows()) and known.order < told]
        order, end = self._states.begin([one.target for one in behind])
        with_names = any(one.target.kind is Kind.NAMESPACE for one in watchers)
        read = self._states.revision(self._namespace, with_names=with_names)
        compared = then(read, partial(self._compare, watchers, behind, order))
        compared.add_done_callback(end)
        return compared

    def _compare(
        self,
        watchers: Sequence[Watcher],
        behind: Sequence[Watcher],
        order: int,
        revision: Revision,
    ) -> Future[bool]:
        values = [one for one in watchers if one.target.kind is Kind.VALUE]
        others = [one for one in watchers if one.target.kind is not Kind.VALUE]
        reads = [
            self._catch_up(Kind.VALUE, values, str(revision.number), self._values),
            self._catch_up(Kind.NAMESPACE, others, revision.names, self._names),
        ]
        for unaware, _ in reads:
            behind = [one for one in behind if one not in unaware]
        for one in behind:
            self._affirm(one, order)
        return mapped(gathered([read for _, read in reads]), any)

    def _catch_up(
        self, kind: Kind, watchers: Sequence[Watcher], mark: str, read: _Read
    ) -> tuple[set[Watcher], Future[bool]]:
        """Hand *watchers* what *mark* stands for, if they do not know; return those that do not."""
        if not watchers:
            self._tracks.pop(kind, None)  # what has no watcher is not settled
        track = self._tracks.setdefault(kind, _Track()) if watchers else _Track()
        unaware = track.unaware(watchers, mark)

        def ended(told: Sequence[bool | None]) -> bool:
            if None in told:
                return True
            track.end(mark)
            return any(told)

        if not unaware:
            return set(), Completed(False)  # noqa: FBT003  no news
        return set(unaware), mapped(gathered(read(unaware, track.settles(mark))), ended)

    def _affirm(self, watcher: Watcher, order: int) -> None:
        """Tell what is known again, as the state of a later moment."""
        known = watcher.knows()
        if known is not None and self._states.accept(watcher.target, order, known.entries):
            watcher.take(known._replace(order=order))

    def _names(self, watchers: Sequence[Watcher], surely: bool) -> list[_Told]:  # noqa: FBT001
        polls = [(one, self._states.poll(one.target, surely=surely)) for one in watchers]
        return [mapped(poll, partial(_tell_names, one)) for one, poll in polls]

    def _values(self, watchers: Sequence[Watcher], surely: bool) -> list[_Told]:  # noqa: FBT001
        some = [watchers[at : at + MOST] for at in range(0, len(watchers), MOST)]
        return [self._some_values(part, surely=surely) for part in some]

    def _some_values(self, watchers: Sequence[Watcher], *, surely: bool) -> _Told:
        order, end = self._states.begin([one.target for one in watchers])

        def tell(entries: Mapping[str, Entry]) -> bool | None:
            told = [self._tell(one, _only(one.target.name, order, entries)) for one in watchers]
            return None if None in told else any(told)

        names = sorted({one.target.name for one in watchers})
        told = mapped(self._states.records(self._namespace, names, surely=surely), tell)
        told.add_done_callback(end)
        return told

    def _tell(self, watcher: Watcher, read: Snapshot) -> bool | None:
        """Tell *watcher* what was read; None if another answer may be newer."""
        is_newest = self._states.accept(watcher.target, read.order, read.entries)
        return watcher.take(read) if is_newest else None


def _tell_names(watcher: Watcher, read: Snapshot) -> bool | None:
    return watcher.take(read)


def _only(name: str, order: int, entries: Mapping[str, Entry]) -> Snapshot:
    return snapshot(order, {name: entries[name]} if name in entries else {})

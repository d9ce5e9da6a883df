"""Renewing many posts: in parcels, and a few parcels at a time, so that others get through."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import groupby
from operator import attrgetter

from kip30.driver.kit.following import all_of
from kip30_backends.cassandra.few import Few
from kip30_backends.cassandra.posts import Holding

_MOST = 50
_MOST_BYTES = 256 * 1024

Parcel = Sequence[Holding]
Renew = Callable[[Parcel], Future[Parcel]]
"""Renews a parcel; its future has what was found to be gone."""


def parcels(held: Iterable[Holding]) -> list[Parcel]:
    """Return what can be renewed by one statement each, what was renewed longest ago first."""
    by_place = groupby(sorted(held, key=lambda one: one.post.place), lambda one: one.post.place)
    made = [parcel for _, there in by_place for parcel in _fitting(there)]
    return sorted(made, key=lambda parcel: min(one.sent_at for one in parcel))


def renew_all(
    waiting: Iterable[Parcel], renew: Renew, heard: Callable[[Future[Parcel]], None], few: Few
) -> Future[None]:
    """Have *renew* renew all parcels, and *heard* hear of each; return what is done after that."""
    renewals = [few.do(partial(renew, parcel)) for parcel in waiting]
    for one in renewals:
        one.add_done_callback(heard)
    return all_of(renewals)


def _fitting(holdings: Iterable[Holding]) -> Iterator[Parcel]:
    """Yield *holdings* of one place in parcels, those of about the same age together."""
    parcel: list[Holding] = []
    size = 0
    for one in sorted(holdings, key=attrgetter("sent_at")):
        size += len(one.entry.data)
        if parcel and (len(parcel) == _MOST or size > _MOST_BYTES):
            yield parcel
            parcel, size = [], len(one.entry.data)
        parcel.append(one)
    if parcel:
        yield parcel

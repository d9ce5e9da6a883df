"""The latest terms of a service, as its leaders have noted them, and their record in the store.

The value at ``kip30.terms/<service>`` has the last `KEPT` of them, in JSON. Nothing depends on
it: it shows operators who led when. Leaders write it behind their elections, so a term of a leader
that was killed may have no end of its own; the next leader notes it in its place.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from kip30.errors import StoreError
from kip30.names import Key
from kip30.runtime.json_records import UNREADABLE, fields_of, record_key, seconds, text, whole

KEPT = 20
"""Number of terms that a record keeps."""

NOT_NOTED = "its end was not noted"
"""Why a term has ended whose leader did not write that."""

NAMESPACE = "kip30.terms"
_FORMAT = 1


class PastTerm(NamedTuple):
    """One term. Times are those of the leader's clock, in seconds since 1970.

    Attributes:
        id: The nonce of the leader's record, which tells the term from all others.
        epoch: Its epoch.
        candidate: Its leader.
        since: When it began.
        until: When it ended; None: it lasts, or its end is not noted yet.
        ended: Why it has ended, in words; empty while it lasts.
    """

    id: str
    epoch: int
    candidate: str
    since: float
    until: float | None = None
    ended: str = ""


def past_terms_key(service: str) -> Key:
    """Return the key of the record of *service*.

    Raises:
        InvalidNameError: The name is too long.
    """
    return record_key(NAMESPACE, service)


def with_terms(known: Sequence[PastTerm], noted: Iterable[PastTerm]) -> tuple[PastTerm, ...]:
    """Return *known* with the terms *noted*, in their order, without those that are too many.

    A term that others have followed has ended, also if its end is not known.
    """
    terms = list(known)
    for one in noted:
        places = [number for number, other in enumerate(terms) if other.id == one.id]
        if places:
            terms[places[0]] = one
        else:
            terms.insert(_place_of(one, terms), one)
    for number, following in enumerate(terms[1:]):
        term = terms[number]
        if term.until is None:
            until = max(term.since, following.since)
            terms[number] = term._replace(until=until, ended=NOT_NOTED)
    return tuple(terms[-KEPT:])


def _place_of(one: PastTerm, terms: Sequence[PastTerm]) -> int:
    """Return where *one* belongs: at the end, unless its leader writes later than the next one.

    Not by the epoch alone: a store that was made anew, to which a record was copied, begins with 1.
    """
    place = len(terms)
    while place and terms[place - 1].epoch > one.epoch and terms[place - 1].since > one.since:
        place -= 1
    return place


def encode_past_terms(terms: Iterable[PastTerm]) -> bytes:
    """Return the bytes of the record."""
    return json.dumps({"format": _FORMAT, "terms": [one._asdict() for one in terms]}).encode()


def decode_past_terms(service: str, data: bytes) -> tuple[PastTerm, ...]:
    """Return the terms in the record of *service*, which is *data*.

    Raises:
        StoreError: *data* is no such record.
    """
    try:
        found = fields_of(data, _FORMAT)["terms"]
        if not isinstance(found, list):
            raise TypeError("its terms are no list")
        return tuple(map(_term, cast("Sequence[Mapping[str, Any]]", found)))
    except UNREADABLE as error:
        raise StoreError(
            f"the past terms of {service!r} cannot be read, and no term is noted: {error!r:.200}:"
            " delete it to begin a new one"
        ) from error


def _term(fields: Mapping[str, Any]) -> PastTerm:
    until = fields["until"]
    return PastTerm(
        text(fields["id"]),
        whole(fields["epoch"]),
        text(fields["candidate"]),
        seconds(fields["since"]),
        None if until is None else seconds(until),
        text(fields["ended"]),
    )

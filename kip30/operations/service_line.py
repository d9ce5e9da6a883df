"""The candidates that wait for one service, in their order."""

from collections.abc import Sequence
from math import isfinite
from typing import Any, NamedTuple

from kip30.codecs import BYTES
from kip30.errors import UnsupportedError
from kip30.locator import PluginLocator
from kip30.names import check_id
from kip30.runtime.candidate_line import LinePlace, decode_place, line_group


class WaitingPlace(NamedTuple):
    """A place in the line of a service: that of one client, whose candidates share it.

    Attributes:
        id: The id of the place, which is random.
        place: Which candidate waits, where, and since when; None: an earlier version of kip30 took
            the place, or its record cannot be read.
        is_readable: False if the record cannot be read, so that its position is unknown.
    """

    id: str
    place: LinePlace | None
    is_readable: bool = True


def place_record(one: WaitingPlace) -> dict[str, Any]:
    """Return *one* as JSON shows it; a time that JSON has no number for is null."""
    place = dict.fromkeys(LinePlace._fields) if one.place is None else one.place._asdict()
    if one.place is not None and not isfinite(one.place.since):  # another program wrote it
        place["since"] = None
    return {"id": one.id, **place, "readable": one.is_readable}


def read_line(locator: PluginLocator, service: str) -> Sequence[WaitingPlace]:
    """Return the places in the line of *service*, in the order in which they were taken.

    Places that cannot be read come last. A client takes a place when one of its candidates was
    refused, so one that was just nominated is not there. At a vacancy the first ones claim in this
    order; which candidate leads is decided by the store.

    Raises:
        InvalidNameError: *service* cannot be the name of a service. Nothing was sent.
        UnsupportedError: Candidates form no line on this store, which is Cassandra's case. Nothing
            was sent.
        UnavailableError: The store did not answer by the operation timeout.
    """
    check_id(service, "service")
    if not locator.backend.election.forms_line:
        raise UnsupportedError(f"candidates form no line on {locator.backend.name}")
    with locator.group_membership(line_group(service), BYTES) as group:
        members = group.membership()
    known = sorted(members.incarnations, key=members.incarnations.__getitem__)
    return [
        *(WaitingPlace(one, decode_place(members[one])) for one in known),
        *(WaitingPlace(one, None, is_readable=False) for one in sorted(members.unreadable)),
    ]

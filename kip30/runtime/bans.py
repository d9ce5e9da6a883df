"""The bans of operators for the members of one group, and their record in the store.

A ban keeps one id out of one group until a time of day. The value at ``kip30.bans/<group>`` has all
of a group, in JSON. Operators write it, the members of clients that obey directives read it
(`kip30.runtime.ban_watch`). Nothing depends on a time of day but the end of a ban.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from typing_extensions import override

from kip30.errors import StoreError
from kip30.names import Key
from kip30.runtime.json_records import UNREADABLE, fields_of, record_key, seconds, text, whole

NAMESPACE = "kip30.bans"

MOST = 40
"""Number of bans that a record holds."""

_FORMAT = 1
_FIELDS = frozenset({"format", "number", "bans"})
_SHOWN = 200
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Ban(NamedTuple):
    """One id is kept out of the group.

    Attributes:
        id: The id.
        until: When it ends by itself, in seconds since 1970.
        at: When it was written, likewise.
        by: The operator, as user and host; no proof.
        reason: The operator's words; may be empty.
    """

    id: str
    until: float
    at: float
    by: str
    reason: str

    def is_over(self, time_of_day: float) -> bool:
        """Return whether it has ended by itself."""
        return time_of_day >= self.until

    @override
    def __str__(self) -> str:
        """Return until when it lasts, who wrote it, and why, on one line."""
        reason = f": {self.reason!r:.{_SHOWN}}" if self.reason else ""
        return f"banned until {_moment(self.until)} by {self.by!r:.{_SHOWN}}{reason}"


class Bans(NamedTuple):
    """The record of one group.

    Attributes:
        number: Number of writes until now.
        bans: The bans, the oldest first; some may be over.
        others: Fields that a later version of kip30 may add; they are kept.
    """

    number: int = 0
    bans: tuple[Ban, ...] = ()
    others: Mapping[str, Any] = _NOTHING

    def in_effect(self, time_of_day: float) -> tuple[Ban, ...]:
        """Return the bans that are not over."""
        return tuple(ban for ban in self.bans if not ban.is_over(time_of_day))

    def of(self, member_id: str) -> Ban | None:
        """Return the ban of *member_id*, which may be over; None if it has none."""
        return next((ban for ban in self.bans if ban.id == member_id), None)

    def replaced(self, bans: Iterable[Ban]) -> "Bans":
        """Return the record of the next write, with *bans*."""
        return self._replace(number=self.number + 1, bans=tuple(bans))


def bans_key(group: str) -> Key:
    """Return the key of the record of *group*.

    Raises:
        InvalidNameError: The name is too long.
    """
    return record_key(NAMESPACE, group, "group")


def encode_bans(bans: Bans) -> bytes:
    """Return the bytes of the record."""
    fields = {
        **bans.others,
        "format": _FORMAT,
        "number": bans.number,
        "bans": [ban._asdict() for ban in bans.bans],
    }
    return json.dumps(fields).encode()


def decode_bans(group: str, data: bytes) -> Bans:
    """Return the record of *group*, which is *data*.

    Raises:
        StoreError: *data* is no such record.
    """
    try:
        return _bans(fields_of(data, _FORMAT))
    except UNREADABLE as error:
        raise StoreError(
            f"the bans of {group!r} cannot be read, and have no effect: {error!r:.200}:"
            f" delete {bans_key(group)} to begin anew"
        ) from error


def _bans(fields: Mapping[str, Any]) -> Bans:
    return Bans(
        whole(fields["number"]),
        tuple(map(_ban, fields["bans"])),
        {name: field for name, field in fields.items() if name not in _FIELDS},
    )


def _ban(fields: Mapping[str, Any]) -> Ban:
    return Ban(
        text(fields["id"]),
        seconds(fields["until"]),
        seconds(fields["at"]),
        text(fields["by"]),
        text(fields["reason"]),
    )


def _moment(time_of_day: float) -> str:
    try:
        return datetime.fromtimestamp(time_of_day).astimezone().isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):  # another program wrote it
        return str(time_of_day)

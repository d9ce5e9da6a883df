"""The directives of operators for one service, and their record in the store.

A directive says who may lead: a *pause* keeps all candidates from being elected, a *step-down* ends
one term. A step-down that names a *successor* is a hand-over. The value at
``kip30.directives/<service>`` has all of a service, in JSON. Operators write it, candidates read it
(`kip30.runtime.directive_rules`).

Times of day end a directive; nothing else depends on them. Two leaders at once are ruled out by
leases alone, whatever the record says.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kip30.errors import StoreError
from kip30.names import Key
from kip30.runtime.json_records import (
    UNREADABLE,
    fields_of,
    record_key,
    seconds,
    text,
    whole,
)

NAMESPACE = "kip30.directives"

KEPT = 20
"""Number of entries of the log that a record keeps."""

_FORMAT = 1
_FIELDS = frozenset({"format", "number", "pause", "step_down", "log"})
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class ElectionPause(NamedTuple):
    """No candidate is elected. The leader, if there is one, leads on.

    Attributes:
        by: The operator, as user and host; no proof.
        at: When, in seconds since 1970.
        reason: The operator's words; may be empty.
        until: When it ends by itself, in seconds since 1970; None: when an operator ends it.
    """

    by: str
    at: float
    reason: str
    until: float | None

    def is_over(self, time_of_day: float) -> bool:
        """Return whether it has ended by itself."""
        return self.until is not None and time_of_day >= self.until


class TermId(NamedTuple):
    """The term of a leader, told from all others.

    The nonce alone is not enough: a claim that was repeated with its nonce after its lease had
    ended begins another term.

    Attributes:
        epoch: The epoch of the term.
        nonce: The nonce of the leader's record.
    """

    epoch: int
    nonce: str


class StepDown(NamedTuple):
    """The leader ends its term; the named successor, or any other candidate, leads next.

    It names one term of one store: a record that was copied or restored ends no other.

    Attributes:
        id: A random text, which tells it from all others.
        by: The operator, as user and host; no proof.
        at: When, in seconds since 1970.
        reason: The operator's words; may be empty.
        seconds: How long it has an effect, by each client's clock of leases, from when the client
            first saw it.
        until: When it has none, in seconds since 1970, also for clients that come later. It is far
            enough ahead for clocks that differ.
        epoch: The epoch of the term; 0 if no candidate led.
        nonce: The nonce of the leader's record; empty if no candidate led.
        candidate: The leader; empty if no candidate led.
        successor: The candidate that leads next; None: any but *candidate*.
        hold_seconds: How long others hold back for the successor once the service is vacant.
        fulfilled: The term that has fulfilled it; None: none has. It has no effect then, except
            that this term may begin although the service is paused.
    """

    id: str
    by: str
    at: float
    reason: str
    seconds: float
    until: float
    epoch: int
    nonce: str
    candidate: str
    successor: str | None
    hold_seconds: float
    fulfilled: TermId | None = None

    def is_over(self, time_of_day: float) -> bool:
        """Return whether it has no effect any longer by the clock of the operator who wrote it."""
        return self.fulfilled is not None or time_of_day >= self.at + self.seconds

    def may_be_obeyed(self, time_of_day: float) -> bool:
        """Return whether it may have an effect for a client that sees it late, by any clock."""
        return self.fulfilled is None and time_of_day < self.until

    def is_fulfilled_by(self, leader: str, epoch: int) -> bool:
        """Return whether the election of *leader* with *epoch* is what it asks for."""
        if epoch <= self.epoch:
            return False
        return leader == self.successor if self.successor is not None else leader != self.candidate


class LoggedDirective(NamedTuple):
    """An entry of the log: one write of the record.

    Attributes:
        number: The number of the record with which it was written.
        at: When, in seconds since 1970.
        by: The operator, as user and host; no proof.
        action: The action in words, such as ``pause``.
    """

    number: int
    at: float
    by: str
    action: str


class Directives(NamedTuple):
    """The record of one service.

    Attributes:
        number: Number of writes until now.
        pause: The pause, which may be over; None: the service is not paused.
        step_down: The step-down, which may be over or fulfilled; None: there is none.
        log: The latest `KEPT` writes.
        others: Fields that a later version of kip30 may add; they are kept.
    """

    number: int = 0
    pause: ElectionPause | None = None
    step_down: StepDown | None = None
    log: tuple[LoggedDirective, ...] = ()
    others: Mapping[str, Any] = _NOTHING

    def logged(self, at: float, by: str, action: str) -> "Directives":
        """Return the record with the next number, and *action* in the log."""
        entry = LoggedDirective(self.number + 1, at, by, action)
        return self._replace(number=entry.number, log=(*self.log, entry)[-KEPT:])


def directives_key(service: str) -> Key:
    """Return the key of the record of *service*.

    Raises:
        InvalidNameError: The name is too long.
    """
    return record_key(NAMESPACE, service)


def encode_directives(directives: Directives) -> bytes:
    """Return the bytes of the record."""
    pause, step_down = directives.pause, directives.step_down
    fields = {
        **directives.others,
        "format": _FORMAT,
        "number": directives.number,
        "pause": None if pause is None else pause._asdict(),
        "step_down": None if step_down is None else _step_down_fields(step_down),
        "log": [entry._asdict() for entry in directives.log],
    }
    return json.dumps(fields).encode()


def decode_directives(service: str, data: bytes) -> Directives:
    """Return the record of *service*, which is *data*.

    Raises:
        StoreError: *data* is no such record.
    """
    try:
        return _directives(fields_of(data, _FORMAT))
    except UNREADABLE as error:
        raise StoreError(
            f"the directives for {service!r} cannot be read, and have no effect: {error!r:.200}:"
            f" delete {directives_key(service)} to begin anew"
        ) from error


def _directives(fields: Mapping[str, Any]) -> Directives:
    pause, step_down = fields.get("pause"), fields.get("step_down")
    return Directives(
        whole(fields["number"]),
        None if pause is None else _pause(pause),
        None if step_down is None else _step_down(step_down),
        tuple(map(_logged, fields.get("log", ()))),
        {name: field for name, field in fields.items() if name not in _FIELDS},
    )


def _pause(fields: Mapping[str, Any]) -> ElectionPause:
    until = fields["until"]
    return ElectionPause(
        text(fields["by"]),
        seconds(fields["at"]),
        text(fields["reason"]),
        None if until is None else seconds(until),
    )


def _step_down(fields: Mapping[str, Any]) -> StepDown:
    successor, fulfilled = fields["successor"], fields["fulfilled"]
    return StepDown(
        text(fields["id"]),
        text(fields["by"]),
        seconds(fields["at"]),
        text(fields["reason"]),
        seconds(fields["seconds"]),
        seconds(fields["until"]),
        whole(fields["epoch"]),
        text(fields["nonce"]),
        text(fields["candidate"]),
        None if successor is None else text(successor),
        seconds(fields["hold_seconds"]),
        None if fulfilled is None else TermId(whole(fulfilled["epoch"]), text(fulfilled["nonce"])),
    )


def _step_down_fields(step_down: StepDown) -> Mapping[str, Any]:
    fulfilled = step_down.fulfilled
    named = None if fulfilled is None else fulfilled._asdict()
    return {**step_down._asdict(), "fulfilled": named}


def _logged(fields: Mapping[str, Any]) -> LoggedDirective:
    return LoggedDirective(
        whole(fields["number"]),
        seconds(fields["at"]),
        text(fields["by"]),
        text(fields["action"]),
    )

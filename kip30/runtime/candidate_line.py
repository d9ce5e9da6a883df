"""The line of the candidates that wait for one service, and their turns at a vacancy.

If each of a thousand candidates claimed at a vacancy, the store would refuse 999 claims, and each
client would look again. So a candidate that was refused joins a group of the service, whose members
are a line (`line_position`). Only the first `NEAR` of the line watch the service. They claim one
after the other (`vacancies.TURN_SECONDS`), so that a stopped candidate delays those behind it for a
moment, and not until its session ends. Each other candidate watches the member `NEAR` places before
it, and comes near when that one is gone. So at a vacancy the number of claims, notifications and
reads does not depend on the number of candidates.

The line only serves progress. The store decides which candidate leads when it grants a claim, so a
client that claims out of turn, such as one that was just nominated, does no harm.
"""

import hashlib
import json
import logging
import math
import os
import platform
import random
import time
from typing import Any, NamedTuple, cast

from kip30.driver.records import Kind, Target
from kip30.errors import InvalidNameError, Kip30Error, NotMemberError, UnavailableError, UsageError
from kip30.names import check_id
from kip30.runtime.deadline_wait import DeadlineWait
from kip30.runtime.dispatcher import Task
from kip30.runtime.group_place import GroupPlace
from kip30.runtime.line_position import LinePosition, one_at
from kip30.runtime.open_store import OpenStore
from kip30.runtime.priority_rules import check_priority
from kip30.runtime.vacancies import TURN_SECONDS

log: logging.Logger = logging.getLogger(__name__)

NEAR = 3
"""Number of candidates that watch the service: if the only one died, a vacancy would last a
session."""

_USE_SECONDS = 0.5
"""Seconds that the candidates of one client may lead one after the other while others wait."""

_PREFIX = "kip30.candidates"
_PREFERRED = "kip30.preferred"


def line_group(service: str) -> str:
    """Return the name of the group in which candidates for *service* wait."""
    return _group(_PREFIX, service)


def preferred_group(service: str) -> str:
    """Return the name of the group of those of them that have a priority above 0."""
    return _group(_PREFERRED, service)


def _group(prefix: str, service: str) -> str:
    name = f"{prefix}/{service}"
    try:
        return check_id(name, "group")
    except InvalidNameError:  # too long
        return f"{prefix}//{hashlib.sha256(service.encode()).hexdigest()}"


def service_of_line(group: str) -> str | None:
    """Return the service whose candidates wait in *group*; None: unknown, or it is no line."""
    prefix, slash, service = group.partition("/")
    is_named = prefix == _PREFIX and slash and not service.startswith("/")
    return service if is_named else None


class LinePlace(NamedTuple):
    """The data of a place, for operators; in the group of preferred candidates also for clients.

    Attributes:
        candidate: The candidate for which the place was taken; the others of its client share it.
        host: The name of its host.
        pid: The id of its process.
        since: When it was taken, in seconds since 1970 by the clock of the host.
        priority: That of the candidate; 0 also if its kip30 knows none.
    """

    candidate: str
    host: str
    pid: int
    since: float
    priority: int = 0


def encode_place(candidate: str, priority: int = 0) -> bytes:
    """Return the data of a place that this process takes now."""
    place = LinePlace(candidate, platform.node(), os.getpid(), round(time.time(), 3), priority)
    return json.dumps(place._asdict()).encode()


def decode_place(data: bytes) -> LinePlace | None:
    """Return what *data* has; None: another version of kip30, or another program, wrote it."""
    try:
        fields = cast("dict[str, Any]", json.loads(data))
        candidate, host = fields["candidate"], fields["host"]
        pid, since = int(fields["pid"]), float(fields["since"])
        return LinePlace(str(candidate), str(host), pid, since, _priority(fields.get("priority")))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def _priority(field: object) -> int:
    try:
        return check_priority(field)
    except UsageError:
        return 0


class CandidateLine:
    """The place of one campaign in the line of its service. Used by its task alone.

    Attributes:
        rank: How many candidates are before it, as far as is known; `NEAR` without a place.
    """

    def __init__(self, store: OpenStore, service: str, task: Task) -> None:
        """Take no place yet; wake *task* when the place may have changed."""
        self.rank: int = NEAR
        self._store = store
        self._group = line_group(service)
        self._task = task
        self._place = GroupPlace(store, self._group, task.wake)
        self._position: LinePosition | None = None
        # When a candidate that is not near looks at the service itself, and whether it does now.
        self._look_at = math.inf
        self._looks = False
        # When this place was taken, and whether a candidate was elected from it since.
        self._joined_at = -math.inf
        self._is_served = False

    def __bool__(self) -> bool:
        """Return whether there is a place, or a claim of one that may still be granted."""
        return bool(self._place)

    def turn(self) -> int:
        """Return how many candidates claim before this one at a vacancy, at most."""
        return min(self.rank, NEAR)

    def is_near(self) -> bool:
        """Return whether this candidate must watch the service."""
        return self.rank < NEAR or self._position is None or self._looks

    def has_others(self) -> bool:
        """Return whether the store shows places of others; false without an answer in a turn."""
        store = self._store
        wait = DeadlineWait(store.backend.name, TURN_SECONDS, UnavailableError)
        try:
            snapshot = wait(store.drivers.observe.snapshot(Target(Kind.GROUP, self._group)))
        except Kip30Error as error:
            log.debug("not looking who waits, for %s", error)
            return False
        claim = self._place.claim
        return not snapshot.entries.keys() <= {claim.name if claim else None}

    def saw_nothing_to_claim(self) -> None:
        """Note that the service has a leader, or that a directive keeps its candidates back."""
        if self._looks:
            self._looks = False
            self._set_look()

    def served(self) -> None:
        """Note that a candidate was elected: this client's next one will join the end of the line.

        It joins with a delay. Otherwise a lock that threads of one client quickly pass to each
        other would join a line for each of them.
        """
        self._is_served = True

    def keep(self, candidate: str, priority: int) -> None:
        """Take or keep a place, and find out its rank.

        Args:
            candidate: One that waits.
            priority: Its priority.

        Raises:
            Kip30Error: Not all of that was done. The next call continues.
        """
        if self._is_served and self._store.context.clock.now() >= self._joined_at + _USE_SECONDS:
            self.leave()
        self._place.search_late()
        self._looks = self._looks or self._store.context.clock.now() >= self._look_at
        if self._place.is_lost():
            self._forget()
        position = self._position or self._join(candidate, priority)
        try:
            self.rank = position.count()
        except NotMemberError as error:
            log.info("joining the line again, for %s", error)
            self._forget()
            self._task.wake()

    def leave(self) -> None:
        """Give up the place.

        Raises:
            Kip30Error: It is not given up yet. The next call continues.
        """
        self._place.leave()
        self._forget()
        self._place.search_late()

    def due(self) -> float:
        """Return when something must be done without an event; infinite if there is nothing."""
        look_at = math.inf if self._looks else self._look_at
        used_at = self._joined_at + _USE_SECONDS if self._is_served else math.inf
        return min(self._place.due(), look_at, used_at)

    def _join(self, candidate: str, priority: int) -> LinePosition:
        claim = self._place.take(encode_place(candidate, priority))
        self._joined_at = self._store.context.clock.now()
        self._set_look()
        select = one_at(NEAR)
        self._position = LinePosition(self._store, self._group, claim, self._task, select)
        return self._position

    def _forget(self) -> None:
        """Forget the place in this client; send nothing."""
        self._place.forget()
        if self._position is not None:
            self._position.close()
        self._position = None
        self._is_served = self._looks = False
        self._look_at = math.inf
        self.rank = NEAR

    def _set_look(self) -> None:
        """Schedule a look at the service in about a session timeout, with jitter among candidates.

        This is for stores on which a session ends only when another client looks at what it held.
        """
        context = self._store.context
        pause = context.session_timeout_seconds * random.uniform(0.75, 1.25)  # noqa: S311  jitter
        self._look_at = context.clock.now() + pause

"""The candidates with a priority that wait for one service: one of this client, and all others.

A client whose candidates wait with a priority above 0 is a member of a group of the service, with
the highest of their priorities. The group has only such members, so that it can be read with each
election, however long the line is. `priority_rules` says what follows from it.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

from kip30.config import MAX_PRIORITY
from kip30.driver.records import Claim, Kind, Snapshot, Target
from kip30.errors import AuthenticationError, Kip30Error, StoreError, UnavailableError
from kip30.names import INTERNAL
from kip30.runtime.candidacy import Candidacy
from kip30.runtime.candidate_line import NEAR, decode_place, encode_place, preferred_group
from kip30.runtime.deadline_wait import DeadlineWait
from kip30.runtime.group_place import GroupPlace
from kip30.runtime.open_store import OpenStore
from kip30.runtime.priority_rules import (
    PRIORITY_TURN_OF_POLLS_SECONDS,
    PRIORITY_TURN_SECONDS,
    PreferredCandidate,
    PriorityRules,
)

log: logging.Logger = logging.getLogger(__name__)


class PreferredCandidates:
    """Answers a campaign's questions about priorities. Used by its task alone.

    If the group cannot be read, no candidate has a priority: that never keeps a service vacant.

    Attributes:
        takes_part: Whether there are priorities. A client that obeys no directives reads and joins
            nothing, and all answers are as without priorities; nor have kip30's own services any,
            such as locks.
    """

    def __init__(
        self,
        store: OpenStore,
        service: str,
        wake: Callable[[], None],
        may_replace: Callable[[str, Claim | None], bool],
    ) -> None:
        """Know nothing yet.

        Args:
            store: The store.
            service: The service.
            wake: Called when something must be done: it must not block.
            may_replace: See `DirectiveWatch.may_replace`.
        """
        self._store = store
        self._service = service
        self._may_replace = may_replace
        self.takes_part: bool = store.obeys_directives and not service.startswith(INTERNAL)
        group = preferred_group(service)
        self._target = Target(Kind.GROUP, group)
        self._place = GroupPlace(store, group, wake)
        # The priority with which the place was taken, or is being taken; 0: there is no place.
        self._priority = 0
        polls = not store.drivers.election.forms_line
        self._rules = PriorityRules(
            PRIORITY_TURN_OF_POLLS_SECONDS if polls else PRIORITY_TURN_SECONDS,
            store.context.session_timeout_seconds,
        )
        # The answer to the last `ask`.
        self._asked: Future[Snapshot] | None = None
        # Whether the others may have changed, so that a candidate that waits looks.
        self._must_look = False
        # Whether a claim is being given back, after which others have their turn.
        self._is_returning = False
        self._has_warned = False

    def __bool__(self) -> bool:
        """Return whether there is a place, or a claim of one that may still be granted."""
        return bool(self._place)

    def keep(self, waiting: Sequence[Candidacy], latest: Snapshot | None) -> None:
        """Take, keep or leave a place.

        Args:
            waiting: The candidacies that wait, that of the highest priority first.
            latest: The leader that the store shows; None if not known.

        Raises:
            Kip30Error: The store did not answer. The next call continues.
        """
        for candidate in () if latest is None else latest.entries:
            self._rules.saw_leader(candidate)
        try:
            self._keep_place(waiting)
        except (AuthenticationError, StoreError) as error:
            self._warn(error)
        if waiting and self._must_look:
            self._must_look = False
            self._look(None, self._request())

    def refused(self) -> None:
        """Note that a claim was refused: another candidate leads, and those that wait change."""
        self._must_look = True

    def led(self) -> None:
        """Note that a candidate of this client leads."""
        self._is_returning = False
        self._rules.led()

    def ask(self, priority: int) -> None:
        """Ask the store for the others, unless none can be better than *priority*."""
        may_matter = self.takes_part and priority < MAX_PRIORITY
        self._asked = self._request() if may_matter else None

    def veto(self, priority: int, claim: Claim) -> str:
        """Return why a candidate may not lead with *claim*, by the answer to `ask`.

        It is to be given back then, and a turn of others begins. Empty if it may lead.
        """
        answer, self._asked = self._asked, None
        if answer is None:
            return ""
        self._look(claim, answer)
        better = self._rules.better(priority, self._now())
        if better is None:
            return ""
        self._rules.leave_turn(priority, self._now())
        self._is_returning = True
        return f"{better.candidate!r} waits with the priority {better.priority}"

    def released(self) -> None:
        """Note that a claim was given back."""
        if self._is_returning:
            self._is_returning = False
            self._rules.begin_turn(self._now())

    def holds_back(self, priority: int) -> bool:
        """Return whether others have their turn before a candidate with *priority*."""
        return self._rules.holds_back(priority, self._now())

    def leaves_turn(self, priority: int, *, is_unsure: bool) -> bool:
        """Return whether a candidate with *priority* leaves a turn to others before it claims.

        If a better one was seen, or this *is unsure*, the store is asked first: a claim that is
        given back costs more, and observers see it.
        """
        is_known = self._rules.better(priority, self._now()) is not None
        if not (self.takes_part and (is_known or is_unsure)):
            return False
        self._look(None, self._request())
        if self._rules.better(priority, self._now()) is None:
            return False
        self._rules.leave_turn(priority, self._now())
        return True

    def turn(self, priority: int) -> int:
        """Return how many candidates with the same *priority* claim before, at most."""
        claim = self._place.claim
        version = None if claim is None else claim.entry.version
        return min(self._rules.turns_before(priority, version), NEAR)

    def moments(self) -> tuple[float, float]:
        """Return when something is due next: infinite, or past, if nothing is."""
        return self._place.due(), self._rules.due()

    def _now(self) -> float:
        return self._store.context.clock.now()

    def _keep_place(self, waiting: Sequence[Candidacy]) -> None:
        self._place.search_late()
        if self._place.is_lost():
            self._place.forget()
        priority = waiting[0].priority if waiting else 0
        if self._priority not in {0, priority}:
            self._place.leave()
            self._priority = 0
        if priority and self._place.claim is None:
            self._priority = priority
            self._place.take(encode_place(waiting[0].candidate, priority))
            self._must_look = True

    def _request(self) -> Future[Snapshot]:
        return self._store.drivers.observe.snapshot(self._target)

    def _look(self, claim: Claim | None, answer: Future[Snapshot]) -> None:
        """Take *answer*; without one in a turn, the others are taken to have no priorities."""
        others = list[PreferredCandidate]()
        wait = DeadlineWait(self._store.backend.name, PRIORITY_TURN_SECONDS, UnavailableError)
        try:
            others += self._others(wait(answer), claim)
        except (AuthenticationError, StoreError) as error:
            self._warn(error)
        except Kip30Error as error:
            log.debug("not looking who is preferred for %r, for %s", self._service, error)
        self._rules.saw_others(others)

    def _others(self, snapshot: Snapshot, claim: Claim | None) -> Iterator[PreferredCandidate]:
        self._store.unreadable.note(self._target, snapshot.unreadable)
        own = self._place.ids()
        for name, entry in snapshot.entries.items():
            place = None if name in own else decode_place(entry.data)
            if place is not None and place.priority and self._may_replace(place.candidate, claim):
                yield PreferredCandidate(entry.version, place.candidate, place.priority)

    def _warn(self, error: Kip30Error) -> None:
        if not self._has_warned:
            log.warning("priorities for %r may have no effect: %s", self._service, error)
        self._has_warned = True

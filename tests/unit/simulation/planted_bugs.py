"""Wrong versions of the core, one for each promise that schedules judge: each must be found."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from kip30 import GroupMembership, storage
from kip30.config import CommonSettings
from kip30.coordinator import member_guards
from kip30.coordinator.decisions import leader, member_facts
from kip30.coordinator.decisions.validity import NEVER
from kip30.coordinator.shared_member import MemberShare
from kip30.driver.kit.session import CurrentSession, Renewal
from kip30.driver.lease import LATE, Lease
from kip30.driver.records import new_nonce
from kip30.errors import OutcomeUnknownError, UnavailableError
from kip30.operations.operator_records import OperatorRecord
from kip30.recipes.lock import LockElection
from kip30.runtime.campaign import Campaign
from kip30.runtime.directive_rules import DirectiveRules
from kip30.runtime.dispatcher import Dispatcher
from kip30.runtime.late_claims import LateClaims
from kip30.runtime.leased import LeaseBound
from kip30.runtime.member_claims import MemberClaims
from kip30.runtime.member_lifecycle import MemberLifecycle
from kip30.runtime.member_phases import Update
from kip30.runtime.preferred_candidates import PreferredCandidates
from kip30.runtime.subscriptions import Feed
from kip30_conformance.simulation import model_client

Wrong = Callable[[Any], Any]
"""Returns a wrong version of what it is given."""


def _renewals_dated_from_the_answer(_: Any) -> Any:
    def answered(self: Any, session: Any, sessions: Any, _sent_at: float, renewed: Any) -> None:
        right(self, session, sessions, self._clock.now(), renewed)

    right: Any = vars(Renewal)["_answered"]
    return answered


def _leases_dated_from_the_answer(right: Any) -> Any:
    def opened(self: Any, until: float) -> Any:
        session = right(self, until)
        return session._replace(lease=self._context.lease(sent_at=self._context.clock.now()))

    return opened


def _no_margin(_: Any) -> Any:
    return property(lambda _: 0.0)


def _late_claims_are_forgotten(_: Any) -> Any:
    return lambda *_given: None


def _nothing_is_read_after_a_lost_notification(_: Any) -> Any:
    def connected(self: Any) -> None:
        if not self._is_closed:
            self._store.watch(self._root, self._target, self._changed)
            if not hasattr(self, "has_read"):
                self.has_read = True
                self._link.deliver(self._state())

    return connected


def _members_return_with_old_data(_: Any) -> Any:
    def rejoin(self: Any, member: Any) -> None:
        self._lose(member, "not renewed in time")
        self._release(member)
        newest = self._phases.newest()
        self._claim(Update(newest.number, member.data), is_rejoin=True)

    return rejoin


def _a_wake_up_during_a_run_is_lost(_: Any) -> Any:
    def finished(self: Any, task: Any) -> None:
        with self._lock:
            task.running = False
            if task.waits_for_store and (admitted := self._store_tasks.finish()):
                self._ready.append(admitted)
            task.woken = False

    return finished


def _a_lost_claim_is_repeated_under_another_nonce(right: Any) -> Any:
    def ask(self: Any, candidacy: Any) -> Any:
        if candidacy.is_uncertain():
            candidacy.nonce = new_nonce()
        return right(self, candidacy)

    return ask


def _the_next_term_has_the_old_nonce(_: Any) -> Any:
    def ended(self: Any, candidacy: Any, reason: str) -> Any:
        term, candidacy.leadership = candidacy.leadership, None
        if term is not None:
            term.end(reason)
            self._remember(candidacy)
        return term

    return ended


def _a_late_renewal_revives_a_lease(_: Any) -> Any:
    def renewed(self: Any, sent_at: float) -> bool:
        with self._lock:
            if self._ended is None:
                self._deadline = max(self._deadline, sent_at + self._span)
                return True
        return False

    return renewed


def _a_lost_update_counts_as_done(right: Any) -> Any:
    def replace(self: Any, update: Any, wait: Any) -> bool:
        try:
            return bool(right(self, update, wait))
        except OutcomeUnknownError:
            self._phases.acknowledge(update)
            return True

    return replace


def _a_claim_that_was_found_counts_as_new(right: Any) -> Any:
    def claim(self: Any, data: bytes) -> Any:
        return right(self, data)._replace(shows_data=True)

    return claim


def _a_return_is_notified_without_a_loss(_: Any) -> Any:
    def lose(self: Any, member: Any, reason: str) -> None:
        if self._phases.lose() is not None:
            member.end(reason)
            self._task.wake()

    return lose


def _a_resigned_claim_is_not_released(_: Any) -> Any:
    def finish(self: Any) -> None:
        for candidacy in list(self._leaving):
            self._leaving.remove(candidacy)
            candidacy.complete_resignation(candidacy.resigned, self._service, is_confirmed=True)

    return finish


def _a_lost_session_is_left_in_the_store(right: Any) -> Any:
    def replace(self: Any, until: float) -> Any:
        if self._session is not None:
            self.mark_lost(self._session, LATE)
        self._former = None
        return right(self, until)

    return replace


def _places_of_tasks_are_not_freed(_: Any) -> Any:
    def finished(self: Any, task: Any) -> None:
        with self._lock:
            task.running = False
            if task.woken:
                task.woken = False
                self._enqueue(task)

    return finished


def _one_reader_of_a_feed_is_woken(_: Any) -> Any:
    def take(self: Any, snapshot: Any) -> None:
        with self._lock:
            if self.latest is not None and snapshot.order < self.latest.order:
                return
            self.latest = snapshot
            self._deltas.note(snapshot)
        for reader in list(self.tasks)[:1]:
            reader.wake()

    return take


def _a_lost_write_counts_as_refused(_: Any) -> Any:
    def write(driver: Any, write: Any, wait: Any) -> Any:
        try:
            return wait(driver.write(write))
        except OutcomeUnknownError as error:
            raise UnavailableError("no answer") from error

    return write


def _no_write_is_sent(_: Any) -> Any:
    def write(_driver: Any, _write: Any, _wait: Any) -> Any:
        raise UnavailableError("no answer")

    return write


def _listeners_are_not_called(_: Any) -> Any:
    return lambda _group, _listener, **_how: None


def _a_lost_write_is_found_in_any_newer_record(_: Any) -> Any:
    def write(driver: Any, write: Any, wait: Any) -> Any:
        try:
            return wait(driver.write(write))
        except OutcomeUnknownError:
            entry = wait(driver.read((write.key,)))[0]
            if entry is None:
                raise
            return entry.version

    return write


def _a_set_is_repeated_after_a_lost_answer(right: Any) -> Any:
    def write(driver: Any, write: Any, wait: Any) -> Any:
        try:
            return right(driver, write, wait)
        except OutcomeUnknownError:
            return wait(driver.write(write))

    return write


def _a_released_grip_is_still_valid(right: Any) -> Any:
    def end(self: Any, reason: str) -> Any:
        return None if reason == "resigned" else right(self, reason)

    return end


def _an_acquire_that_has_timed_out_still_waits(_: Any) -> Any:
    @contextmanager
    def block(_self: Any, _candidacy: Any) -> Generator[None]:
        yield

    return block


def _a_round_waits_for_no_member(_: Any) -> Any:
    return lambda *_given: True


def _a_share_lasts_as_long_as_the_lease(right: Any) -> Any:
    def share_deadline(own: Any, *, lease_deadline: float, **others: float) -> Any:
        until = right(own, lease_deadline=lease_deadline, **others)
        return lease_deadline if until > NEVER else until

    return share_deadline


def _writes_are_not_guarded(_: Any) -> Any:
    return lambda *_given: {}


def _the_deadline_of_a_silent_member_outlasts_its_leave(right: Any) -> Any:
    def leased(self: Any, facts: Any) -> Any:
        facts = right(self, facts)
        if facts.record is None or not facts.lease_deadline:
            return facts
        return replace(facts, lease_deadline=self._member.deadline)

    return leased


def _directives_are_not_read_after_a_grant(_: Any) -> Any:
    return lambda *_given: None


def _others_hold_back_for_ever(_: Any) -> Any:
    def holding(self: Any, now: float, time_of_day: float, granted: Any = None) -> Any:
        step_down = self._in_effect(now, time_of_day)
        if step_down is None:
            return None
        fulfilled = step_down.fulfilled or self._fulfilled
        return None if fulfilled and fulfilled != granted else step_down

    return holding


def _a_term_is_released_when_its_end_is_requested(right: Any) -> Any:
    def step_down(self: Any) -> None:
        right(self)
        for candidacy in list(self._candidacies.values()):
            term = candidacy.leadership
            if term is not None and term.step_down_requested.is_set():
                self._release(term.claim)

    return step_down


def _bans_are_not_read_after_a_claim(_: Any) -> Any:
    return lambda _self, _claim: None


def _winners_do_not_look_for_better_candidates(_: Any) -> Any:
    return lambda *_given: iter(())


def _operators_overwrite_each_other(_: Any) -> Any:
    def has_written(self: Any, _version: Any, wanted: Any) -> bool:
        self._storage.set(self._key, self._encode(wanted))
        return True

    return has_written


BUGS: Mapping[str, tuple[Any, str, Wrong]] = {
    "no margin": (CommonSettings, "margin_seconds", _no_margin),
    "renewals dated from the answer": (Renewal, "_answered", _renewals_dated_from_the_answer),
    "leases dated from the answer": (
        vars(model_client)["_Sessions"],
        "_open",
        _leases_dated_from_the_answer,
    ),
    "late claims are forgotten": (LateClaims, "remember", _late_claims_are_forgotten),
    "nothing is read after a lost notification": (
        vars(model_client)["_Subscription"],
        "_connected",
        _nothing_is_read_after_a_lost_notification,
    ),
    "members return with old data": (MemberLifecycle, "_rejoin", _members_return_with_old_data),
    "a wake-up during a run is lost": (Dispatcher, "_finished", _a_wake_up_during_a_run_is_lost),
    "a lost claim is repeated under another nonce": (
        Campaign,
        "_ask",
        _a_lost_claim_is_repeated_under_another_nonce,
    ),
    "the next term has the old nonce": (
        Campaign,
        "_ended_term",
        _the_next_term_has_the_old_nonce,
    ),
    "a late renewal revives a lease": (Lease, "record_renewal", _a_late_renewal_revives_a_lease),
    "a lost update counts as done": (MemberLifecycle, "_replace", _a_lost_update_counts_as_done),
    "a claim that was found counts as new": (
        MemberClaims,
        "claim",
        _a_claim_that_was_found_counts_as_new,
    ),
    "a return is notified without a loss": (
        MemberLifecycle,
        "_lose",
        _a_return_is_notified_without_a_loss,
    ),
    "a resigned claim is not released": (
        Campaign,
        "_finish_leaving",
        _a_resigned_claim_is_not_released,
    ),
    "a lost session is left in the store": (
        CurrentSession,
        "_replace",
        _a_lost_session_is_left_in_the_store,
    ),
    "places of tasks are not freed": (Dispatcher, "_finished", _places_of_tasks_are_not_freed),
    "one reader of a feed is woken": (Feed, "take", _one_reader_of_a_feed_is_woken),
    "a lost write counts as refused": (
        storage,
        "write_and_settle",
        _a_lost_write_counts_as_refused,
    ),
    "no write is sent": (storage, "write_and_settle", _no_write_is_sent),
    "listeners are not called": (GroupMembership, "add_listener", _listeners_are_not_called),
    "a lost write is found in any newer record": (
        storage,
        "write_and_settle",
        _a_lost_write_is_found_in_any_newer_record,
    ),
    "a set is repeated after a lost answer": (
        storage,
        "write_and_settle",
        _a_set_is_repeated_after_a_lost_answer,
    ),
    "a released grip is still valid": (LeaseBound, "end", _a_released_grip_is_still_valid),
    "an acquire that has timed out still waits": (
        LockElection,
        "_withdrawn_unless_it_leads",
        _an_acquire_that_has_timed_out_still_waits,
    ),
    "a round waits for no member": (leader, "_all_joined", _a_round_waits_for_no_member),
    "a share lasts as long as the lease": (
        member_facts,
        "share_deadline",
        _a_share_lasts_as_long_as_the_lease,
    ),
    "the deadline of a silent member outlasts its leave": (
        MemberShare,
        "_leased",
        _the_deadline_of_a_silent_member_outlasts_its_leave,
    ),
    "writes are not guarded": (member_guards, "guards", _writes_are_not_guarded),
    "directives are not read after a grant": (
        Campaign,
        "_read_directives",
        _directives_are_not_read_after_a_grant,
    ),
    "others hold back for ever": (DirectiveRules, "_holding", _others_hold_back_for_ever),
    "a term is released when its end is requested": (
        Campaign,
        "_end_requested_terms",
        _a_term_is_released_when_its_end_is_requested,
    ),
    "bans are not read after a claim": (
        MemberClaims,
        "_check_bans",
        _bans_are_not_read_after_a_claim,
    ),
    "winners do not look for better candidates": (
        PreferredCandidates,
        "_others",
        _winners_do_not_look_for_better_candidates,
    ),
    "operators overwrite each other": (
        OperatorRecord,
        "_has_written",
        _operators_overwrite_each_other,
    ),
}
"""By what is wrong: the class or module, the attribute, and what makes it wrong."""


_OF_DIRECTIVES = frozenset(
    {
        "directives are not read after a grant",
        "others hold back for ever",
        "a term is released when its end is requested",
        "winners do not look for better candidates",
        "operators overwrite each other",
    }
)


def is_of_directives(bug: str) -> bool:
    """Return whether *bug* shows only in runs with operators."""
    return bug in _OF_DIRECTIVES


def is_of_bans(bug: str) -> bool:
    """Return whether *bug* shows only in runs with operators who ban members."""
    return bug == "bans are not read after a claim"


def is_of_coordinator(bug: str) -> bool:
    """Return whether *bug* is in the part that divides items."""
    place = BUGS[bug][0]
    module = place.__module__ if isinstance(place, type) else place.__name__
    return module.startswith("kip30.coordinator")


@contextmanager
def planted(name: str) -> Generator[None]:
    """Run the core with the bug *name* in the block."""
    owner, attribute, wrong = BUGS[name]
    right = vars(owner)[attribute]
    setattr(owner, attribute, wrong(right))
    try:
        yield
    finally:
        setattr(owner, attribute, right)

"""Runs one handle's candidates for one service: decides when to claim, tracks which one leads.

One task sends all requests, `Campaign._step`. It compares the wanted state (the nominations)
with the known one (the newest snapshot, the leases) and takes the next step. Every event only wakes
it: a nomination, a resignation, a change of leader, the end of a lease, a timer.

A separate task, `Campaign._watch_terms`, ends terms that are no longer valid, and sends no request:
on_lost must not queue behind tasks that wait for a store that does not respond.

`kip30.runtime.candidacy_phases` has the phases of a candidacy, and each event that changes them. A
term that has ended is released in the store when the work under it has let go
(`kip30.runtime.term_work`).
"""

import logging
import math
import threading
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from kip30.driver.kit.futures import Completed, fail, succeed
from kip30.driver.kit.retry import Retry
from kip30.driver.records import Claim, HeldByOther, Kind, Target, new_nonce
from kip30.errors import (
    AlreadyNominatedError,
    AuthenticationError,
    ClosedError,
    DefiniteError,
    Kip30Error,
    LifecycleError,
    NotNominatedError,
    OutcomeUnknownError,
    StoreError,
)
from kip30.runtime.candidacy import Candidacy, Leadership
from kip30.runtime.candidacy_phases import CandidacyEvent, CandidacyPhase
from kip30.runtime.candidate_line import CandidateLine
from kip30.runtime.directive_watch import DirectiveWatch
from kip30.runtime.late_claims import LateClaims
from kip30.runtime.lost_answers import given_back
from kip30.runtime.open_store import OpenStore
from kip30.runtime.past_term_writer import PastTermWriter
from kip30.runtime.preferred_candidates import PreferredCandidates
from kip30.runtime.target_watch import TargetWatch
from kip30.runtime.term_work import TermWork
from kip30.runtime.vacancies import Vacancies

log: logging.Logger = logging.getLogger(__name__)

_LINGER_SECONDS = 10.0
"""Seconds that a service is watched after the last nomination: another one may follow soon.

The watch ends earlier if another client leads: otherwise each hand-over of a lock would notify all
clients that have used it lately.
"""
_HOPELESS = (AuthenticationError, StoreError)


class Campaign:
    """Nominations for one service and the task that works on them."""

    def __init__(self, store: OpenStore, service: str, *, forms_line: bool = True) -> None:
        """Do nothing before the first nomination.

        Without *forms_line* its candidates join no line, because they already wait in one of their
        own.
        """
        self._store = store
        self._driver = store.drivers.election
        self._service = service
        self._task = store.dispatcher.task(
            self._step, f"campaign for {service!r}", waits_for_store=True
        )
        self._terms = store.dispatcher.task(self._watch_terms, f"terms of {service!r}")
        self._lock = threading.Lock()
        # The nominations, by candidate. Written under the lock; tasks read copies.
        self._candidacies: dict[str, Candidacy] = {}
        # Candidacies that resigned, and whose release the store has not confirmed. Callers append
        # under the lock; the task alone removes.
        self._leaving: list[Candidacy] = []
        self._late_claims = LateClaims(store, service, self._release_late)
        # Ended terms whose claims must be given back. Any task appends; the campaign's alone
        # removes.
        self._surplus: list[Leadership] = []
        # Terms that operators have ended, each with what keeps it from being released before a
        # margin has passed. Any task appends; the campaign's alone removes.
        self._kept: dict[Leadership, TermWork] = {}
        self._watch = TargetWatch(store, Target(Kind.SERVICE, service), self._saw_change)
        # Whether a request was sent to the store since it was last idle. Written under the lock.
        self._is_kept = False
        self._line = CandidateLine(store, service, self._task)
        self._forms_line = forms_line and self._driver.forms_line
        self._vacancies = Vacancies(store.context.clock)
        self._directives = DirectiveWatch(store, service, self._terms.wake)
        self._preferred = PreferredCandidates(
            store, service, self._task.wake, self._directives.may_replace
        )
        self._past_terms = PastTermWriter(store, service)
        # Whether nominations are no longer accepted. Set once, under the lock.
        self._retired = False
        self._retry = Retry(store.context.clock)
        # Since when there is nothing to do; infinite while there is. Written by the task.
        self._idle_since = math.inf
        # When the newest timer of the task fires. Written by the task.
        self._timer = -math.inf

    # -- called by the portable class

    def add(self, candidacy: Candidacy, *, alone: bool = False) -> Candidacy:
        """Start *candidacy* or, if it asks for nothing new, return the existing one.

        Raises:
            AlreadyNominatedError: The candidate is nominated with other data or callbacks or, if
                this nomination is to be *alone*, at all. Nothing has changed.
            NotNominatedError: *candidacy* has been withdrawn before this call.
            LifecycleError: The campaign is retired.
        """
        with self._lock:
            if self._retired:
                raise LifecycleError("this handle is closed: ask the locator for another")
            if candidacy.resigned is not None:
                raise NotNominatedError(f"{candidacy.candidate!r} has resigned meanwhile")
            present = self._candidacies.get(candidacy.candidate)
            if present is not None and (alone or not present.is_renewed_by(candidacy)):
                raise AlreadyNominatedError(
                    f"{candidacy.candidate!r} is nominated here already: resign it first"
                )
            self._watch.begin()
            self._directives.begin()
            if not self._is_kept:
                self._store.register(self, self._service)
                self._is_kept = True
            if not self._candidacies:
                self._store.terms.nominated(self._service)
            kept = self._candidacies.setdefault(candidacy.candidate, candidacy)
        self._task.wake()
        return kept

    def find(self, candidate: str) -> Candidacy | None:
        """Return the nomination of *candidate*, if there is one."""
        return self._candidacies.get(candidate)

    def candidates(self) -> dict[str, Leadership | None]:
        """Return the nominated candidates, each with its term if it leads now."""
        return {
            name: candidacy.leadership if candidacy.leads() else None
            for name, candidacy in list(self._candidacies.items())
        }

    def withdraw(self, candidacy: Candidacy) -> Future[None]:
        """End a nomination and its leadership, locally at once.

        The release is sent when the work under the term has let go; its response ends the future.
        """
        with self._lock:
            if self._candidacies.get(candidacy.candidate) is candidacy:
                del self._candidacies[candidacy.candidate]
            if candidacy.resigned is not None:
                return candidacy.resigned
            candidacy.advance(CandidacyEvent.RESIGNED)
            resigned = candidacy.resigned = Future()
            asked = "" if candidacy.leadership is None else candidacy.leadership.step_down_reason
            candidacy.held = term = self._ended_term(candidacy, asked or "resigned")
            if term is not None:
                self._store.work.end_own(term)
                candidacy.lost.send(term)
            if not self._is_kept:  # no request was ever sent to the store
                candidacy.advance(CandidacyEvent.RELEASED)
                succeed(resigned, None)
            elif self._task.closed:  # no step will confirm it
                fail(resigned, ClosedError("closed while resigning"))
            else:
                self._leaving.append(candidacy)
        candidacy.answer_waiting(None)
        candidacy.first_attempt_done()
        self._task.wake()
        if term is not None:
            self._store.terms.ended(term)
        return resigned

    def waits_for_caller(self, candidacy: Candidacy) -> bool:
        """Return whether the withdrawal cannot be sent before the caller goes on."""
        return candidacy.held is not None and self._store.work.holds_caller(candidacy.held)

    def elected(self, candidate: str) -> Future[Leadership | None]:
        """Return a future of the term of *candidate*, this one or the next one.

        It ends with None once the candidate is not nominated. The term may have ended by the time
        that the caller looks at it. The future belongs to the caller, who may cancel it.
        """
        with self._lock:
            candidacy = self._candidacies.get(candidate)
            if candidacy is not None and not candidacy.leads():
                return candidacy.next_term()
            return Completed(None if candidacy is None else candidacy.leadership)

    def retire(self) -> list[Future[None]]:
        """Withdraw all candidates and accept no more; the campaign ends itself when that is done.

        No listener is called. The futures are those of candidates that do not wait for the caller.
        """
        with self._lock:
            self._retired = True
            candidacies = list(self._candidacies.values())
        for candidacy in candidacies:
            candidacy.stop_callbacks()
        resigned = [(one, self.withdraw(one)) for one in candidacies]
        self._task.wake()
        return [done for one, done in resigned if not self.waits_for_caller(one)]

    def close(self) -> None:
        """Stop claiming, locally and at once; the open store informs the store."""
        self._task.close()
        self._terms.close()
        with self._lock:
            self._retired = True
            candidacies = [*self._candidacies.values(), *self._leaving]
            self._candidacies.clear()
            self._leaving.clear()
            kept = list(self._kept.values())
            for candidacy in candidacies:
                candidacy.advance(CandidacyEvent.CLOSED)
                if candidacy.leadership is not None:
                    self._past_terms.ended(candidacy.leadership, "closed")
        for candidacy in candidacies:
            candidacy.close()
        for work in kept:
            self._store.work.end(work)

    # -- the tasks

    def _saw_change(self) -> None:
        """Wake the task that must handle a new state, if any: most states concern other clients."""
        candidacies = list(self._candidacies.values())
        if any(one.leadership is not None for one in candidacies):
            self._terms.wake()
        elif candidacies or self._is_owed() or self._vacancies.is_led(self._watch.latest()):
            self._task.wake()

    def _watch_terms(self) -> None:
        """End the terms that are no longer valid; the other task then does the rest."""
        self._directives.update(self._watch.latest())
        self._end_lost_terms()
        self._end_requested_terms()
        self._task.wake()

    def _step(self) -> None:
        begun = self._now()
        try:
            self._directives.update(self._watch.latest())
            self._directives.forget_vetoes()
            self._end_lost_terms()
            self._request_step_downs()
            self._end_kept()
            self._give_back()
            self._finish_leaving()
            self._late_claims.release_shown(self._watch.latest(), self._held_nonces)
            self._try_to_lead()
            self._keep_in_line()
            if self._preferred.takes_part:
                self._preferred.keep(self._waiting(), self._watch.latest())
            self._rest_if_idle()
            self._directives.report()
        except Exception as error:
            log.info("retrying campaign for %r after: %s", self._service, str(error))
            self._retry.failed()
            if not isinstance(error, Kip30Error):
                raise
        else:
            self._retry.succeeded()
        finally:
            self._set_timer(begun)

    def _set_timer(self, begun: float) -> None:
        """Set the one timer to the earliest moment that is due after *begun*."""
        idle_until = self._idle_since + _LINGER_SECONDS
        held = [term.held_until for term in self._held()]
        kept = [term.kept_until for term in list(self._kept)]
        turns = (*self._vacancies.moments(), *self._preferred.moments(), self._line.due())
        waits = (self._directives.due(), *held, *kept)
        moments = (self._retry.due, self._late_claims.due(), idle_until, *turns, *waits)
        due = min((moment for moment in moments if moment > begun), default=math.inf)
        if due < math.inf and not begun < self._timer <= due:
            self._timer = due
            self._task.wake_at(due)

    def _held(self) -> list[Leadership]:
        """Return the terms that have ended, and are held by the work under them."""
        leaving = [one.held for one in list(self._leaving) if one.held is not None]
        return [term for term in (*leaving, *self._surplus) if self._is_held(term)]

    def _held_nonces(self) -> set[str]:
        """Return the nonces of those terms.

        Under the lock: a term that another thread just ends is remembered first, and held then.
        """
        with self._lock:
            return {term.claim.entry.nonce for term in self._held()}

    def _is_held(self, term: Leadership | None) -> bool:
        return term is not None and self._store.work.is_held(term)

    def _now(self) -> float:
        return self._store.context.clock.now()

    def _rest_if_idle(self) -> None:
        """Stop watching the service when no candidate needs it: at once if retired, else later.

        Under the lock, so that a nomination finds the existing watch or begins another one.
        """
        with self._lock:
            is_owed = self._leaving or self._surplus or self._line or self._preferred
            if self._candidacies or is_owed:
                self._idle_since = math.inf
                return
            now = self._now()
            self._idle_since = min(self._idle_since, now)
            is_led = self._vacancies.is_led(self._watch.latest())
            if not (self._retired or is_led) and now < self._idle_since + _LINGER_SECONDS:
                return
            self._watch.end()
            self._directives.end()
            if self._late_claims:  # they are searched for without a watch
                return
            self._idle_since = math.inf
            self._store.unregister(self)
            self._is_kept = False
            if self._retired:
                self._task.close()
                self._terms.close()

    def _is_owed(self) -> bool:
        """Return whether a claim must be given back, or may have to be once the store shows it."""
        return bool(self._leaving or self._late_claims or self._surplus)

    def _keep_in_line(self) -> None:
        """Keep a place in the line while a candidate waits, and watch the service if it is near."""
        waiting = self._waiting()
        if not (waiting and self._forms_line):
            self._line.leave()
            return
        latest = self._watch.latest()
        is_vetoed = all(self._directives.veto(one.candidate) for one in waiting)
        if latest is not None and (latest.entries or is_vetoed):
            self._line.saw_nothing_to_claim()
        self._line.keep(waiting[0].candidate, waiting[0].priority)
        with self._lock:  # so that a nomination meanwhile keeps the watch that it needs
            if self._needs_watch():
                self._watch.begin()
            else:
                self._watch.end()
        if not self._one_leads():
            self._try_to_lead()

    def _by_priority(self) -> list[Candidacy]:
        """Return the candidacies, the one of the highest priority first."""
        candidacies = list(self._candidacies.values())
        if self._preferred.takes_part:
            candidacies.sort(key=lambda one: one.priority, reverse=True)
        return candidacies

    def _waiting(self) -> list[Candidacy]:
        candidacies = self._by_priority()
        return [one for one in candidacies if one.leadership is None and one.tried.done()]

    def _needs_watch(self) -> bool:
        candidacies = list(self._candidacies.values())
        return self._line.is_near() or any(
            one.leadership
            or one.is_uncertain()
            or not one.tried.done()
            or one.priority
            or self._directives.names(one.candidate)
            for one in candidacies
        )

    def _end_lost_terms(self) -> None:
        """End terms whose lease has ended, or whose service the store gave to another candidate."""
        for candidacy in list(self._candidacies.values()):
            term = candidacy.leadership
            if term is None:
                continue
            if not term.is_valid():
                self._lose(candidacy, term, term.lease.end_reason or term.lease.lateness)
            elif self._taken_away(term):
                term.held_until = -math.inf  # there is nothing to hold
                self._lose(candidacy, term, "the store has another leader, or none")

    def _request_step_downs(self) -> None:
        """Note which terms operators have ended, as the store has it now.

        A client that was stopped sees a directive by its watch that was withdrawn meanwhile.

        Raises:
            Kip30Error: The store did not answer. The next step continues.
        """
        for candidacy in list(self._candidacies.values()):
            term = candidacy.leadership
            if term is None or term.step_down_requested.is_set():
                continue
            if self._directives.step_down_of(term.claim) is None:
                continue
            self._directives.read(self._watch.latest())
            step_down = self._directives.step_down_of(term.claim)
            if step_down is not None:
                ends_at = self._now() + candidacy.step_down_seconds
                term.request_step_down(f"it steps down by {step_down.by!r}", ends_at)
                self._terms.wake_at(ends_at)
                if candidacy.step_down_seconds:
                    self._store.terms.step_down_requested(term, term.step_down_reason)

    def _end_requested_terms(self) -> None:
        """End the terms that operators have ended, each after the time that its candidate has."""
        margin = self._store.context.margin_seconds
        for candidacy in list(self._candidacies.values()):
            term = candidacy.leadership
            if term is not None and self._now() >= term.steps_down_at:
                self._lose(candidacy, term, term.step_down_reason, kept_seconds=margin)

    def _taken_away(self, term: Leadership) -> bool:
        latest = self._watch.latest()
        if latest is None or latest.order <= term.claim.order:
            return False
        entry = latest.entries.get(term.candidate)
        return entry is None or entry.nonce != term.claim.entry.nonce

    def _lose(
        self, candidacy: Candidacy, term: Leadership, reason: str, *, kept_seconds: float = 0.0
    ) -> None:
        """End *term*, unless the other task or a resignation has already ended it.

        It is released in the store *kept_seconds* later at the earliest.
        """
        with self._lock:
            if candidacy.leadership is not term:
                return
            candidacy.advance(CandidacyEvent.TERM_LOST)
            self._ended_term(candidacy, reason)
            if kept_seconds:
                term.kept_until = self._now() + kept_seconds
                self._kept[term] = self._store.work.begin(term)
            candidacy.lost.send(term)
            self._surplus.append(term)
        self._store.terms.ended(term)

    def _ended_term(self, candidacy: Candidacy, reason: str) -> Leadership | None:
        """End the present term, locally; under the lock, so that it ends before a release."""
        term, candidacy.leadership = candidacy.leadership, None
        if term is not None:
            term.end(reason)
            self._past_terms.ended(term, term.ending_reason)
            self._remember(candidacy)
            candidacy.nonce = new_nonce()
        return term

    def _end_kept(self) -> None:
        """Let those terms be released for which the margin has passed."""
        for term, work in list(self._kept.items()):
            if self._now() >= term.kept_until:
                del self._kept[term]
                self._store.work.end(work)

    def _give_back(self) -> None:
        """Release claims that none of our candidacies uses any longer."""
        for term in list(self._surplus):
            if not self._is_held(term):
                self._release(term.claim)
                self._surplus.remove(term)

    def _release(self, claim: Claim) -> bool:
        """Give *claim* back; false if the store did not confirm it, and the lease has ended."""
        ask = self._store.asking
        release = partial(self._driver.release, self._service, claim)
        is_confirmed = given_back(lambda: ask()(release()), claim.lease)
        if is_confirmed:
            self._vacancies.released(claim)
            self._preferred.released()
        return is_confirmed

    def _release_late(self, claim: Claim) -> None:
        """Give back *claim*, whose answer was lost, so that no candidate has led with it."""
        self._release(claim)
        self._store.terms.returned(self._service, claim, "the answer to it was lost")

    def _finish_leaving(self) -> None:
        """Complete the futures of resigned candidacies once the store has confirmed the release."""
        # Those first that owe the store nothing: they leave also while it does not answer.
        for candidacy in sorted(self._leaving, key=_owes_store):
            if self._is_held(candidacy.held):
                continue
            if candidacy.is_uncertain():
                self._resolve(candidacy)
            self._remember(candidacy)
            self._give_back()
            is_confirmed = candidacy.held is None or self._release(candidacy.held.claim)
            with self._lock, suppress(ValueError):  # closed meanwhile
                candidacy.advance(CandidacyEvent.RELEASED)
                self._leaving.remove(candidacy)
            if candidacy.resigned is not None:
                candidacy.complete_resignation(
                    candidacy.resigned, self._service, is_confirmed=is_confirmed
                )

    def _resolve(self, candidacy: Candidacy) -> None:
        """Take back a claim whose answer was lost, if it was granted."""
        self._late_claims.take_back(candidacy.candidate, candidacy.nonce, candidacy.data)
        self._advance(candidacy, CandidacyEvent.SETTLED)

    def _advance(self, candidacy: Candidacy, event: CandidacyEvent) -> None:
        with self._lock:
            candidacy.advance(event)

    def _remember(self, candidacy: Candidacy) -> None:
        """Remember a nonce that *candidacy* no longer uses, if it may still appear."""
        if candidacy.lost_answer:
            candidacy.lost_answer = False
            self._late_claims.remember(candidacy.candidate, candidacy.nonce, candidacy.data)

    def _try_to_lead(self) -> None:
        for candidacy in self._by_priority():
            if self._one_leads():
                break
            # Under the lock, because the other task may just end a term: that changes the nonce,
            # which must not change while a claim is in flight.
            with self._lock:
                term, surplus = candidacy.leadership, list(self._surplus)
            if term is not None or surplus:
                # A term has become invalid since this step began. End it and give its claim back
                # first. One that is still held is given back when the work under it lets go.
                if term is not None or not all(map(self._is_held, surplus)):
                    self._terms.wake()
                break
            if not candidacy.is_uncertain() and self._is_held_back(candidacy):
                candidacy.first_attempt_done()
                continue
            if self._gives_turn_to_others(candidacy):
                continue
            is_due = not candidacy.tried.done() or candidacy.is_uncertain()
            if is_due or self._seems_free(candidacy):
                self._attempt(candidacy)
        if self._one_leads():
            for candidacy in list(self._candidacies.values()):
                candidacy.first_attempt_done()

    def _is_held_back(self, candidacy: Candidacy) -> bool:
        """Return whether a directive, or a turn of a better candidate, keeps it from claiming."""
        if self._directives.veto(candidacy.candidate):
            return True
        is_named = self._directives.names(candidacy.candidate)
        return self._preferred.holds_back(candidacy.priority) and not is_named

    def _gives_turn_to_others(self, candidacy: Candidacy) -> bool:
        """Return whether a new *candidacy* leaves a turn to those that waited meanwhile.

        The next request of this client would reach the store before they are notified. Locks do
        without: their callers take turns within a client.
        """
        if candidacy.tried.done() or candidacy.is_internal or not self._forms_line:
            return False
        if not (self._vacancies.is_turn_of_others() and self._line.has_others()):
            return False
        self._vacancies.give_turn()
        return True

    def _one_leads(self) -> bool:
        return any(candidacy.leads() for candidacy in list(self._candidacies.values()))

    def _seems_free(self, candidacy: Candidacy) -> bool:
        is_named = self._directives.names(candidacy.candidate)
        turn = self._line.turn() if self._forms_line and not is_named else 0
        turn = self._preferred.turn(candidacy.priority) if candidacy.priority else turn
        if not self._vacancies.is_turn_of(candidacy.nonce, self._watch.latest(), turn):
            return False
        is_unsure = self._directives.holds()
        return is_named or not self._preferred.leaves_turn(candidacy.priority, is_unsure=is_unsure)

    def _attempt(self, candidacy: Candidacy) -> None:
        claimant = self._first_of_turn(candidacy)
        try:
            self._directives.require(self._watch.latest())
            answer = self._ask(claimant)
        except _HOPELESS as error:
            # `nominate` raises that of the first attempt; later attempts are retried.
            if not candidacy.first_attempt_done(error):
                raise
            self.withdraw(candidacy)
            return
        if isinstance(answer, Claim):
            if veto := self._veto(claimant, answer):
                self._return_vetoed(claimant, answer, veto)
            else:
                self._won(claimant, answer)
            if claimant is not candidacy:  # the next step tries again, unless *claimant* leads
                return
        else:
            self._vacancies.refused(answer)
            self._preferred.refused()
        candidacy.first_attempt_done()

    def _veto(self, candidacy: Candidacy, claim: Claim) -> str:
        """Return why *candidacy* may not lead with *claim*, which was granted; else empty."""
        veto = self._directives.veto(candidacy.candidate, claim)
        return veto or self._preferred.veto(candidacy.priority, claim)

    def _first_of_turn(self, candidacy: Candidacy) -> Candidacy:
        """Return the candidacy that makes the attempt of *candidacy*.

        Callers of a lock take turns in the order in which they came. One that has waited before
        *candidacy* came may not be notified of a vacancy yet, so it is not passed by.
        """
        if candidacy.tried.done() or not candidacy.is_internal:
            return candidacy
        waiting = (
            one
            for one in list(self._candidacies.values())
            if one.tried.done() and one.leadership is None
        )
        return next(waiting, candidacy)

    def _ask(self, candidacy: Candidacy) -> Claim | HeldByOther:
        was_uncertain = candidacy.is_uncertain()
        self._advance(candidacy, CandidacyEvent.CLAIM_SENT)
        future = self._driver.claim(
            self._service, candidacy.candidate, candidacy.nonce, candidacy.data
        )
        try:
            answer = self._store.asking()(future)
        except DefiniteError:
            if not was_uncertain:
                self._advance(candidacy, CandidacyEvent.NOT_GRANTED)
            raise
        except OutcomeUnknownError:
            candidacy.lost_answer = True
            raise
        if isinstance(answer, Claim):
            self._read_directives(candidacy, answer)
        else:
            self._advance(candidacy, CandidacyEvent.NOT_GRANTED)
        return answer

    def _read_directives(self, candidacy: Candidacy, claim: Claim) -> None:
        """Read the directives after the grant of *claim*; until then the candidacy is uncertain.

        In the same round trip the store is asked for better candidates. If the directives may not
        be read, the claim is given back: other candidates may be allowed to. If the store does not
        answer, it is repeated, with the same nonce.
        """
        try:
            self._preferred.ask(candidacy.priority)
            self._directives.read(self._watch.latest())
        except _HOPELESS as error:
            self._return_vetoed(candidacy, claim, str(error))
            raise
        except Kip30Error:
            candidacy.lost_answer = True
            raise

    def _new_term(self, candidacy: Candidacy, claim: Claim) -> Leadership:
        return Leadership(
            self._service,
            claim,
            candidacy.data,
            self._terms.wake,
            self._store.future,
            progress=self._store.work,
        )

    def _return_vetoed(self, candidacy: Candidacy, claim: Claim, veto: str) -> None:
        """Give back *claim*, with which the candidate may not lead: no callback is called."""
        self._vacancies.granted()
        with self._lock:
            candidacy.advance(CandidacyEvent.VETOED)
            self._remember(candidacy)
            candidacy.nonce = new_nonce()
        term = self._new_term(candidacy, claim)
        term.end(veto)
        self._surplus.append(term)
        self._task.wake()
        self._store.terms.returned(self._service, claim, veto)

    def _won(self, candidacy: Candidacy, claim: Claim) -> None:
        term = self._new_term(candidacy, claim)
        self._store.lease_tracker.adopt(claim.lease)
        self._line.served()
        self._preferred.led()
        self._vacancies.granted()
        with self._lock:
            kept = candidacy.advance(CandidacyEvent.GRANTED) is CandidacyPhase.LEADING
            if kept:
                candidacy.leadership = term
                self._past_terms.began(term)
                candidacy.elected.send(term)  # before anything can send its loss
        if kept:
            candidacy.answer_waiting(term)
            candidacy.first_attempt_done()
            # The term may have ended by now: `_saw_change` wakes this task only for terms it knows.
            self._terms.wake()
            self._store.terms.elected(term)
        else:
            term.end("resigned" if candidacy.resigned is not None else "closed")
            self._surplus.append(term)
            self._task.wake()
            self._store.terms.returned(self._service, claim, term.ending_reason)


def _owes_store(candidacy: Candidacy) -> bool:
    """Return whether *candidacy* has a claim in the store, or may have one."""
    return candidacy.held is not None or candidacy.is_uncertain()

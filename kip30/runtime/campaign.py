"""Runs one handle's candidates for one service: decides when to claim, tracks which one leads.

One task sends all requests, `Campaign._step`. It compares what is wanted (the nominations) with
what is (the newest snapshot, the leases) and takes the next step. Every event only wakes it: a
nomination, a resignation, a change of leader, the end of a lease, a timer.

A task of its own, `Campaign._watch_terms`, ends the terms that are over, and sends no request:
on_lost must not queue behind tasks that wait for a silent store.

    a candidacy     when                                                    becomes
    waiting         a claim is granted                                      leading
    waiting         a claim is not answered                                 uncertain
    uncertain       the claim with the same nonce is granted, or refused    leading, or waiting
    leading         the lease ends, or the store has another leader         waiting, new nonce
    any of these    resign, or the handle closes                            leaving
    leaving         the store confirms the release, or the lease is over    gone
"""

import logging
import math
import threading
from concurrent.futures import Future
from contextlib import suppress

from kip30.driver import Capability, LeaseSharing
from kip30.driver.kit.futures import Completed, fail, succeed
from kip30.driver.kit.retry import Retry
from kip30.driver.records import Claim, Entry, Held, Kind, Target, new_nonce
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
from kip30.runtime.late_claims import LateClaims
from kip30.runtime.lost_answers import given_back
from kip30.runtime.open_store import OpenStore
from kip30.runtime.subscriptions import Feed

log: logging.Logger = logging.getLogger(__name__)

_LINGER_SECONDS = 10.0
"""How long a service is watched after the last nomination: another one may follow soon."""
_HOPELESS = (AuthenticationError, StoreError)


class Campaign:
    """Nominations for one service and the task that pursues them."""

    def __init__(self, store: OpenStore, service: str) -> None:
        """Do nothing before the first nomination."""
        self._store = store
        self._driver = store.backend.election
        self._target = Target(Kind.SERVICE, service)
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
        self._late_claims = LateClaims(store, service, self._release)
        # Claims to be given back. Any task appends; the campaign's alone removes.
        self._surplus: list[Claim] = []
        # What is known of the service; None while no candidate needs it. Written under the lock.
        self._feed: Feed | None = None
        # Whether no nomination is taken any more. Set once, under the lock.
        self._retired = False
        # The order of the answer that refused the newest claim, and when the service may be free
        # again by that answer (a lock-delay); infinite if it did not say. Written by the task.
        self._refused_at = -1
        self._free_at = math.inf
        self._retry = Retry(store.context.clock)
        # Since when there is nothing to pursue; infinite while there is. Written by the task.
        self._idle_since = math.inf
        # When the timer of the task rings that was set last. Written by the task.
        self._timer = -math.inf

    # -- asked by the portable class

    def add(self, candidacy: Candidacy, *, alone: bool = False) -> Candidacy:
        """Pursue *candidacy* or, if it asks for nothing new, return the one there is.

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
            if self._feed is None:
                self._feed = self._store.observations.attach(self._target, self._terms)
                self._store.keep(self)
            kept = self._candidacies.setdefault(candidacy.candidate, candidacy)
        self._task.wake()
        return kept

    def find(self, candidate: str) -> Candidacy | None:
        """Return the nomination of *candidate*, if there is one."""
        return self._candidacies.get(candidate)

    def withdraw(self, candidacy: Candidacy) -> Future[None]:
        """End a nomination and its leadership, locally at once.

        The future ends when the store knows.
        """
        with self._lock:
            if self._candidacies.get(candidacy.candidate) is candidacy:
                del self._candidacies[candidacy.candidate]
            if candidacy.resigned is not None:
                return candidacy.resigned
            resigned = candidacy.resigned = Future()
            term = self._ended_term(candidacy, "resigned")
            if term is not None:
                candidacy.held = term.claim
            if self._feed is None:  # nothing was ever asked of the store
                succeed(resigned, None)
            elif self._task.closed:  # no step will confirm it
                fail(resigned, ClosedError("closed while resigning"))
            else:
                self._leaving.append(candidacy)
        candidacy.answer_waiting(None)
        candidacy.first_try_done()
        if term is not None:
            candidacy.lost.send(term)
        self._task.wake()
        return resigned

    def elected(self, candidate: str) -> Future[Leadership | None]:
        """Return a future of the term of *candidate*, this one or the next one.

        It ends with None once the candidate is not nominated. The term may be over by the time
        that the caller looks at it. The future is the caller's own, to be cancelled at will.
        """
        with self._lock:
            candidacy = self._candidacies.get(candidate)
            if candidacy is not None and not candidacy.leads():
                return candidacy.next_term()
            return Completed(None if candidacy is None else candidacy.leadership)

    def share_lease(self, leadership: Leadership) -> int | None:
        """Return a descriptor that keeps the lease alive, where the store has such a thing."""
        backend = self._store.backend
        if Capability.LEASE_SHARING not in backend.capabilities:
            return None
        if not isinstance(backend, LeaseSharing):
            return None
        return backend.share(leadership.lease)

    def retire(self) -> list[Future[None]]:
        """Withdraw all candidates and take no more; the campaign ends itself when that is done.

        No listener is called.
        """
        with self._lock:
            self._retired = True
            candidacies = list(self._candidacies.values())
        for candidacy in candidacies:
            candidacy.silence()
        resigned = [self.withdraw(candidacy) for candidacy in candidacies]
        self._task.wake()
        return resigned

    def close(self) -> None:
        """Stop claiming, locally and at once; the store hears of it from the open store."""
        self._task.close()
        self._terms.close()
        with self._lock:
            self._retired = True
            candidacies = [*self._candidacies.values(), *self._leaving]
            self._candidacies.clear()
            self._leaving.clear()
        for candidacy in candidacies:
            self._close_one(candidacy)

    def _close_one(self, candidacy: Candidacy) -> None:
        candidacy.silence()
        candidacy.answer_waiting(None)
        candidacy.first_try_done(ClosedError("closed while nominating"))
        if candidacy.leadership is not None:
            candidacy.leadership.end("closed")
        if candidacy.resigned is not None:
            fail(candidacy.resigned, ClosedError("closed while resigning"))

    # -- the tasks

    def _watch_terms(self) -> None:
        """End the terms that are over; then the other task goes on, once it gets its turn."""
        self._end_lost_terms()
        self._task.wake()

    def _step(self) -> None:
        begun = self._now()
        try:
            self._end_lost_terms()
            self._give_back()
            self._finish_leaving()
            self._release_late_claims()
            self._try_to_lead()
            self._rest_if_idle()
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
        """Have a step follow when the next thing is due after *begun*: one timer for them all."""
        idle_until = self._idle_since + _LINGER_SECONDS
        moments = (self._retry.due, self._free_at, self._late_claims.due(), idle_until)
        due = min((moment for moment in moments if moment > begun), default=math.inf)
        if due < math.inf and not begun < self._timer <= due:
            self._timer = due
            self._task.wake_at(due)

    def _now(self) -> float:
        return self._store.context.clock.now()

    def _rest_if_idle(self) -> None:
        """Stop watching the service when no candidate needs it: at once if retired, else later.

        Under the lock, so that a nomination finds the watch there is or begins another one.
        """
        with self._lock:
            if self._candidacies or self._leaving or self._late_claims or self._surplus:
                self._idle_since = math.inf
                return
            now = self._now()
            self._idle_since = min(self._idle_since, now)
            if not self._retired and now < self._idle_since + _LINGER_SECONDS:
                return
            self._idle_since = math.inf
            if self._feed is not None:
                self._feed = None
                self._store.observations.detach(self._target, self._terms)
            self._store.drop(self)
            if self._retired:
                self._task.close()
                self._terms.close()

    def _end_lost_terms(self) -> None:
        """End terms whose lease is over, or which the store gave to someone else."""
        for candidacy in list(self._candidacies.values()):
            term = candidacy.leadership
            if term is None:
                continue
            if not term.is_valid():
                self._lose(candidacy, term, term.lease.ended or "not renewed in time")
            elif self._taken_away(term):
                self._lose(candidacy, term, "the store has another leader, or none")

    def _taken_away(self, term: Leadership) -> bool:
        feed = self._feed
        latest = feed.latest if feed else None
        if latest is None or latest.order <= term.claim.order:
            return False
        entry = latest.entries.get(term.candidate)
        return entry is None or entry.nonce != term.claim.entry.nonce

    def _lose(self, candidacy: Candidacy, term: Leadership, reason: str) -> None:
        """End *term*, unless the other task or a resignation has ended it."""
        with self._lock:
            if candidacy.leadership is not term:
                return
            self._surplus.append(term.claim)
            self._ended_term(candidacy, reason)
        candidacy.lost.send(term)

    def _ended_term(self, candidacy: Candidacy, reason: str) -> Leadership | None:
        """End the term there is, locally; under the lock, so that it is done before a release."""
        term, candidacy.leadership = candidacy.leadership, None
        if term is not None:
            term.end(reason)
            self._remember(candidacy)
            candidacy.nonce = new_nonce()
        return term

    def _give_back(self) -> None:
        """Release claims that no candidacy of ours goes by any more."""
        while self._surplus:
            self._release(self._surplus[0])
            self._surplus.pop(0)

    def _release(self, claim: Claim) -> bool:
        """Give *claim* back; false if the store did not confirm it, and the lease is over."""
        ask = self._store.asking
        return given_back(lambda: ask()(self._driver.release(self._service, claim)), claim.lease)

    def _finish_leaving(self) -> None:
        """Tell those who resigned that the store knows, once it does."""
        while self._leaving:
            candidacy = self._leaving[0]
            if candidacy.uncertain:
                self._resolve(candidacy)
            self._remember(candidacy)
            self._give_back()
            is_told = candidacy.held is None or self._release(candidacy.held)
            with suppress(ValueError):  # closed meanwhile
                self._leaving.remove(candidacy)
            if candidacy.resigned is not None:
                self._tell(candidacy.resigned, candidacy.candidate, is_told=is_told)

    def _tell(self, resigned: Future[None], candidate: str, *, is_told: bool) -> None:
        if is_told:
            succeed(resigned, None)
            return
        error = OutcomeUnknownError(
            f"{candidate!r} has resigned, but the store has not confirmed it: others can lead"
            f" {self._service!r} when the session is over there"
        )
        fail(resigned, error)

    def _resolve(self, candidacy: Candidacy) -> None:
        """Take back a claim whose answer was lost, if it was granted."""
        self._late_claims.take_back(candidacy.candidate, candidacy.nonce, candidacy.data)
        candidacy.uncertain = False

    def _remember(self, candidacy: Candidacy) -> None:
        """Remember the nonce of *candidacy*, which it goes by no more, if that may appear yet."""
        if candidacy.unheard:
            candidacy.unheard = False
            self._late_claims.remember(candidacy.candidate, candidacy.nonce, candidacy.data)

    def _release_late_claims(self) -> None:
        self._late_claims.release_shown(self._feed.latest if self._feed is not None else None)

    def _try_to_lead(self) -> None:
        for candidacy in list(self._candidacies.values()):
            if self._one_leads():
                break
            if candidacy.leadership is not None or self._surplus:
                # A term is over since this step began. It must be ended first, and its claim given
                # back: its end changes the nonce, which must not happen to a claim under way.
                self._terms.wake()
                break
            if not candidacy.tried.done() or candidacy.uncertain or self._seems_free(candidacy):
                self._attempt(candidacy)
        if self._one_leads():
            for candidacy in list(self._candidacies.values()):
                candidacy.first_try_done()

    def _one_leads(self) -> bool:
        return any(candidacy.leads() for candidacy in list(self._candidacies.values()))

    def _seems_free(self, candidacy: Candidacy) -> bool:
        latest = self._feed.latest if self._feed else None
        if latest is None:
            return False
        if latest.order <= self._refused_at:
            return self._now() >= self._free_at
        holder: Entry | None = next(iter(latest.entries.values()), None)
        return holder is None or holder.nonce == candidacy.nonce

    def _attempt(self, candidacy: Candidacy) -> None:
        try:
            answer = self._ask(candidacy)
        except _HOPELESS as error:
            if candidacy.tried.done():
                raise
            self._drop(candidacy, error)
            return
        if isinstance(answer, Claim):
            self._won(candidacy, answer)
        else:
            self._refused(answer)
        candidacy.first_try_done()

    def _ask(self, candidacy: Candidacy) -> Claim | Held:
        was_uncertain, candidacy.uncertain = candidacy.uncertain, True
        future = self._driver.claim(
            self._service, candidacy.candidate, candidacy.nonce, candidacy.data
        )
        try:
            answer = self._store.asking()(future)
        except DefiniteError:
            candidacy.uncertain = was_uncertain
            raise
        except OutcomeUnknownError:
            candidacy.unheard = True
            raise
        candidacy.uncertain = False
        return answer

    def _drop(self, candidacy: Candidacy, error: Kip30Error) -> None:
        """Withdraw a candidate that the store will not take, and say so to who nominated it."""
        candidacy.first_try_done(error)
        self.withdraw(candidacy)

    def _won(self, candidacy: Candidacy, claim: Claim) -> None:
        term = Leadership(
            self._service, claim, candidacy.data, self._terms.wake, self._store.future
        )
        self._store.sessions.adopt(claim.lease)
        with self._lock:
            kept = self._candidacies.get(candidacy.candidate) is candidacy
            if kept:
                candidacy.leadership = term
                candidacy.elected.send(term)  # before anything can send that it is lost
        if kept:
            candidacy.answer_waiting(term)
            self._terms.wake()  # it may be over by now: until here nothing knew of it
        else:
            term.end("resigned")
            self._surplus.append(claim)
            self._task.wake()

    def _refused(self, held: Held) -> None:
        self._refused_at = held.by.order
        self._free_at = math.inf
        if held.retry_after_seconds is not None:
            self._free_at = self._now() + held.retry_after_seconds

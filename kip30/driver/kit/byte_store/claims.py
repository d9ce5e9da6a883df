"""Members and leaders: keys with an owner, which end with its lease."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from typing_extensions import override

from kip30.driver.kit import refusals
from kip30.driver.kit.blocking_calls import BlockingCalls
from kip30.driver.kit.byte_store.interface import (
    ByteStore,
    Commit,
    CommitOutcome,
    KeyCondition,
    Put,
)
from kip30.driver.kit.byte_store.session import Session, Sessions
from kip30.driver.kit.byte_store.target_states import TargetStates, claimed, unsealed
from kip30.driver.kit.key_claims import ClaimRequest, KeyClaims, Refused
from kip30.driver.records import Claim

T = TypeVar("T")


class Claims(KeyClaims[str]):
    """Keys with an owner."""

    def __init__(
        self, store: ByteStore, calls: BlockingCalls, states: TargetStates, sessions: Sessions
    ) -> None:
        """Tie keys to the lease of *sessions*."""
        self._calls = calls
        self._states = states
        self._store = store
        self._sessions = sessions

    @override
    def take(self, wanted: ClaimRequest[str], meaning: Callable[[Claim | Refused], T]) -> Future[T]:
        def taken(until: float) -> T:
            return meaning(self._sessions.within(partial(self._take, wanted, until), until))

        return self._calls.on_demand(taken)

    @override
    def replace(self, wanted: ClaimRequest[str], claim: Claim) -> Future[Claim | None]:
        return self._calls.on_demand(partial(self._replace, wanted, claim))

    @override
    def give_up(self, at: str, claim: Claim) -> Future[None]:
        return self._calls.begin(partial(self._give_up, at, claim))

    @override
    def give_up_all(self, held: Sequence[tuple[str, Claim]]) -> list[Future[None]]:
        return [self.give_up(*one) for one in held]

    def _take(self, wanted: ClaimRequest[str], until: float, session: Session) -> Claim | Refused:
        commit = Commit({wanted.at: KeyCondition(is_absent=True)}, _put(wanted, session), [])
        (outcome,) = self._store.commit([commit], until)
        order = self._states.orders.of(outcome.position)
        if outcome.is_done:
            return _claim(wanted, session, outcome.position.revision, order)
        found = outcome.found[wanted.at]
        holder = claimed(found)
        # An earlier attempt took the key, and its answer was lost.
        if found.lease == session.ident and holder.nonce == wanted.nonce:
            return _claim(wanted, session, found.created, order)
        return Refused(order, holder, found.created)

    def _replace(self, wanted: ClaimRequest[str], claim: Claim, until: float) -> Claim | None:
        held = _still_held(wanted.at, claim)[wanted.at]
        for found in self._store.get([wanted.at], until).records:
            if held.holds(found) and unsealed(found).nonce != claim.entry.nonce:
                raise refusals.other_record(wanted.name)
            held = held._replace(modified=found.modified)
        commit = Commit({wanted.at: held}, _put(wanted, claim.handle), [])
        (outcome,) = self._store.commit([commit], until)
        if not outcome.is_done:
            self._require_gone(wanted, claim, outcome)
            return None
        order = self._states.orders.of(outcome.position)
        return claim._replace(entry=wanted.entry(claim.entry.version.major), order=order)

    def _require_gone(
        self, wanted: ClaimRequest[str], claim: Claim, outcome: CommitOutcome
    ) -> None:
        found = outcome.found.get(wanted.at)
        if _still_held(wanted.at, claim)[wanted.at].holds(found):
            raise refusals.other_record(wanted.name)

    def _give_up(self, key: str, claim: Claim, until: float) -> None:
        self._store.commit([Commit(_still_held(key, claim), {}, [key])], until)


def _put(wanted: ClaimRequest[str], session: Session) -> dict[str, Put]:
    return {wanted.at: Put(wanted.sealed(), session.ident)}


def _claim(wanted: ClaimRequest[str], session: Session, created: int, order: int) -> Claim:
    return Claim(wanted.name, wanted.entry(created), session.lease, order, session)


def _still_held(key: str, claim: Claim) -> dict[str, KeyCondition]:
    session: Session = claim.handle
    return {key: KeyCondition(created=claim.entry.version.major, lease=session.ident)}

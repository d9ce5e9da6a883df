"""One client of a storm: a member, a candidate and a listener that works on the storage."""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kip30 import Kip30Error
from kip30_conformance.storm.believed_terms import Validity
from kip30_conformance.storm.client_roles import Candidate, Membership
from kip30_conformance.storm.listening import Listening
from kip30_conformance.storm.names import DIRECTED_SERVICE, GROUP, SERVICE, client_of
from kip30_conformance.storm.random_directives import SendDirectives
from kip30_conformance.storm.sharing import shares_seen, sharing
from kip30_conformance.storm.workload import (
    ActionContext,
    Fenced,
    Look,
    RepeatedAction,
    ReplaceKeys,
    Take,
    UpdateValue,
    Work,
)

_WORKERS = 2


class Participant:
    """All that one client does, each action on a thread of its own."""

    def __init__(self, context: ActionContext, folder: Path) -> None:
        """Prepare; `start` starts the actions.

        The folder *folder* has those for the records of terms and of work on items.
        """
        locator, journal, process = context.locator, context.journal, context.process
        group = locator.group_membership(GROUP)
        election = locator.leader_election(SERVICE)
        member = Membership(group, client_of(process), journal)
        candidate = Candidate(election, client_of(process), process, journal)
        listening = Listening(journal, locator.listener_registry(), group, election)
        guarded, shares = sharing(context, folder / "work")
        directed = locator.leader_election(DIRECTED_SERVICE)
        stand = partial(directed.nominate, client_of(process), process)
        self._context = context
        self._validity = Validity(folder / "terms", process, election)
        self._directed = Validity(folder / "directed-terms", process, directed)
        self._quiet, self._over = threading.Event(), threading.Event()
        self._threads: dict[str, threading.Thread] = {}
        self._writers: Sequence[RepeatedAction] = [
            *(Work(context, number) for number in range(_WORKERS)),
            *(UpdateValue(context, "tell"), ReplaceKeys(context, "shuffle")),
            *(Fenced(context, self._validity), Take(context, "resign", candidate.resign_in_time)),
            *(*guarded, SendDirectives(context)),
        ]
        self._others: list[RepeatedAction] = [
            *(Take(context, "join", member.hold), Take(context, "nominate", candidate.stand)),
            Take(context, "stand", stand),
            Take(context, "listen", listening.add_one),
            *(Look(context, "members", member.seen), Look(context, "leader", candidate.seen)),
            *shares,
        ]
        if shares:
            seen = partial(shares_seen, locator)
            self._others.append(Look(context, "shares", seen, requests=2))
        self._shares = shares

    def start(self) -> None:
        """Start all actions."""
        self._context.locator.add_session_listener(
            lambda lost: self._context.journal.write("session lost", reason=lost.reason)
        )
        for action in self._writers:
            self._start(action.name, partial(action.run, self._quiet))
        for action in self._others:
            self._start(action.name, partial(action.run, self._over))
        for name, validity in (("validity", self._validity), ("directed", self._directed)):
            self._start(name, partial(validity.watch, self._over))

    def has_begun(self) -> bool:
        """Return whether all members that divide items have ever taken up a share."""
        return all(one.has_begun() for one in self._shares)

    @property
    def longest_limit(self) -> float:
        """The seconds within which every action must end."""
        return max(action.limit_seconds for action in (*self._writers, *self._others))

    def fall_quiet(self, seconds: float) -> list[str]:
        """Stop writing; return the actions that have not ended within *seconds*."""
        self._quiet.set()
        return self._unended([action.name for action in self._writers], seconds)

    def end(self, seconds: float) -> list[str]:
        """Stop all actions; return those that have not ended within *seconds*."""
        self._quiet.set()
        self._over.set()
        return self._unended(list(self._threads), seconds)

    def expire(self) -> None:
        """End the session in the store. Without an answer it may have ended all the same."""
        backend: Any = self._context.locator.backend
        called, failure = time.monotonic(), ""
        try:
            backend.faults.expire_session()
        except Kip30Error as error:
            failure = type(error).__name__
        observe_seconds = backend.limits.observe_seconds
        self._context.journal.write(
            "expired", called=called, observe_seconds=observe_seconds, error=failure
        )

    def _start(self, name: str, run: Callable[[], None]) -> None:
        def recorded() -> None:
            try:
                run()
            except Exception as error:  # noqa: BLE001  what it would have seen is missing now
                self._context.calls.record_broken(name, error)

        thread = threading.Thread(target=recorded, name=f"storm {name}", daemon=True)
        self._threads[name] = thread
        thread.start()

    def _unended(self, names: Sequence[str], seconds: float) -> list[str]:
        until = time.monotonic() + seconds
        for name in names:
            self._threads[name].join(max(0.0, until - time.monotonic()))
        return [name for name in names if self._threads[name].is_alive()]

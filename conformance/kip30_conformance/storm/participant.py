"""One client of a storm: a member, a candidate and a listener that works on the storage."""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kip30_conformance.storm.candidate import Candidate, Membership
from kip30_conformance.storm.listening import Listening
from kip30_conformance.storm.names import GROUP, SERVICE, client_of
from kip30_conformance.storm.validity import Validity
from kip30_conformance.storm.workload import Duty, Fenced, Look, Post, Shuffle, Take, Tell, Work

_WORKERS = 2


class Participant:
    """All that one client does, each duty on a thread of its own."""

    def __init__(self, post: Post, terms: Path) -> None:
        """Prepare; nothing is done before `start`. Terms are taken down in the folder *terms*."""
        locator, journal, process = post.locator, post.journal, post.process
        group = locator.group_membership(GROUP)
        election = locator.leader_election(SERVICE)
        member = Membership(group, client_of(process), journal)
        candidate = Candidate(election, client_of(process), process, journal)
        listening = Listening(journal, locator.listener_registry(), group, election)
        self._post = post
        self._validity = Validity(terms, process, election)
        self._quiet, self._over = threading.Event(), threading.Event()
        self._threads: dict[str, threading.Thread] = {}
        self._writers: Sequence[Duty] = [
            *(Work(post, number) for number in range(_WORKERS)),
            *(Tell(post, "tell"), Shuffle(post, "shuffle")),
            *(Fenced(post, self._validity), Take(post, "resign", candidate.resign_in_time)),
        ]
        self._others: Sequence[Duty] = [
            *(Take(post, "join", member.hold), Take(post, "nominate", candidate.stand)),
            Take(post, "listen", listening.add_one),
            *(Look(post, "members", member.seen), Look(post, "leader", candidate.seen)),
        ]

    def start(self) -> None:
        """Begin with everything."""
        self._post.locator.add_session_listener(
            lambda lost: self._post.journal.write("session lost", reason=lost.reason)
        )
        for duty in self._writers:
            self._start(duty.name, partial(duty.run, self._quiet))
        for duty in self._others:
            self._start(duty.name, partial(duty.run, self._over))
        self._start("validity", partial(self._validity.watch, self._over))

    def fall_quiet(self, seconds: float) -> list[str]:
        """Write no more; return the duties that have not ended within *seconds*."""
        self._quiet.set()
        return self._unended([duty.name for duty in self._writers], seconds)

    def end(self, seconds: float) -> list[str]:
        """Do no more; return what has not ended within *seconds*."""
        self._quiet.set()
        self._over.set()
        return self._unended(list(self._threads), seconds)

    def expire(self) -> None:
        """End the session in the store."""
        backend: Any = self._post.locator.backend
        called = time.monotonic()
        backend.faults.expire_session()
        told = backend.limits.observe_seconds
        self._post.journal.write("expired", called=called, observe_seconds=told)

    def _start(self, name: str, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name=f"storm {name}", daemon=True)
        self._threads[name] = thread
        thread.start()

    def _unended(self, names: Sequence[str], seconds: float) -> list[str]:
        until = time.monotonic() + seconds
        for name in names:
            self._threads[name].join(max(0.0, until - time.monotonic()))
        return [name for name in names if self._threads[name].is_alive()]

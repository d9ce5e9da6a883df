"""The membership and the candidacy of a client: taken, lost, given up and taken again."""

import random
import time
from typing import Any

from kip30 import GroupMembership, LeaderElection, Leadership, Member
from kip30_conformance.storm.process_journal import ProcessJournal

_TERM_SECONDS = (4.0, 12.0)


class Membership:
    """One id in a group, to be held at all times."""

    def __init__(
        self, group: GroupMembership[str], member_id: str, journal: ProcessJournal
    ) -> None:
        """Start without membership; `hold` joins."""
        self._group = group
        self._id = member_id
        self._journal = journal
        self._joined = False

    def hold(self) -> None:
        """Join, unless that has been done; the library re-joins by itself then."""
        if self._joined:
            return
        self._joined = True
        try:
            self._group.join(self._id, "", on_lost=self._lost, on_evicted=self._evicted)
        except BaseException:
            self._joined = False
            raise
        self._journal.write("joined")

    def seen(self) -> list[str]:
        """Return the members of the group."""
        return sorted(self._group.membership_list())

    def _lost(self, _: Member) -> None:
        self._journal.write("membership lost")

    def _evicted(self, _: Member) -> None:
        self._journal.write("evicted")
        self._joined = False


class Candidate:
    """A candidate that resigns after some seconds of every term, and comes back."""

    def __init__(
        self, election: LeaderElection[str], candidate: str, process: str, journal: ProcessJournal
    ) -> None:
        """Start without a nomination; `stand` makes it."""
        self._election = election
        self._candidate = candidate
        self._process = process
        self._journal = journal
        self._resigns_at = 0.0

    def stand(self) -> None:
        """Nominate the candidate, unless that is already so."""
        self._election.nominate(
            self._candidate, self._process, on_elected=self._elected, on_lost=self._lost
        )

    def resign_in_time(self) -> None:
        """Resign if this term has lasted long enough."""
        leads = self._election.leadership(self._candidate) is not None
        if leads and self._resigns_at and time.monotonic() > self._resigns_at:
            self._resigns_at = 0.0
            self._journal.write("resigns")
            self._election.resign(self._candidate)

    def seen(self) -> list[Any] | None:
        """Return the leader and its epoch."""
        leader = self._election.get_leader()
        return None if leader is None else [leader.id, leader.epoch]

    def _elected(self, term: Leadership) -> None:
        self._journal.write("elected", epoch=term.epoch)
        lasts = random.uniform(*_TERM_SECONDS)  # noqa: S311  no secret
        self._resigns_at = time.monotonic() + lasts

    def _lost(self, term: Leadership) -> None:
        self._journal.write("leadership lost", epoch=term.epoch)

"""Many claims of one client, and the cost of a pause of the store."""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from kip30 import PluginLocator, SessionLost, UnsupportedError
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, throughout, time_scale
from kip30_conformance.suite import Freeze

MEMBERS_IN_A_GROUP = 25
"""Number of claims in one group: as many as an application has, not as a store can have."""

_ELECTION_SECONDS = 5.0
_LIMIT_SECONDS = 90.0
_POLL_SECONDS = 0.01


class MixedClaims:
    """Claims of one client: half of them leaderships, each of its own service, half members."""

    def __init__(
        self,
        client: PluginLocator,
        count: int,
        session_seconds: float,
        *,
        on_event: Callable[..., object] | None = None,
    ) -> None:
        """Claim nothing before `start`.

        Args:
            client: The client.
            count: How many claims to make.
            session_seconds: The session timeout that *client* was opened with.
            on_event: A callback of every leader and every member.
        """
        self.count = count
        self.session_seconds = session_seconds
        self.losses: list[SessionLost] = []
        client.add_session_listener(self.losses.append)
        self._on_event = on_event
        self._elections = [client.leader_election(f"s{number}") for number in range(count // 2)]
        numbers = range(count - count // 2)
        self._groups = [client.group_membership(f"g{n}") for n in numbers[::MEMBERS_IN_A_GROUP]]
        self._members = [(self._groups[n // MEMBERS_IN_A_GROUP], f"m{n}") for n in numbers]

    def start(self) -> None:
        """Make all claims, one after the other."""
        on_event = self._on_event
        for election in self._elections:
            election.nominate("me", "", on_elected=on_event, on_lost=on_event)
        for group, member in self._members:
            group.join(member, "", on_lost=on_event)

    def held(self) -> int:
        """Return how many are held now, by the client's own clock."""
        return sum(self._each_held())

    def are_held(self) -> bool:
        """Return whether all are held now."""
        return all(self._each_held())

    def are_stored(self) -> bool:
        """Return whether the store names all of them, and nothing else."""
        leaders = [election.get_leader() for election in self._elections]
        members = [group.membership_list() for group in self._groups]
        return all(leaders) and sum(map(len, members)) == len(self._members)

    def _each_held(self) -> Iterator[bool]:
        for election in self._elections:
            yield election.leadership("me") is not None
        for group, member in self._members:
            yield group.member(member) is not None


Pause = Callable[[MixedClaims], None]


class Recovered(NamedTuple):
    """The cost of a pause.

    Attributes:
        fresh_seconds: From the first claim until all were held, before the pause.
        back_seconds: From the end of the pause until all were held, to stay.
        losses: How many sessions were lost.
        threads: The most threads beyond those before the pause, at rest.
    """

    fresh_seconds: float
    back_seconds: float
    losses: int
    threads: int


def recover(claims: MixedClaims, freeze: Freeze, pause: Pause) -> Recovered:
    """Start *claims*, pause the store during *pause*, and wait until all are back."""
    frozen = freeze()
    begun = time.monotonic()
    claims.start()
    eventually(claims.are_held, within=_LIMIT_SECONDS, what="all are held")
    fresh = time.monotonic() - begun
    claims.losses.clear()
    with _most_threads() as most:
        with frozen:
            pause(claims)
        back = _seconds_until_held(claims)
    return Recovered(fresh, back, len(claims.losses), most())


def allowed_seconds(recovered: Recovered, claims: MixedClaims, harness: Harness) -> float:
    """Return within how many seconds after a pause all claims must be held.

    Twice what the same claims took before: then a pause costs no more than a restart of the process
    would, with each claim given back first. And one session timeout, because a store that was
    paused may count the time of a session from its resumption; servers that work together may elect
    a leader before that.
    """
    return 2 * recovered.fresh_seconds + claims.session_seconds + election_seconds(harness)


def brief(claims: MixedClaims) -> None:
    """Last for a part of the session timeout that leaves time for a renewal after it."""
    throughout(claims.are_held, seconds=0.3 * claims.session_seconds)


def long(claims: MixedClaims) -> None:
    """Last until all claims have ended, and for another session timeout."""
    eventually(lambda: not claims.held(), within=claims.session_seconds, what="all have ended")
    throughout(lambda: not claims.held(), seconds=claims.session_seconds)


def election_seconds(harness: Harness) -> float:
    """Return how long the servers may take to elect a leader, if there is more than one."""
    with suppress(UnsupportedError):
        if len(harness.servers().nodes) > 1:
            return _ELECTION_SECONDS * time_scale()
    return 0.0


def _seconds_until_held(claims: MixedClaims) -> float:
    """Return when the claims were last incomplete, in seconds from now.

    It is the last time if all are held for longer than a session lasts without a renewal.
    """
    begun = last = time.monotonic()
    while (now := time.monotonic()) < last + 1.5 * claims.session_seconds:
        assert now < begun + _LIMIT_SECONDS * time_scale(), (
            f"{claims.held()} of {claims.count} held"
        )
        if not claims.are_held():
            last = time.monotonic()
        time.sleep(_POLL_SECONDS)
    return last - begun


@contextmanager
def _most_threads() -> Generator[Callable[[], int]]:
    """Yield a function that returns the most threads beyond those at the beginning."""
    before, counts, over = threading.active_count(), [0], threading.Event()

    def count() -> None:
        while not over.wait(_POLL_SECONDS):
            counts.append(threading.active_count() - before - 1)

    counter = threading.Thread(target=count)
    counter.start()
    try:
        yield lambda: max(counts)
    finally:
        over.set()
        counter.join()

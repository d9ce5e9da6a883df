"""A member's candidacy: the task that nominates it, and withdraws it, as `may_stand` says."""

import logging
import random
import threading

from kip30.coordinator.config import GroupConfig
from kip30.coordinator.decisions import CandidacyFacts, MemberFacts, may_stand
from kip30.coordinator.leader_task import LeaderTask
from kip30.coordinator.shared_member import MemberShare
from kip30.coordinator.store_error_retry import outliving_failures
from kip30.coordinator.store_requests import GroupRequests
from kip30.driver.kit.retry import Retry
from kip30.errors import DefiniteError, OutcomeUnknownError
from kip30.runtime.dispatcher import Dispatcher

log: logging.Logger = logging.getLogger(__name__)


class CandidateTask:
    """Nominates the member while it is in its group and may lead. Thread-safe."""

    def __init__(  # noqa: PLR0913  the parts of one coordinator, which makes them all
        self,
        requests: GroupRequests,
        dispatcher: Dispatcher,
        share: MemberShare,
        leader: LeaderTask,
        *,
        config: GroupConfig,
        session_timeout_seconds: float,
    ) -> None:
        """Start without a nomination."""
        self._requests = requests
        self._clock = requests.clock
        self._share = share
        self._leader = leader
        self._eligible = config.eligible
        self._session_timeout = session_timeout_seconds
        self._task = dispatcher.task(self._step, "candidacy", waits_for_store=True)
        self._lock = threading.Lock()
        # Since when no leader was seen, and how many members there were then; None while one is
        # seen. Written under the lock.
        self._leaderless: tuple[float, int] | None = None
        # Until when the member may not stand, because it has resigned. Any thread writes, before it
        # sets `_must_resign`.
        self._barred_until = 0.0
        # Whether the leader's task has given the present candidacy up. The task clears it.
        self._must_resign = threading.Event()
        # Whether the member is nominated. Only the task reads and writes these three.
        self._is_nominated = False
        self._has_looked = False
        self._retry = Retry(self._clock)
        # Constant during one wait, so that members stand at different moments.
        self._jitter = random.random()  # noqa: S311  no secret

    def wake(self) -> None:
        """Decide again whether to stand for election."""
        self._task.wake()

    def resigned(self, barred_until: float) -> None:
        """Resign, and do not stand again before *barred_until*."""
        self._barred_until = barred_until
        self._must_resign.set()
        self._task.wake()

    def look(self) -> None:
        """Read whether the group has a leader, and how large it is if not.

        Raises:
            Kip30Error: The store did not answer.
        """
        if self._requests.has_leader():
            self._saw_leader()
            return
        size = len(self._requests.read_group().members)
        with self._lock:
            since = self._clock.now() if self._leaderless is None else self._leaderless[0]
            self._leaderless = since, size
        self._task.wake()

    def close(self) -> None:
        """Stop deciding; the caller resigns."""
        self._task.close()

    def _saw_leader(self) -> None:
        with self._lock:
            self._leaderless = None
        self._jitter = random.random()  # noqa: S311  no secret

    def _step(self) -> None:
        with outliving_failures("the candidacy", self._stand_later):
            self._resign_if_asked()
            self._look_if_new()
            self._stand_or_withdraw()
            self._retry.succeeded()

    def _stand_later(self) -> None:
        self._retry.failed()
        self._task.wake_at(self._retry.due)

    def _resign_if_asked(self) -> None:
        if self._must_resign.is_set():
            self._must_resign.clear()
            self._withdraw()

    def _look_if_new(self) -> None:
        """Look for a leader once, if the member came to a group that had a generation before."""
        facts = self._share.current()
        if not self._share.is_member() or facts.own is not None:
            self._has_looked = False
        elif not self._has_looked and facts.state is not None:
            self._has_looked = True
            if facts.state.generation > 0 and self._eligible:
                self.look()

    def _stand_or_withdraw(self) -> None:
        facts = self._share.current()
        if facts.record is not None and facts.reading is None:
            return  # this depends on the state, and this task is woken once that is read
        wanted = self._share.is_member() and self._may_stand(facts)
        if wanted and not self._is_nominated:
            self._nominate()
        elif not wanted and self._is_nominated and not self._leads():
            self._withdraw()

    def _nominate(self) -> None:
        self._is_nominated = True  # first: a nomination continues even if its answer is lost
        try:
            self._requests.nominate(self._leader.elected, self._leader.lost)
        except DefiniteError:
            self._is_nominated = False  # it was refused: only another one can continue
            raise

    def _leads(self) -> bool:
        return self._leader.is_leading() and self._share.is_member()

    def _withdraw(self) -> None:
        if not self._is_nominated:
            return
        self._is_nominated = False
        try:
            self._requests.resign()
        except OutcomeUnknownError as error:
            log.info("the store does not know yet that the member has resigned: %s", error)

    def _may_stand(self, member: MemberFacts) -> bool:
        own = member.own
        leaderless = self._leaderless
        facts = CandidacyFacts(
            now=self._clock.now(),
            eligible=self._eligible,
            barred_until=self._barred_until,
            is_standby=None if own is None else own.assignment.is_standby,
            state=member.state,
            leaderless_since=None if leaderless is None else leaderless[0],
            size=None if leaderless is None else leaderless[1],
            session_timeout_seconds=self._session_timeout,
            jitter=self._jitter,
        )
        if self._eligible:
            stands_at = 0.0 if leaderless is None else leaderless[0] + self._patience()
            # Not at a past moment: a step would follow at once, in an endless loop.
            for moment in (facts.barred_until, stands_at):
                if facts.now < moment:
                    self._task.wake_at(moment)
        return may_stand(facts)

    def _patience(self) -> float:
        """Return how long the member waits for a leader before it stands without a turn."""
        return self._session_timeout * (1 + self._jitter)

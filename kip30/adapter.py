"""KAFKA-2921's adapter: a leader election behind the face of Kafka's ``LeaderElector``.

For code that was written against `startup`, `am_i_leader`, `elect`, `resign` and
two callbacks. The record is the one of Kafka's controller: ``version``,
``brokerid`` and ``timestamp`` (milliseconds, as text) in JSON.
"""

import json
import threading
import time
from collections.abc import Callable
from typing import Final, Self

from typing_extensions import override

from kip30.closing import Closing
from kip30.election import LeaderChange, LeaderElection
from kip30.errors import NotNominatedError

NOBODY: Final = -1
"""What `LeaderElectorAdapter.leader_id` is while nobody leads, as in Kafka."""

_PAYLOAD_VERSION = 1


class LeaderElectorAdapter(Closing):
    """One broker's part in one election.

    The callbacks alternate, beginning with *on_becoming_leader*, and never overlap. A loss that
    was followed at once by a new term of the same broker is not hidden: both are called.

    Example:
        with PluginLocator().startup(config) as locator:
            election = locator.leader_election("controller")
            with LeaderElectorAdapter(take_over, give_up, 1, election) as elector:
                while elector.am_i_leader():
                    ...  # act as the controller
    """

    def __init__(
        self,
        on_becoming_leader: Callable[[], object],
        on_resigning_as_leader: Callable[[], object],
        broker_id: int,
        election: LeaderElection[str],
    ) -> None:
        """Prepare; nothing happens before `startup`."""
        self.leader_id: int = NOBODY
        self._becoming = on_becoming_leader
        self._resigning = on_resigning_as_leader
        self._broker_id = broker_id
        self._election = election
        self._epoch: int | None = None
        self._lock = threading.Lock()

    def startup(self) -> None:
        """Listen for changes of leader and take part in the election."""
        self._election.add_listener(self._leader_changed, initial=True)
        self.elect()

    def am_i_leader(self) -> bool:
        """Say whether this broker leads, by its own clock and at this moment."""
        return self._election.leadership(str(self._broker_id)) is not None

    def elect(self) -> bool:
        """Take part, again after `resign`, and return whether this broker leads now."""
        return self._election.nominate(
            str(self._broker_id),
            self._payload(),
            on_elected=lambda term: self._step_up(term.epoch),
            on_lost=lambda term: self._step_down(term.epoch),
        )

    def resign(self) -> None:
        """Give up leadership and candidacy; nothing happens without a candidacy."""
        try:
            self._election.resign(str(self._broker_id))
        except NotNominatedError:
            return

    @override
    def close(self) -> None:
        """Resign and stop listening. The callback for a leadership that ends here is called."""
        self._election.remove_listener(self._leader_changed)
        self.resign()
        self._step_down()

    @override
    def __enter__(self) -> Self:
        """Start up."""
        self.startup()
        return self

    def _payload(self) -> str:
        timestamp = str(time.time_ns() // 1_000_000)
        record = {
            "version": _PAYLOAD_VERSION,
            "brokerid": self._broker_id,
            "timestamp": timestamp,
        }
        return json.dumps(record)

    def _leader_changed(self, change: LeaderChange[str]) -> None:
        leader = change.leader
        self.leader_id = NOBODY if leader is None else _broker_of(leader.data)
        if leader is not None and leader.id != str(self._broker_id):
            self._step_down(leader.epoch)

    def _step_up(self, epoch: int) -> None:
        with self._lock:
            if self._epoch is not None:
                self._resigning()
            self._epoch = epoch
            self._becoming()

    def _step_down(self, up_to: int | None = None) -> None:
        """Resign from what is led, unless that is of a later epoch than *up_to*."""
        with self._lock:
            if self._epoch is None or (up_to is not None and up_to < self._epoch):
                return
            self._epoch = None
            self._resigning()


def _broker_of(payload: str) -> int:
    broker: int = json.loads(payload)["brokerid"]
    return broker

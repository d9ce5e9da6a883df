"""The present status of a coordinator's member."""

import math
import os
import threading

from kip30.coordinator.decisions import member_state
from kip30.coordinator.interface import Generation, MemberApplication, MemberState
from kip30.coordinator.resources import Resources
from kip30.driver.clock import Clock
from kip30.errors import IllegalGenerationError, Kip30Error


class MemberStatus(MemberApplication):
    """The read-only part of `AbstractCoordinator`: the state of its member, and its share.

    Attributes:
        group_id: The group.
        member_id: The member's own id, made when the coordinator was.
    """

    group_id: str
    member_id: str
    # Written by `AbstractCoordinator`, which documents them.
    _resources: Resources | None
    _clock: Clock
    _pid: int

    @property
    def state(self) -> MemberState:
        """The state of the member, by what it knows at this moment."""
        parts = self._present()
        return MemberState.UNJOINED if parts is None else member_state(parts.share.current())

    @property
    def generation(self) -> Generation:
        """The generation whose share the member has: -1, ``""`` and None while it has none."""
        parts = self._present()
        own = None if parts is None else parts.share.current().own
        if own is None:
            return Generation(-1, "", None)
        return Generation(own.number, self.member_id, own.protocol)

    @property
    def since(self) -> int:
        """The generation that gave the member exactly the share that it has; -1 without a share.

        It is older than `generation` if the share has not changed since. Always the own generation
        for a member that is not cooperative: it gives its share up before every round.
        """
        parts = self._present()
        own = None if parts is None else parts.share.current().own
        return -1 if own is None else own.assignment.since

    @property
    def history(self) -> str:
        """The history of the group in which the member got its share; ``""`` without a share.

        Generations count within one history: a group that was deleted begins another one. Also
        empty if an older kip30 has led the group.
        """
        parts = self._present()
        own = None if parts is None else parts.share.current().own
        return "" if own is None else own.history

    @property
    def is_leader(self) -> bool:
        """True if this member leads its group, judged by its lease."""
        parts = self._present()
        return parts is not None and parts.leader.is_leading()

    @property
    def failure(self) -> Kip30Error | None:
        """Error that ended this member for good; None unless the group has ended it."""
        parts = self._present()
        return None if parts is None else parts.share.failure

    @property
    def deadline(self) -> float:
        """Time until which the share is valid, in seconds on the locator's clock; else -inf.

        The earliest one of the lease's deadline; one rebalance timeout, less the margin, after the
        last reading was sent that saw the group stable at this generation; and one rebalance
        timeout after the last poll. Readings and polls move it forward. No other member has the
        share before it; once it has passed, the share is lost, regardless of the store, and the
        next poll calls `on_lost`.
        """
        parts = self._present()
        return -math.inf if parts is None else parts.share.deadline()

    @property
    def lost(self) -> threading.Event:
        """Set once the present share has ended: given up, changed, or lost.

        Each share has an event of its own; a share that stays the same through later generations
        keeps it. It is set while there is no share. It may be set late; `is_valid` is never late.
        """
        parts = self._present()
        if parts is None:
            over = threading.Event()
            over.set()
            return over
        return parts.share.lost

    def is_valid(self) -> bool:
        """Return whether the share is valid at this moment, by `deadline`."""
        return self._clock.now() < self.deadline

    def check(self) -> None:
        """Return if the share is valid at this moment.

        Raises:
            IllegalGenerationError: It is not, or there is none.
            FencedInstanceError: Another process has the instance of this static member.
        """
        if self.is_valid():
            return
        self._check_instance()
        raise IllegalGenerationError(f"{self.member_id!r} has no valid share of {self.group_id!r}")

    def _check_instance(self) -> None:
        parts = self._present()
        if parts is not None:
            parts.share.check_instance()

    def _present(self) -> Resources | None:
        return self._resources if os.getpid() == self._pid else None

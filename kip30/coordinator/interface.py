"""KIP-795's ``Coordinator``, one to one, and the values that its methods take and return.

A group divides work among its members in *rounds*. A round asks each member for its metadata, lets
one member, the leader, perform the assignment, and ends with a new *generation*, in which each
member has a *share*: bytes that only the application reads.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple


class JoinGroupMetadata(NamedTuple):
    """One protocol that a member offers.

    Attributes:
        name: What the members of a group agree on, such as the name of an assignor.
        metadata: What the leader receives if the group chooses this protocol.
    """

    name: str
    metadata: bytes


class AssignmentMetadata(NamedTuple):
    """One member, as the leader sees it for an assignment.

    Attributes:
        member_id: The key of its share in the answer.
        group_instance_id: That of a static member; None for a dynamic one.
        metadata: What it offers for the protocol that the group has chosen.
        is_present: False for a static member whose record is gone and whose share waits for it. It
            has no work under way; its metadata is from its last join.
    """

    member_id: str
    group_instance_id: str | None
    metadata: bytes
    is_present: bool = True


class Generation(NamedTuple):
    """The generation that a member belongs to: -1, ``""`` and None while it has none."""

    generation: int
    member_id: str
    protocol: str | None


class MemberState(Enum):
    """State of a member, named as in Kafka's clients."""

    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing rebalance"
    COMPLETING_REBALANCE = "completing rebalance"
    STABLE = "stable"


class Coordinator(ABC):
    """Decisions of an application about its group (KIP-795).

    All methods are called on the polling thread, one at a time. For one member the calls come in
    this order: `on_join_prepare`, then `on_join_complete`, and so on; between the two
    `perform_assignment` if the member leads.
    """

    @abstractmethod
    def protocol_type(self) -> str:
        """Return the kind of group, such as ``"consumer"``: the same for all its members."""

    @abstractmethod
    def metadata(self) -> Sequence[JoinGroupMetadata]:
        """Return the protocols that this member offers, the preferred one first.

        Called before each join. Not empty, and each name once; else the member does not join and
        the caller of `poll` gets a `UsageError`.
        """

    @abstractmethod
    def on_join_prepare(self, generation: int, member_id: str) -> None:
        """Prepare for a round, before the member joins it.

        Called once before each `on_join_complete`, not again when a join is retried. If it raises,
        the member joins nevertheless. A member that gives up its work at every round does so here:
        writes that carry the previous generation still pass.

        Args:
            generation: The previous one of this member, or -1.
            member_id: Its id in the previous generation, or ``""``.
        """

    @abstractmethod
    def perform_assignment(
        self,
        leader_id: str,
        protocol: str,
        all_member_metadata: Sequence[AssignmentMetadata],
    ) -> Mapping[str, bytes]:
        """Return the share of each member by its member id. Called on the leader only.

        A member that is left out gets ``b""``; an id that is not a member's is ignored. If it
        raises, or does not return within a rebalance timeout, nothing is published, and another
        member leads.

        Args:
            leader_id: The id of this member.
            protocol: The one that the group has chosen.
            all_member_metadata: Every member of the coming generation, for that protocol.
        """

    @abstractmethod
    def on_join_complete(
        self, generation: int, member_id: str, protocol: str, member_assignment: bytes
    ) -> None:
        """Take up the share of *generation*.

        Called once for each generation that the member takes up, and again for the same one after
        its share was lost and found to be still its own. If it raises, the same share is offered
        again at the next poll.
        """

    def on_leave_prepare(self) -> None:  # noqa: B027  most applications have nothing to prepare
        """Prepare to leave the group. Does nothing unless overridden."""

    @abstractmethod
    def close(self) -> None:
        """End the member. Idempotent."""


class MemberApplication(Coordinator):
    """Further callbacks of a member, beyond those of KIP-795; all of them have a default."""

    def on_lost(self, generation: int, member_id: str) -> None:
        """React to the loss of *generation*'s share: it is too late to write what belongs to it.

        Called instead of `on_join_prepare` if there is a share and it was lost before the next
        round. Another member may have the work already. If it raises, the share is lost
        nevertheless.
        """

    def follow_up(self) -> bool:
        """Return whether another round must follow at once; asked after `perform_assignment`.

        It must if work was withheld because its present owner must give it up first. It must not if
        only members that are not present have what was withheld: they give up nothing.
        """
        return False

    def refresh(self) -> None:
        """Check whether something has changed that needs a round, and request one if so.

        Called between rounds, once each heartbeat if the member is polled.
        """

    def is_cooperative(self) -> bool:
        """Return whether this member keeps its work while it joins a round; asked once.

        If not, it gives up all of it in `on_join_prepare`. A cooperative member gives work up by
        joining without it, and what it has given up goes to another member in a later round only.
        """
        return False

    def lasting_metadata(self, offered: Sequence[JoinGroupMetadata]) -> Sequence[JoinGroupMetadata]:
        """Return the part of *offered*, made by `metadata`, that does not change with each share.

        A static member that returns gets its share without a round if this is what the share was
        given for.
        """
        return offered

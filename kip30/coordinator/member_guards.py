"""The guards of the writes of a member, from the facts of its coordinator."""

from collections.abc import Iterator
from dataclasses import replace

from kip30.coordinator.decisions import OwnGeneration, after_refusal, guards
from kip30.coordinator.keys import GroupKeys
from kip30.coordinator.resources import Resources
from kip30.errors import ClosedError, IllegalGenerationError, LifecycleError
from kip30.storage import Guards


class MemberGuards:
    """Guards for the writes of one member, for its present share. Thread-safe.

    Attributes:
        keys: Names the group's own data.
    """

    def __init__(self, parts: Resources, keys: GroupKeys) -> None:
        """Guard writes for the member of *parts*."""
        self.keys: GroupKeys = keys
        self._resources = parts
        # The newest version of the state that a refused write has found to have the share
        # unchanged, with what the member had then. Any thread replaces it.
        self._settled: OwnGeneration | None = None

    def attempts(self) -> Iterator[Guards]:
        """Yield the guards of one write; after a refusal those of the next attempt.

        Raises:
            IllegalGenerationError: The share is no longer the member's. Nothing was written.
            FencedInstanceError: Another process has the instance. Nothing was written.
        """
        own = self.own()
        while True:
            yield self.of(own)
            own = self.after_refusal(own)

    def of(self, own: OwnGeneration) -> Guards:
        """Return the guards of a write in the generation that *own* says."""
        facts = self._resources.share.current()
        return guards(own, self.keys, facts.profile.instance, facts.claim)

    def own(self) -> OwnGeneration:
        """Return what the member has, with the newest version that is known to have it.

        Raises:
            FencedInstanceError: It has nothing because another process has its instance.
            IllegalGenerationError: It has nothing.
        """
        share = self._resources.share
        own, settled = share.current().own, self._settled
        if own is None:
            share.check_instance()
            raise IllegalGenerationError("the member has no share: nothing was written")
        if settled is None or settled.attempt != own.attempt:
            return own
        newest = max(own.state_version, settled.state_version)
        return replace(own, state_version=newest)

    def after_refusal(self, own: OwnGeneration) -> OwnGeneration:
        """Return *own* for the retry of a write that a guard has refused; reads the state.

        Raises:
            FencedInstanceError, IllegalGenerationError: There is none. Nothing was written.
            ClosedError: The member has ended. Nothing was written.
        """
        share, requests = self._resources.share, self._resources.requests
        profile = share.current().profile
        try:
            reading = requests.read_state()
            share.deliver(reading)
            found = None
            if reading.record is not None:
                found = requests.find_assignment(reading.record, profile.instance)
        except ClosedError:
            share.check_instance()  # the member may have ended since, for what refused this write
            raise
        except LifecycleError as error:  # its handles were closed: the same, sooner
            share.check_instance()
            raise ClosedError("the coordinator is closed: nothing was written") from error
        new = self._settled = after_refusal(
            own, reading, found, member_id=profile.member_id, is_static=profile.is_static
        )
        return new

"""The members of a group that divides items, as each client of a storm has some."""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from kip30 import CodecError, PluginLocator
from kip30.coordinator import describe_group
from kip30.coordinator.keys import GroupKeys
from kip30.driver import Capability
from kip30_conformance.clients.item_coordinator import ItemCoordinator, Offer, quick_config
from kip30_conformance.clients.item_work import ItemWork
from kip30_conformance.storm.believed_terms import overwrite
from kip30_conformance.storm.names import ITEMS, WORK_GROUP
from kip30_conformance.storm.workload import ActionContext, RepeatedAction, Writing

_PAUSE_SECONDS = 0.01
_GUARDED_SECONDS = 0.2
_LATE_SECONDS = 2.0
_GUARDED_REQUESTS = 3
"""The write, a reading of the state after its refusal, and the write again."""
_READS = 0.3
"""The share of the calls that read the value of an item and do not write it."""


class SharingMember(ItemCoordinator):
    """A member that takes up and gives up items only between two of its own writes.

    Attributes:
        writing: Held during a write: the items remain the member's until it is released.
        has_had_share: Whether it has taken up a share, perhaps an empty one.
    """

    def __init__(self, context: ActionContext, number: int) -> None:
        """Start as one of several members of this process."""
        locator = context.locator
        config = quick_config(locator, client_id=f"{context.process}-{number}")
        offer = Offer(cooperative=True)
        super().__init__(locator, WORK_GROUP, count=ITEMS, offer=offer, config=config)
        self.writing = threading.Lock()
        self.has_had_share = False
        self._journal = context.journal

    def to_write(self) -> tuple[list[int], int]:
        """Return the items that this holds, and the generation that gave it exactly these.

        There are none while a newer share is known that has not been taken up.
        """
        held, taken_up, since = sorted(self.held), self._owned_in, self.since
        return (held, since) if 0 <= since <= taken_up else ([], -1)

    @override
    def on_join_prepare(self, generation: int, member_id: str) -> None:
        with self.writing:
            super().on_join_prepare(generation, member_id)

    @override
    def on_join_complete(
        self, generation: int, member_id: str, protocol: str, member_assignment: bytes
    ) -> None:
        with self.writing:
            super().on_join_complete(generation, member_id, protocol, member_assignment)
            self.has_had_share = True
            self._tell("share", generation)

    @override
    def on_lost(self, generation: int, member_id: str) -> None:
        with self.writing:
            super().on_lost(generation, member_id)
            self._tell("share lost", generation)

    def _tell(self, what: str, generation: int) -> None:
        items = sorted(self.held)
        self._journal.write(what, member=self.member_id, generation=generation, items=items)


class Sharing(RepeatedAction):
    """Starts a member, works on its items on a thread of its own, and closes it in the end."""

    def __init__(
        self, context: ActionContext, member: SharingMember, number: int, folder: Path
    ) -> None:
        """Record all work in a new file in *folder*."""
        super().__init__(context, f"share{number}", _GUARDED_SECONDS)
        self._member = member
        self._log = WorkLog(folder / member.member_id)
        self._work: ItemWork | None = None
        self._has_failed = False

    def has_begun(self) -> bool:
        """Return whether the member has ever taken up a share."""
        return self._member.has_had_share

    @override
    def act(self) -> None:
        if self._work is None:
            self._member.start()
            self._work = ItemWork(self._member, pause_seconds=_PAUSE_SECONDS, note=self._log.note)
        if (failure := self._member.failure) is not None and not self._has_failed:
            self._has_failed = True
            self._context.journal.write(
                "member ended", member=self._member.member_id, error=repr(failure)
            )

    @override
    def end(self) -> None:
        if self._work is not None:
            self._work.stop()
        # One operation timeout for a callback that still runs, and one for the store.
        with self._context.calls.call("leave", limit_seconds=2 * self._context.calls.limit):
            self._member.close()
        self._log.close()


class Guarded(Writing):
    """Guarded writes of the items of a member, during which it gives none of them up."""

    def __init__(self, context: ActionContext, member: SharingMember, number: int) -> None:
        """Write the items of *member*."""
        super().__init__(
            context,
            f"guarded{number}",
            kind="guarded",
            pause_seconds=_GUARDED_SECONDS,
            limit_seconds=_GUARDED_REQUESTS * context.calls.limit,
        )
        self._member = member
        self._guarded = member.storage()
        self._keys = GroupKeys(WORK_GROUP)

    @override
    def act(self) -> None:
        if self._random.random() < _READS:
            self._read(str(self._random.randrange(ITEMS)))
            return
        with self._member.writing:
            held, since = self._member.to_write()
            if held:
                self._write(str(self._random.choice(held)), since)

    def _read(self, item: str) -> None:
        with self._recorder().call(self._who, "get", self._keys.data(item)) as call:
            found = self._guarded.get(item)
            if found is None:
                call.ok()
            else:
                call.ok(found.value, version=found.version)

    def _write(self, item: str, since: int) -> None:
        value = self._new_value(f"{since} {self._member.member_id} ")
        with self._recorder().call(self._who, "set", self._keys.data(item), value) as call:
            call.ok(version=self._guarded.set(item, value))


class GuardedLate(Writing):
    """Guarded writes that pause after the guards were chosen, while the share may move on.

    This imitates a process that is paused between the check of its share and its write.
    """

    def __init__(self, context: ActionContext, member: SharingMember, number: int) -> None:
        """Write the items that *member* holds when a write begins."""
        limit = _LATE_SECONDS + _GUARDED_REQUESTS * context.calls.limit
        super().__init__(context, f"late{number}", kind="guarded", limit_seconds=limit)
        self._member = member
        self._guarded = member.storage(self)
        self._keys = GroupKeys(WORK_GROUP)
        # The share whose guards the write under way has; None once it has paused.
        self._begun: tuple[list[int], int] | None = None

    @override
    def act(self) -> None:
        held, since = self._begun = self._member.to_write()
        if not held:
            return
        item = str(self._random.choice(held))
        value = self._new_value(f"{since} {self._member.member_id} ")
        with self._recorder().call(self._who, "set", self._keys.data(item), value) as call:
            call.ok(version=self._guarded.set(item, value))

    def encode(self, value: str) -> bytes:
        """Pause before the first attempt of a write: its guards were chosen before.

        Raises:
            CodecError: The share has changed meanwhile, so that the guards may be of another one.
        """
        begun, self._begun = self._begun, None
        if begun is not None:
            if begun != self._member.to_write():
                raise CodecError("the share has changed before the write")
            time.sleep(self._random.uniform(0, _LATE_SECONDS))
        return value.encode()

    def decode(self, data: bytes) -> str:
        """Return *data* as text."""
        return data.decode()


class WorkLog:
    """One line for each stretch of work, written over while that lasts; a kill -9 loses none."""

    def __init__(self, path: Path) -> None:
        """Write to a new file."""
        self._file = path.open("xb", buffering=0)

    def note(self, number: int, stretch: Sequence[float]) -> None:
        """Record the stretch of this *number*: item, first and last moment."""
        item, first, last = stretch
        overwrite(self._file.fileno(), f"{item} {first!r} {last!r}", number)

    def close(self) -> None:
        """Stop writing."""
        self._file.close()


def read_work(folder: Path) -> list[tuple[int, float, float, str]]:
    """Return item, first and last moment, and member of all work that is recorded in *folder*."""
    work: list[tuple[int, float, float, str]] = []
    for path in sorted(folder.iterdir()) if folder.exists() else ():
        for line in path.read_text().splitlines():
            words = line.split()
            if len(words) == 3:
                work.append((int(words[0]), float(words[1]), float(words[2]), path.name))
    return work


def sharing(context: ActionContext, folder: Path) -> tuple[list[RepeatedAction], list[Sharing]]:
    """Return the writers, and the other actions, of all members of this client.

    There are none on a store that has no guards.
    """
    needed = {Capability.COMPARE_AND_SET, Capability.GUARDS}
    if not needed <= set(context.locator.backend.capabilities):
        return [], []
    members = [SharingMember(context, number) for number in range(context.members)]
    return (
        [
            action(context, member, number)
            for action in (Guarded, GuardedLate)
            for number, member in enumerate(members)
        ],
        [Sharing(context, member, number, folder) for number, member in enumerate(members)],
    )


def shares_seen(locator: PluginLocator) -> list[Any] | None:
    """Return the generation of the group, and the share of each of its members by id."""
    group = describe_group(locator, WORK_GROUP)
    if group is None or not group.generation:
        return None
    shares: Mapping[str, list[int]] = {
        name: json.loads(member.share or b"[]")
        for name, member in group.members.items()
        if member.has_share
    }
    return [group.generation, shares]

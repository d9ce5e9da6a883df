"""`WorkerCoordinator`: named tasks divided among workers, as Kafka Connect's do it (KIP-415).

Work that stays with its worker continues during a round. Work whose worker is gone is held back for
a while: the worker may come back, and moving all of it twice costs more than the wait.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from typing_extensions import override

from kip30.coordinator.assignors import ConnectState, IncrementalConnectAssignor, WorkUnit
from kip30.coordinator.config import GroupConfig
from kip30.coordinator.held_items import HeldItems, HoldingCoordinator
from kip30.coordinator.interface import AssignmentMetadata, JoinGroupMetadata
from kip30.coordinator.item_texts import decode, encode
from kip30.locator import PluginLocator

_PROTOCOL = "incremental"
_CONFIG = GroupConfig()


class WorkListener(Protocol):
    """Called on the polling thread for tasks that are gained or lost, not for those that stay."""

    def on_started(self, tasks: Sequence[str]) -> object:
        """Start *tasks*.

        If this raises, `on_stopped` is called with all of them, because some may have started, and
        the next poll calls this again with those that still are this member's.
        """
        ...

    def on_stopped(self, tasks: Sequence[str]) -> object:
        """Stop *tasks* before this returns. Guarded writes still succeed in it."""
        ...

    def on_lost(self, tasks: Sequence[str]) -> object:
        """Stop *tasks*: another worker may have them, so it is too late to write."""
        ...


class WorkerCoordinator(HoldingCoordinator[str]):
    """A member that gets some of the tasks of its group, as many as any other or one more."""

    def __init__(  # noqa: PLR0913  all by keyword
        self,
        locator: PluginLocator,
        group_id: str,
        *,
        url: str,
        tasks: Callable[[], Collection[str]],
        listener: WorkListener,
        max_delay_seconds: float = 300.0,
        refresh_seconds: float = 30.0,
        config: GroupConfig = _CONFIG,
    ) -> None:
        """Prepare a member; see `AbstractCoordinator`.

        Args:
            locator: A started locator.
            group_id: The group.
            url: Where the others reach this worker.
            tasks: Returns the names of all tasks. Called on the leader's polling thread, for each
                assignment and every *refresh_seconds*; a change causes a round.
            listener: Called for tasks that come and go.
            max_delay_seconds: For how long the work of a worker that is gone is held back, and up
                to which rounds that balance are postponed; 0 deals it at once.
            refresh_seconds: How often tasks are checked, in seconds.
            config: The settings of the member.
        """
        held = HeldItems[str](listener.on_started, listener.on_stopped, listener.on_lost)
        super().__init__(
            locator, group_id, held=held, refresh_seconds=refresh_seconds, config=config
        )
        self.url: str = url
        self._tasks = tasks
        self._assignor = IncrementalConnectAssignor(max_delay_seconds=max_delay_seconds)
        # The following are read and written only on the polling thread. For the assignments that
        # this member makes while it leads: the state for the next one, the tasks of the last one,
        # and when another round is due because of a delay.
        self._kept = ConnectState()
        self._assigned_tasks: frozenset[str] | None = None
        self._delay_until: float | None = None
        self._has_revoked = False

    @property
    def doing(self) -> frozenset[str]:
        """The tasks that the listener has begun and not been asked to stop."""
        return self._held.items

    # -- KIP-795

    @override
    def protocol_type(self) -> str:
        """Return Kafka's name for the kind of group."""
        return "connect"

    @override
    def is_cooperative(self) -> bool:
        return True

    @override
    def metadata(self) -> Sequence[JoinGroupMetadata]:
        held = self._held
        said = {"url": self.url, "doing": sorted(held.items), "generation": held.generation}
        return [JoinGroupMetadata(_PROTOCOL, encode(said))]

    @override
    def lasting_metadata(self, offered: Sequence[JoinGroupMetadata]) -> Sequence[JoinGroupMetadata]:
        return [JoinGroupMetadata(one.name, encode({"url": self.url})) for one in offered]

    @override
    def on_join_prepare(self, generation: int, member_id: str) -> None:
        """Keep all tasks: it is known only later which of them must go."""

    @override
    def perform_assignment(
        self, leader_id: str, protocol: str, all_member_metadata: Sequence[AssignmentMetadata]
    ) -> Mapping[str, bytes]:
        now = self._clock.now()
        completed = self._committed_generation()
        # Assignments by another leader since, and those never published, are not known here.
        kept = self._kept if self._kept.generation == completed else ConnectState()
        tasks = self._assigned_tasks = frozenset(self._tasks())
        doing = _doing(all_member_metadata)
        absent = {one.member_id for one in all_member_metadata if not one.is_present}
        result = self._assignor.assign(
            dict.fromkeys(tasks, 0),
            doing,
            absent=absent,
            state=kept,
            completed=completed,
            now_seconds=now,
        )
        self._kept = result.state
        self._delay_until = now + result.delay_seconds if result.delay_seconds else None
        self._refresh_later()
        self._has_revoked = any(result.revoked[worker] for worker in doing.keys() - absent)
        shares = {
            worker: {*units, *result.started.get(worker, ())} - {*result.revoked.get(worker, ())}
            for worker, units in doing.items()
        }
        return {
            worker: encode({"tasks": sorted(unit.connector for unit in units)}) if units else b""
            for worker, units in shares.items()
        }

    @override
    def follow_up(self) -> bool:
        return self._has_revoked

    @override
    def _items_in(self, share: Mapping[str, Any]) -> Iterable[str]:
        return (str(task) for task in share.get("tasks", ()))

    @override
    def _has_changed(self) -> bool:
        return self._assigned_tasks is None or frozenset(self._tasks()) != self._assigned_tasks

    @override
    def refresh(self) -> None:
        """On the leader, ask for a round if a delay has passed or the tasks have changed."""
        due = self._delay_until
        if self.is_leader and due is not None and self._clock.now() >= due:
            self._delay_until = None
            self.request_rejoin("work was held back for long enough")
        else:
            super().refresh()


def _doing(members: Sequence[AssignmentMetadata]) -> dict[str, list[WorkUnit]]:
    """Return the work that each worker reports; outdated reports are left out.

    Of two workers that say they do a task, the one of the higher generation does. Two of the same
    generation both count, and the assignor makes both of them stop it.
    """
    said = {one.member_id: decode(one.metadata) for one in members}
    newest: dict[str, int] = {}
    for one in said.values():
        for task in one["doing"]:
            newest[task] = max(newest.get(task, -1), one["generation"])
    return {
        worker: [WorkUnit(task) for task in one["doing"] if newest[task] == one["generation"]]
        for worker, one in said.items()
    }

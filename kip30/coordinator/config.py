"""Settings of a member for its group, checked before any request is sent."""

from dataclasses import dataclass, fields

from kip30.coordinator.keys import GroupKeys
from kip30.errors import ConfigError, InvalidNameError
from kip30.names import check_id

_HEARTBEATS = 3
_RANDOM_DIGITS = 32
_MOST_SECONDS = 86_400.0 * 366


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The settings of one member of one group. All durations are in seconds.

    Attributes:
        rebalance_timeout_seconds: How long a round waits for this member, and the longest pause
            between two polls: a member that does not poll for as long leaves. Above the session
            timeout of the locator, and above three heartbeats.
        heartbeat_seconds: How often the member reads the state of its group.
        initial_delay_seconds: How long the leader of an empty group waits for more members, from
            each newcomer on, but not beyond the rebalance timeout.
        coalesce_seconds: How long it waits in other groups, so that members that come or go at
            about the same time cost one round. While rounds follow each other it is doubled, up to
            32 times as long or the session timeout, whichever is less.
        group_instance_id: Makes the member static: a process that returns under the same id gets
            its share back without a round (KIP-345).
        static_grace_seconds: For how long this member, as leader, keeps the share of a static
            member that is gone; None for the session timeout.
        wait_for_predecessor: Whether a static member joins only when the one that had its instance
            id before is gone. Without it, work of the two may overlap, except guarded writes,
            until the replaced process next reads the state of the group.
        max_size: How many members this member accepts as leader; None for no limit.
        eligible: Whether this member may lead.
        client_id: The prefix of its member id.
    """

    rebalance_timeout_seconds: float = 60.0
    heartbeat_seconds: float = 3.0
    initial_delay_seconds: float = 0.5
    coalesce_seconds: float = 0.1
    group_instance_id: str | None = None
    static_grace_seconds: float | None = None
    wait_for_predecessor: bool = False
    max_size: int | None = None
    eligible: bool = True
    client_id: str = "member"

    def __post_init__(self) -> None:
        """Check each setting, and the settings against each other.

        Raises:
            ConfigError: One is not usable, or two contradict each other.
        """
        for name in (field.name for field in fields(self) if field.name.endswith("_seconds")):
            _check_seconds(name, getattr(self, name))
        if self.heartbeat_seconds <= 0:
            raise ConfigError("heartbeat_seconds must be above 0")
        if self.rebalance_timeout_seconds <= _HEARTBEATS * self.heartbeat_seconds:
            raise ConfigError(
                f"rebalance_timeout_seconds is not above {_HEARTBEATS} times heartbeat_seconds:"
                " raise the first or lower the second"
            )
        if self.initial_delay_seconds > self.rebalance_timeout_seconds:
            raise ConfigError(
                "initial_delay_seconds is above rebalance_timeout_seconds:"
                " lower the first or raise the second"
            )
        if self.wait_for_predecessor and self.group_instance_id is None:
            raise ConfigError("wait_for_predecessor needs a group_instance_id: set it")
        if self.max_size is not None and self.max_size < 1:
            raise ConfigError("max_size must be at least 1: give None for no limit")
        self._check_names()

    def check_session(self, session_timeout_seconds: float) -> None:
        """Check the settings against the session timeout of the locator, before any I/O.

        Raises:
            ConfigError: Two contradict each other.
        """
        if self.rebalance_timeout_seconds <= session_timeout_seconds:
            raise ConfigError(
                "rebalance_timeout_seconds is not above plugin.session.timeout.ms"
                f" ({session_timeout_seconds:g} s): raise the first or lower the second"
            )
        if self.coalesce_seconds > session_timeout_seconds:
            raise ConfigError(
                "coalesce_seconds is above plugin.session.timeout.ms"
                f" ({session_timeout_seconds:g} s): lower the first or raise the second"
            )

    def member_id(self, random_text: str) -> str:
        """Return the member id that ends with *random_text*, 32 hexadecimal digits."""
        return f"{self.client_id}-{random_text}"

    def _check_names(self) -> None:
        try:
            check_id(self.member_id("0" * _RANDOM_DIGITS), "client_id")
            if self.group_instance_id is not None:
                check_id(self.group_instance_id, "group_instance_id")
                GroupKeys("g").instance(self.group_instance_id)
        except InvalidNameError as error:
            raise ConfigError(f"a name cannot be used: {error}") from error


def _check_seconds(name: str, seconds: float | None) -> None:
    if seconds is None and name == "static_grace_seconds":
        return
    if isinstance(seconds, int | float) and not isinstance(seconds, bool):
        is_usable = 0 <= seconds <= _MOST_SECONDS  # false for what is not a number
        if is_usable:
            return
    raise ConfigError(f"{name} is {seconds!r:.60}: give a number of seconds, up to a year")

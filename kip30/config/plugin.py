"""The ``plugin.*`` settings that hold for every store."""

from dataclasses import dataclass
from pathlib import Path

from kip30.config.parsers import boolean, integer, milliseconds, paths, text
from kip30.config.settings import setting
from kip30.errors import ConfigError

_SESSION_TIMEOUT_SECONDS = 10.0
_OPERATION_TIMEOUT_SECONDS = 5.0

MAX_PRIORITY = 100
"""The highest priority of a candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonSettings:
    """Choice of the store, the namespace, and the timeouts."""

    backend: str | None = setting(
        "plugin.backend",
        text,
        default=None,
        literal=True,
        doc="Name of the store, as `kip30 backends` lists it",
    )
    locator_classname: str | None = setting(
        "plugin.locator.classname",
        text,
        default=None,
        literal=True,
        runs_code=True,
        doc="Class of the store, package.module:Class, instead of plugin.backend",
    )
    additional_paths: tuple[Path, ...] = setting(
        "plugin.additional.paths",
        paths,
        default="",
        literal=True,
        runs_code=True,
        aliases=("plugin.additional.jars",),  # KAFKA-2921's patch calls it so
        doc="Folders and zip files searched for a store's package, after the installed packages",
    )
    namespace: str = setting(
        "plugin.namespace",
        text,
        default="kip30",
        in_errors=True,
        doc="Namespace of all records; clients with different namespaces share no records",
    )
    session_timeout: float | None = setting(
        "plugin.session.timeout.ms",
        milliseconds(minimum=100),
        default=None,
        shown="10000",
        doc="How long a silent client keeps its memberships and leaderships",
    )
    operation_timeout: float | None = setting(
        "plugin.operation.timeout.ms",
        milliseconds(),
        default=None,
        shown="5000, or the session timeout if that is shorter",
        doc="How long any one call may take",
    )
    connect_timeout_seconds: float = setting(
        "plugin.connect.timeout.ms",
        milliseconds(),
        default=10_000,
        doc="How long startup waits for the store",
    )
    lease_margin: float | None = setting(
        "plugin.lease.margin.ms",
        milliseconds(minimum=0),
        default=None,
        shown="a tenth of the session timeout",
        doc="How long before the store a client considers its session ended",
    )

    obeys_directives: bool = setting(
        "plugin.operations",
        boolean,
        default=False,
        doc="Whether candidates obey `kip30 pause`, `step-down` and `hand-over`, and note their"
        " terms for `kip30 terms`; those of `kip30 run` do unless this is set to false; and whether"
        " members obey `kip30 group evict`",
    )
    priority: int = setting(
        "plugin.priority",
        integer(maximum=MAX_PRIORITY),
        default=0,
        doc="Priority of candidates, at most 100: at a vacancy the waiting candidate of the highest"
        " priority leads; no leader is replaced; above 0 only with plugin.operations",
    )
    is_metered: bool = setting(
        "plugin.metrics",
        boolean,
        default=False,
        doc="Whether the locator measures what it does, for `PluginLocator.metrics`",
    )

    def __post_init__(self) -> None:
        """Check the settings against each other.

        Raises:
            ConfigError: Two of them contradict each other.
        """
        if self.backend and self.locator_classname:
            raise ConfigError(
                "plugin.backend and plugin.locator.classname both name a store: keep one"
            )
        if self.operation_timeout_seconds > self.session_timeout_seconds:
            raise ConfigError(
                "plugin.operation.timeout.ms is greater than plugin.session.timeout.ms:"
                " lower the first or raise the second"
            )
        if self.margin_seconds >= self.session_timeout_seconds / 2:
            raise ConfigError(
                "plugin.lease.margin.ms is not below half of plugin.session.timeout.ms:"
                " lower the first or raise the second"
            )

    @property
    def session_timeout_seconds(self) -> float:
        """Seconds for which a silent client keeps its memberships and leaderships."""
        return self.session_timeout or _SESSION_TIMEOUT_SECONDS

    @property
    def operation_timeout_seconds(self) -> float:
        """Maximum duration of any one call."""
        if self.operation_timeout is None:
            return min(_OPERATION_TIMEOUT_SECONDS, self.session_timeout_seconds)
        return self.operation_timeout

    @property
    def computed(self) -> dict[str, str]:
        """Values of the settings that follow from others, as an operator would write them."""
        return {
            "plugin.session.timeout.ms": _milliseconds(self.session_timeout_seconds),
            "plugin.operation.timeout.ms": _milliseconds(self.operation_timeout_seconds),
            "plugin.lease.margin.ms": _milliseconds(self.margin_seconds),
        }

    @property
    def margin_seconds(self) -> float:
        """Seconds by which a client considers its session ended before the store does."""
        if self.lease_margin is None:
            return self.session_timeout_seconds / 10
        return self.lease_margin


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000, 3):.12g}"

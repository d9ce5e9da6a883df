"""The overview of a store for an operator: how much there is, and what wants attention."""

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kip30.config import Properties, load
from kip30.errors import Kip30Error, StoreError
from kip30.names import INTERNAL, unescape
from kip30.operations.directory import GroupStatus, ServiceStatus, read_directory
from kip30.operations.key_scan import KeyScan
from kip30.runtime.directives import NAMESPACE, decode_directives
from kip30.runtime.resolution import Configuration, resolve, store_place
from kip30.scanning import Rejected

_SECONDS_BETWEEN_READS = 10.0
_SECONDS_BETWEEN_SCANS_OF_TABLES = 30.0
_SCANNED_BY_TABLES = frozenset({"cassandra"})


class Overview(NamedTuple):
    """One look at a store.

    Attributes:
        store: The name of the store.
        place: Its addresses or directory, as the setting has it; may be empty.
        read_seconds: How long this look took, opening the store included.
        services: As in `Directory`, without those of kip30 itself.
        groups: As in `Directory`, without those of kip30 itself.
        paused: The names of services that an operator has paused, whether they have a leader or
            not.
        vacant: Services without a leader in whose line candidates wait, locks and coordinators
            included, without those that are paused. That is normal during an election. On
            Cassandra there are none, because candidates form no line there. One with a name too
            long for the name of a group is found only where the store keeps its epoch.
        leaderless: Those of *vacant* that no one has led for a session timeout of this
            configuration: they were vacant at every look since then, with the same epoch.
        unreadable: Records that could not be read, so that something may be missing.
    """

    store: str
    place: str
    read_seconds: float
    services: Sequence[ServiceStatus]
    groups: Sequence[GroupStatus]
    paused: Sequence[str]
    vacant: Sequence[ServiceStatus]
    leaderless: Sequence[ServiceStatus]
    unreadable: Sequence[Rejected]

    @property
    def wants_attention(self) -> bool:
        """True if there are leaderless services, or records that cannot be read."""
        return bool(self.leaderless or self.unreadable)


class OverviewReader:
    """Reads one overview after the other. For one thread at a time; there is nothing to close.

    Attributes:
        store: The name of the store.
        place: Its addresses or directory, as the setting has it; may be empty.
        session_timeout_seconds: How long a service must be vacant to be leaderless.
        period_seconds: How often to read at most: 10 s; 30 s on Cassandra, which reads whole
            tables.
    """

    def __init__(self, config: Configuration = None) -> None:
        """Read the store that *config* chooses, as for `PluginLocator.startup`. Opens nothing.

        Raises:
            ConfigError: A setting is wrong; the message names it.
        """
        self._properties = config if isinstance(config, Properties) else load(config)
        self.store, self.place, _ = store_place(self._properties)
        context = resolve(self._properties).context
        self.session_timeout_seconds: float = context.session_timeout_seconds
        self.period_seconds: float = (
            _SECONDS_BETWEEN_SCANS_OF_TABLES
            if self.store in _SCANNED_BY_TABLES
            else _SECONDS_BETWEEN_READS
        )
        self._vacancies = VacancyTimes(self.session_timeout_seconds)

    def read(self) -> Overview:
        """Open the store, look at it once, and close it.

        After a look that failed nothing counts as leaderless before another session timeout has
        passed: no one can be elected while the store is away.

        Raises:
            Kip30Error: As `read_directory`.
        """
        began = time.monotonic()
        try:
            found = read_directory(self._properties, internal=True)
        except Kip30Error:
            self._vacancies.forget()
            raise
        ended = time.monotonic()
        paused, damaged = self._read_directives()
        vacant = [
            one
            for one in found.services
            if one.leader is None and one.waiting and one.service not in paused
        ]
        return Overview(
            self.store,
            self.place,
            ended - began,
            [one for one in found.services if not one.service.startswith(INTERNAL)],
            [one for one in found.groups if not one.group.startswith(INTERNAL)],
            paused,
            vacant,
            self._vacancies.note(vacant, began, ended),
            [*found.unreadable, *damaged],
        )

    def _read_directives(self) -> tuple[Sequence[str], Sequence[Rejected]]:
        """Return the names of the services that are paused, and records that cannot be read."""
        paused, damaged = list[str](), list[Rejected]()
        scan = KeyScan(self._properties, NAMESPACE)
        for one in scan:
            service = unescape(one.key.rpartition("/")[2])
            try:
                pause = decode_directives(service, one.value).pause
            except StoreError as error:
                damaged.append(Rejected(one.key.encode(), str(error)))
                continue
            if pause is not None and not pause.is_over(time.time()):
                paused.append(service)
        return sorted(paused), [*scan.unreadable, *damaged]

    def read_when_decided(self) -> Overview:
        """Wait until the vacancies of the last look are over or lasting, and read.

        That takes a session timeout at most, and no time without vacancies.

        Raises:
            Kip30Error: As `read_directory`.
        """
        while (left := self._vacancies.decided_at() - time.monotonic()) > 0:
            time.sleep(left)
        return self.read()


class VacancyTimes:
    """Tells the vacancies that last from those of an election."""

    def __init__(self, lasting_seconds: float) -> None:
        """A vacancy lasts if it is seen again after *lasting_seconds*."""
        self._lasting_seconds = lasting_seconds
        # By service and epoch: with another epoch, someone has led meanwhile.
        self._lasts_at: dict[tuple[str, int | None], float] = {}

    def note(
        self, vacant: Iterable[ServiceStatus], began: float, ended: float
    ) -> list[ServiceStatus]:
        """Return those of *vacant* that last, by a look that was made from *began* to *ended*."""
        known, self._lasts_at = self._lasts_at, {}
        lasting = list[ServiceStatus]()
        for one in vacant:
            key = (one.service, one.epoch)
            lasts_at = self._lasts_at[key] = known.get(key, ended + self._lasting_seconds)
            if lasts_at <= began:
                lasting.append(one)
        return lasting

    def decided_at(self) -> float:
        """Return when the next look can tell of each known vacancy whether it lasts."""
        return max(self._lasts_at.values(), default=0.0)

    def forget(self) -> None:
        """Forget all vacancies."""
        self._lasts_at = {}


def read_overview(config: Configuration = None) -> Overview:
    """Look at the store that *config* chooses, and at vacant services again.

    If services are vacant, this waits for a session timeout and reads a second time, because a
    vacancy during an election is normal.

    Args:
        config: As for `PluginLocator.startup`.

    Raises:
        ConfigError: A setting is wrong; the message names it. Nothing was opened.
        UnsupportedError: The store does not declare ``scanning``.
        UnavailableError: The store did not answer in time.
        AuthenticationError: The store does not allow this reading.
        StoreError: The store cannot be read as it is.
    """
    reader = OverviewReader(config)
    overview = reader.read()
    return reader.read_when_decided() if overview.vacant else overview

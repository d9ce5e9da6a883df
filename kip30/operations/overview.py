"""The overview of a store for an operator: how much there is, and what wants attention."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from kip30.config import Properties, load
from kip30.errors import Kip30Error, StoreError
from kip30.names import INTERNAL
from kip30.operations.directory import CLAIMS, GroupStatus, ServiceStatus, directory_of
from kip30.operations.key_scan import named_records
from kip30.operations.scanned_pages import StoreScan
from kip30.operations.service_terms import began_at
from kip30.runtime import bans, directives, past_terms
from kip30.runtime.bans import Ban
from kip30.runtime.directives import Directives, ElectionPause
from kip30.runtime.resolution import Configuration, resolve, store_place
from kip30.scanning import Rejected

T = TypeVar("T")

MOST_UNREADABLE = 10
"""Number of records that cannot be read and are shown one by one."""

LONG_PAUSE_SECONDS = 86_400.0
"""After that a pause wants attention: it may have been forgotten."""

_SECONDS_BETWEEN_READS = 10.0
_SECONDS_BETWEEN_LIVE_READS = 2.0
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
        directives: By service, the directives of those that an operator has paused, whether they
            have a leader or not, or of which one was asked to step down and it is not over.
        bans: By group, the bans that are not over.
        vacant: Services without a leader in whose line candidates wait, locks and coordinators
            included, without those that are paused. That is normal during an election. On
            Cassandra there are none, because candidates form no line there. One with a name too
            long for the name of a group is found only where the store keeps its epoch.
        leaderless: Those of *vacant* that no one has led for a session timeout of this
            configuration: they were vacant at every look since then, with the same epoch.
        unreadable: Records that could not be read, so that something may be missing.
        session_timeout_seconds: How long those of *leaderless* were vacant at least.
        long_paused: Services that have been paused for longer than `LONG_PAUSE_SECONDS`, by the
            operator's clock and this one, in their order.
        since: By service, when the term of its leader began, as that leader has noted it, in
            seconds since 1970; empty unless it was asked for.
    """

    store: str
    place: str
    read_seconds: float
    services: Sequence[ServiceStatus]
    groups: Sequence[GroupStatus]
    directives: Mapping[str, Directives]
    bans: Mapping[str, Sequence[Ban]]
    vacant: Sequence[ServiceStatus]
    leaderless: Sequence[ServiceStatus]
    unreadable: Sequence[Rejected]
    session_timeout_seconds: float
    since: Mapping[str, float] = MappingProxyType({})
    long_paused: Sequence[str] = ()

    @property
    def paused(self) -> Sequence[str]:
        """The names of the services that an operator has paused, in their order."""
        return sorted(name for name, one in self.directives.items() if one.pause is not None)

    @property
    def wants_attention(self) -> bool:
        """True if there are leaderless services, long pauses, or records that cannot be read."""
        return bool(self.leaderless or self.long_paused or self.unreadable)

    def problems(self) -> Iterator[str]:
        """Yield a line for each leaderless service and long pause, and some unreadable records."""
        for one in self.leaderless:
            yield (
                f"{one.service} has had no leader for {self.session_timeout_seconds:g} s or longer;"
                f" in its line: {one.waiting}"
            )
        for service in self.long_paused:
            pause = self.directives[service].pause
            by = f", by {pause.by}" if pause is not None else ""
            yield f"{service} has been paused for more than a day{by}: `kip30 resume` ends that"
        for rejected in self.unreadable[:MOST_UNREADABLE]:
            yield f"{rejected.shown_key} cannot be read: {rejected.reason}"
        if len(self.unreadable) > MOST_UNREADABLE:
            yield f"{len(self.unreadable) - MOST_UNREADABLE} further records cannot be read"


class OverviewReader:
    """Reads one overview after the other. For one thread at a time; there is nothing to close.

    Attributes:
        store: The name of the store.
        place: Its addresses or directory, as the setting has it; may be empty.
        session_timeout_seconds: How long a service must be vacant to be leaderless.
        period_seconds: How often to read at most: 10 s; 30 s on Cassandra, which reads whole
            tables.
        live_period_seconds: The same for a person who looks at the result: 2 s; 30 s on Cassandra.
    """

    def __init__(self, config: Configuration = None, *, with_terms: bool = False) -> None:
        """Read the store that *config* chooses, as for `PluginLocator.startup`. Opens nothing.

        With *with_terms* all past terms are read as well, for `Overview.since`.

        Raises:
            ConfigError: A setting is wrong; the message names it.
            UnsupportedError: The store does not declare ``scanning``.
        """
        self._with_terms = with_terms
        self._properties = config if isinstance(config, Properties) else load(config)
        self.store, self.place, _ = store_place(self._properties)
        resolved = resolve(self._properties)
        resolved.require_scanning()
        self.session_timeout_seconds: float = resolved.context.session_timeout_seconds
        least = _SECONDS_BETWEEN_SCANS_OF_TABLES if self.store in _SCANNED_BY_TABLES else 0.0
        self.period_seconds: float = max(least, _SECONDS_BETWEEN_READS)
        self.live_period_seconds: float = max(least, _SECONDS_BETWEEN_LIVE_READS)
        self._vacancies = VacancyTimes(self.session_timeout_seconds)

    def read(self) -> Overview:
        """Open the store, look at it once, and close it.

        After a look that failed nothing counts as leaderless before another session timeout has
        passed: no one can be elected while the store is away.

        Raises:
            Kip30Error: As `read_directory`.
        """
        try:
            with StoreScan(self._properties) as scan:
                return self._look(scan)
        except Kip30Error:
            self._vacancies.forget()
            raise

    def _look(self, scan: StoreScan) -> Overview:
        began = time.monotonic()
        found = directory_of(scan.pages(CLAIMS), internal=True)
        unreadable = list(found.unreadable)
        standing = _read_directives(scan, unreadable)
        banned = _read_bans(scan, unreadable)
        since = _read_since(scan, found.services, unreadable) if self._with_terms else {}
        ended = time.monotonic()
        vacant = [
            one
            for one in found.services
            if one.leader is None
            and one.waiting
            and (one.service not in standing or standing[one.service].pause is None)
        ]
        return Overview(
            self.store,
            self.place,
            ended - began,
            [one for one in found.services if not one.service.startswith(INTERNAL)],
            [one for one in found.groups if not one.group.startswith(INTERNAL)],
            standing,
            banned,
            vacant,
            self._vacancies.note(vacant, began, ended),
            unreadable,
            self.session_timeout_seconds,
            since,
            [name for name, one in sorted(standing.items()) if _is_long(one.pause)],
        )

    def forget_vacancies(self) -> None:
        """Let no service count as leaderless before another session timeout has passed.

        For a reader that has not looked for long, so that elections may have taken place unseen.
        """
        self._vacancies.forget()

    def read_when_decided(self) -> Overview:
        """Wait until the vacancies of the last look are over or lasting, and read.

        That takes a session timeout at most, and no time without vacancies.

        Raises:
            Kip30Error: As `read_directory`.
        """
        while (left := self._vacancies.decided_at() - time.monotonic()) > 0:
            time.sleep(left)
        return self.read()


def _is_long(pause: ElectionPause | None) -> bool:
    return pause is not None and time.time() - pause.at > LONG_PAUSE_SECONDS


def _read_directives(scan: StoreScan, unreadable: list[Rejected]) -> dict[str, Directives]:
    """Return the directives that have an effect; add to *unreadable* what cannot be read."""
    standing = dict[str, Directives]()
    decode = directives.decode_directives
    for service, found in _decoded(scan, directives.NAMESPACE, decode, unreadable):
        now, pause, step_down = time.time(), found.pause, found.step_down
        left = found._replace(
            pause=None if pause is None or pause.is_over(now) else pause,
            step_down=None if step_down is None or step_down.is_over(now) else step_down,
        )
        if left.pause is not None or left.step_down is not None:
            standing[service] = left
    return standing


def _read_bans(scan: StoreScan, unreadable: list[Rejected]) -> dict[str, Sequence[Ban]]:
    """Return the bans that are not over; add to *unreadable* what cannot be read."""
    found = _decoded(scan, bans.NAMESPACE, bans.decode_bans, unreadable)
    present = {group: one.in_effect(time.time()) for group, one in found}
    return {group: one for group, one in present.items() if one}


def _read_since(
    scan: StoreScan, services: Iterable[ServiceStatus], unreadable: list[Rejected]
) -> dict[str, float]:
    epochs = {one.service: one.epoch for one in services if one.leader is not None}
    since = dict[str, float]()
    decode = past_terms.decode_past_terms
    for service, terms in _decoded(scan, past_terms.NAMESPACE, decode, unreadable):
        epoch = epochs.get(service)
        began = None if epoch is None else began_at(terms, epoch)
        if began is not None:
            since[service] = began
    return since


def _decoded(
    scan: StoreScan, namespace: str, decode: Callable[[str, bytes], T], unreadable: list[Rejected]
) -> Iterator[tuple[str, T]]:
    """Yield each record of *namespace*, as *decode* returns it, with its service or group.

    The others are added to *unreadable*.
    """
    for name, one in named_records(scan, namespace, unreadable):
        try:
            found = decode(name, one.value)
        except StoreError as error:
            unreadable.append(Rejected(one.key.encode(), str(error)))
            continue
        yield name, found


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

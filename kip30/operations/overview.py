"""The overview of a store for an operator: how much there is, and what wants attention."""

import time
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from kip30.config import Properties, load
from kip30.errors import Kip30Error
from kip30.names import INTERNAL
from kip30.operations.bans import ban_record, scan_bans
from kip30.operations.directory import (
    CLAIMS,
    GroupStatus,
    ServiceStatus,
    directory_of,
    member_key,
)
from kip30.operations.key_scan import decoded_records
from kip30.operations.scanned_pages import StoreScan
from kip30.operations.service_terms import began_at
from kip30.runtime import directives, past_terms
from kip30.runtime.bans import Ban
from kip30.runtime.directives import Directives, ElectionPause
from kip30.runtime.resolution import Configuration, resolve, store_place
from kip30.scanning import Page, Rejected

K = TypeVar("K", bound=Hashable)

MOST_UNREADABLE = 10
"""Number of records that cannot be read and are shown one by one."""

LONG_PAUSE_SECONDS = 86_400.0
"""After that a pause wants attention: it may have been forgotten."""

_SECONDS_BETWEEN_READS = 10.0
_SECONDS_BETWEEN_LIVE_READS = 2.0
_SECONDS_BETWEEN_SCANS_OF_TABLES = 30.0
_SCANNED_BY_TABLES = frozenset({"cassandra"})


BannedId = tuple[str, str]
"""A group, and an id that is banned from it."""


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
        bans: By group, the bans that are not over. Those of kip30's own groups have no effect, and
            are left out.
        vacant: Services without a leader in whose line candidates wait, locks and coordinators
            included, without those that are paused. That is normal during an election. On
            Cassandra there are none, because candidates form no line there. One with a name too
            long for the name of a group is found only where the store keeps its epoch. One whose
            leader cannot be read is not vacant.
        leaderless: Those of *vacant* that no one has led for a session timeout of this
            configuration: they were vacant at every look since then, with the same epoch.
        unreadable: Records that could not be read, so that something may be missing.
        session_timeout_seconds: How long those of *leaderless* were vacant at least, and those of
            *staying* were there.
        long_paused: Services that have been paused for longer than `LONG_PAUSE_SECONDS`, by the
            operator's clock and this one, in their order.
        banned_members: Group and id of each member that was there though it is banned. That is
            normal for a session timeout of its client.
        staying: Those of *banned_members* that have stayed for a session timeout of this
            configuration: they were there at every look since then, under the same ban.
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
    banned_members: Collection[BannedId] = frozenset()
    staying: Sequence[BannedId] = ()

    @property
    def paused(self) -> Sequence[str]:
        """The names of the services that an operator has paused, in their order."""
        return sorted(name for name, one in self.directives.items() if one.pause is not None)

    def ban_records(self, group: str) -> list[dict[str, Any]]:
        """Return the bans of *group* that are not over, as JSON shows them."""
        return [
            ban_record(ban, is_member=(group, ban.id) in self.banned_members)
            for ban in self.bans.get(group, ())
        ]

    @property
    def is_undecided(self) -> bool:
        """True if a service is vacant or a member banned: a later look shows whether it lasts."""
        return bool(self.vacant or self.banned_members)

    @property
    def wants_attention(self) -> bool:
        """True if `problems` yields a line."""
        return bool(self.leaderless or self.long_paused or self.staying or self.unreadable)

    def problems(self) -> Iterator[str]:
        """Yield what wants attention, a line each.

        That is each leaderless service, each long pause, each banned member that stays, and some of
        the records that cannot be read.
        """
        for one in self.leaderless:
            yield (
                f"{one.service} has had no leader for {self.session_timeout_seconds:g} s or longer;"
                f" in its line: {one.waiting}"
            )
        for service in self.long_paused:
            pause = self.directives[service].pause
            by = f", by {pause.by}" if pause is not None else ""
            yield f"{service} has been paused for more than a day{by}: `kip30 resume` ends that"
        for group, member in self.staying:
            yield (
                f"{member} is banned from {group}, and a member for"
                f" {self.session_timeout_seconds:g} s or longer: members obey if their program has"
                " plugin.operations=true"
            )
        for rejected in self.unreadable[:MOST_UNREADABLE]:
            yield f"{rejected.shown_key} cannot be read: {rejected.reason}"
        if len(self.unreadable) > MOST_UNREADABLE:
            yield f"{len(self.unreadable) - MOST_UNREADABLE} further records cannot be read"


class OverviewReader:
    """Reads one overview after the other. For one thread at a time; there is nothing to close.

    Attributes:
        store: The name of the store.
        place: Its addresses or directory, as the setting has it; may be empty.
        session_timeout_seconds: How long a service must be vacant to be leaderless, and a banned
            member be there to be staying.
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
        # With another epoch, someone has led meanwhile; with another time, the ban is another one.
        self._vacancies = LastingTimes[tuple[str, int | None]](self.session_timeout_seconds)
        self._stays = LastingTimes[tuple[BannedId, float]](self.session_timeout_seconds)

    def read(self) -> Overview:
        """Open the store, look at it once, and close it.

        After a look that failed nothing counts as leaderless or staying before another session
        timeout has passed: no one can be elected or leave while the store is away.

        Raises:
            Kip30Error: As `read_directory`.
        """
        try:
            with StoreScan(self._properties) as scan:
                return self._look(scan)
        except Kip30Error:
            self.forget_times()
            raise

    def _look(self, scan: StoreScan) -> Overview:
        began = time.monotonic()
        unreadable = list[Rejected]()
        # First, so that a member that is seen is there after the ban.
        banned = scan_bans(scan, unreadable)
        banned_keys = {
            member_key(group, ban.id): (group, ban) for group in banned for ban in banned[group]
        }
        present = set[bytes]()
        found = directory_of(_noted(scan.pages(CLAIMS), banned_keys, present), internal=True)
        unreadable += found.unreadable
        standing = _read_directives(scan, unreadable)
        since = _read_since(scan, found.services, unreadable) if self._with_terms else {}
        ended = time.monotonic()
        vacant = [
            one
            for one in found.services
            if not one.is_led
            and one.waiting
            and (one.service not in standing or standing[one.service].pause is None)
        ]
        lasting = self._vacancies.note([(one.service, one.epoch) for one in vacant], began, ended)
        members = {
            (group, ban.id): ban.at for group, ban in map(banned_keys.__getitem__, sorted(present))
        }
        staying = self._stays.note(members.items(), began, ended)
        return Overview(
            self.store,
            self.place,
            ended - began,
            [one for one in found.services if not one.service.startswith(INTERNAL)],
            [one for one in found.groups if not one.group.startswith(INTERNAL)],
            standing,
            banned,
            vacant,
            [one for one in vacant if (one.service, one.epoch) in lasting],
            unreadable,
            self.session_timeout_seconds,
            since,
            [name for name, one in sorted(standing.items()) if _is_long(one.pause)],
            members.keys(),
            sorted(one for one, _ in staying),
        )

    def forget_times(self) -> None:
        """Let nothing count as leaderless or staying before another session timeout has passed.

        For a reader that has not looked for long, so that elections may have taken place unseen,
        and members may have left and joined.
        """
        self._vacancies.forget()
        self._stays.forget()

    def read_when_decided(self) -> Overview:
        """Wait until the next look tells what lasts of what the last one has shown, and read.

        That takes a session timeout at most, and no time after a look that was not undecided.

        Raises:
            Kip30Error: As `read_directory`.
        """
        decided_at = max(self._vacancies.decided_at(), self._stays.decided_at())
        while (left := decided_at - time.monotonic()) > 0:
            time.sleep(left)
        return self.read()


def _noted(pages: Iterable[Page], keys: Iterable[bytes], present: set[bytes]) -> Iterator[Page]:
    """Yield *pages*; add those of *keys* that are on one of them to *present*."""
    sought = frozenset(keys)
    for page in pages:
        present |= sought.intersection(page.keys)
        yield page


def _is_long(pause: ElectionPause | None) -> bool:
    return pause is not None and time.time() - pause.at > LONG_PAUSE_SECONDS


def _read_directives(scan: StoreScan, unreadable: list[Rejected]) -> dict[str, Directives]:
    """Return the directives that have an effect; add to *unreadable* what cannot be read."""
    standing = dict[str, Directives]()
    decode = directives.decode_directives
    for service, found in decoded_records(scan, directives.NAMESPACE, decode, unreadable):
        now, pause, step_down = time.time(), found.pause, found.step_down
        left = found._replace(
            pause=None if pause is None or pause.is_over(now) else pause,
            step_down=None if step_down is None or step_down.is_over(now) else step_down,
        )
        if left.pause is not None or left.step_down is not None:
            standing[service] = left
    return standing


def _read_since(
    scan: StoreScan, services: Iterable[ServiceStatus], unreadable: list[Rejected]
) -> dict[str, float]:
    epochs = {one.service: one.epoch for one in services if one.leader is not None}
    since = dict[str, float]()
    decode = past_terms.decode_past_terms
    for service, terms in decoded_records(scan, past_terms.NAMESPACE, decode, unreadable):
        epoch = epochs.get(service)
        began = None if epoch is None else began_at(terms, epoch)
        if began is not None:
            since[service] = began
    return since


class LastingTimes(Generic[K]):
    """Tells what lasts from what is normal for some time, such as a vacancy during an election."""

    def __init__(self, lasting_seconds: float) -> None:
        """Anything lasts if it is seen again after *lasting_seconds*."""
        self._lasting_seconds = lasting_seconds
        self._lasts_at: dict[K, float] = {}

    def note(self, present: Iterable[K], began: float, ended: float) -> set[K]:
        """Return those of *present* that last, by a look that was made from *began* to *ended*."""
        known = self._lasts_at
        self._lasts_at = {one: known.get(one, ended + self._lasting_seconds) for one in present}
        return {one for one, lasts_at in self._lasts_at.items() if lasts_at <= began}

    def decided_at(self) -> float:
        """Return when the next look can tell of all that was present whether it lasts."""
        return max(self._lasts_at.values(), default=0.0)

    def forget(self) -> None:
        """Forget all that was present."""
        self._lasts_at = {}


def read_overview(config: Configuration = None) -> Overview:
    """Look at the store that *config* chooses, and again if the first look is undecided.

    If services are vacant or banned members are there, this waits for a session timeout and reads a
    second time, because both are normal for that time, during an election and after a ban.

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
    return reader.read_when_decided() if overview.is_undecided else overview

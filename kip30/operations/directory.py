"""The services and groups of a store, from one scan of all members, leaders and epochs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kip30.names import INTERNAL, escape, unescape
from kip30.operations.bans import scan_bans
from kip30.operations.scanned_pages import StoreScan
from kip30.runtime.bans import Ban
from kip30.runtime.candidate_line import line_group, service_of_line
from kip30.runtime.resolution import Configuration
from kip30.scanning import Layout, Page, Rejected, View

CLAIMS = View(layout=Layout.CLAIMS)
"""All members, leaders and epochs."""


class ServiceStatus(NamedTuple):
    """One service.

    Attributes:
        service: Its name.
        leader: The id of the candidate that leads; None: no one does, or its record cannot be read.
        epoch: The newest epoch; None: the store keeps none of a service without a leader.
        waiting: Number of candidates in the line. A candidate joins it when it was refused once, so
            one that was just nominated is not counted. On Cassandra candidates form no line: 0.
        readable: False if the record of its leader cannot be read: the service has one.
    """

    service: str
    leader: str | None
    epoch: int | None
    waiting: int
    readable: bool = True

    @property
    def is_led(self) -> bool:
        """True if it has a leader, also one whose record cannot be read."""
        return self.leader is not None or not self.readable


class GroupStatus(NamedTuple):
    """One group.

    Attributes:
        group: Its name.
        members: How many members it has.
        banned: How many ids are banned from it; 0 unless that was asked for.
    """

    group: str
    members: int
    banned: int = 0


def member_key(group: str, member_id: str) -> bytes:
    """Return the key of a member in the view `CLAIMS`; one that is none if it can be no member."""
    try:
        return f"member/{escape(group)}/{escape(member_id)}".encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which no name has
        return b""


class Directory(NamedTuple):
    """The services and groups of a store.

    Attributes:
        services: In the order of their names; one without a leader is there if candidates wait in
            line, or the store keeps its epoch (embedded, ZooKeeper, Cassandra). One whose leader
            cannot be read is there.
        groups: In the order of their names.
        unreadable: Records that could not be read, so that something may be missing.
    """

    services: Sequence[ServiceStatus]
    groups: Sequence[GroupStatus]
    unreadable: Sequence[Rejected]


def read_directory(
    config: Configuration = None, *, internal: bool = False, with_bans: bool = False
) -> Directory:
    """Return the services and groups of the store that *config* chooses.

    Args:
        config: As for `PluginLocator.startup`.
        internal: Whether to include those of kip30 itself: locks, coordinators and lines.
        with_bans: Whether to read bans as well. A group without members is there if it has some.

    Raises:
        ConfigError: A setting is wrong; the message names it. Nothing was opened.
        UnsupportedError: The store does not declare ``scanning``.
        UnavailableError: The store did not answer in time.
        AuthenticationError: The store does not allow this reading.
        StoreError: The store cannot be read as it is.
    """
    unreadable = list[Rejected]()
    with StoreScan(config) as scan:
        bans = scan_bans(scan, unreadable) if with_bans else {}
        found = directory_of(scan.pages(CLAIMS), internal=internal)
    groups = groups_with_bans(found.groups, bans)
    return Directory(found.services, groups, [*found.unreadable, *unreadable])


def groups_with_bans(
    groups: Iterable[GroupStatus], bans: Mapping[str, Sequence[Ban]]
) -> list[GroupStatus]:
    """Return *groups* and those that have only *bans*, with the number of each, in their order."""
    members = dict.fromkeys(bans, 0) | {one.group: one.members for one in groups}
    return [GroupStatus(one, members[one], len(bans.get(one, ()))) for one in sorted(members)]


def directory_of(pages: Iterable[Page], *, internal: bool = False) -> Directory:
    """Return what *pages* of the view `CLAIMS` show; *internal* as for `read_directory`."""
    leaders = dict[str, tuple[str, int | None]]()
    epochs = dict[str, int]()
    members = Counter[str]()
    unreadable = list[Rejected]()
    for page in pages:
        unreadable += page.rejected
        for key, version in zip(page.keys, page.majors, strict=True):
            kind, *names = key.decode().split("/")
            name = unescape(names[0])
            if kind == "leader":
                leaders[name] = (unescape(names[1]), version)
            elif kind == "epoch":
                epochs[name] = version
            else:
                members[name] += 1
    hidden = {one for one in map(_service_of_hidden, unreadable) if one is not None}
    hidden -= leaders.keys()  # it was read on another page
    waited_for = {one for group in members if (one := service_of_line(group)) is not None}
    services = list[ServiceStatus]()
    for name in sorted(leaders.keys() | epochs.keys() | waited_for | hidden):
        leader, epoch = leaders.get(name, (None, epochs.get(name)))
        waiting = members[line_group(name)]
        services.append(ServiceStatus(name, leader, epoch, waiting, name not in hidden))
    groups = [GroupStatus(name, count) for name, count in sorted(members.items()) if count]
    if internal:
        return Directory(services, groups, unreadable)
    return Directory(
        [one for one in services if not one.service.startswith(INTERNAL)],
        [one for one in groups if not one.group.startswith(INTERNAL)],
        unreadable,
    )


def _service_of_hidden(rejected: Rejected) -> str | None:
    """Return the service whose leader is the record that was rejected, if it is one."""
    match (rejected.prefix or b"").split(b"/"):
        case [b"leader", service, b""]:
            return unescape(service.decode())
        case _:
            return None

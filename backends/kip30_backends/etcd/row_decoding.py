"""Decoding rows: which keys a view covers, and what row each becomes."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from typing_extensions import override

from kip30.driver.key_layout import Paths
from kip30.driver.record_format import unseal, unseal_all
from kip30.driver.records import Version
from kip30.driver.scanning import (
    Change,
    Layout,
    Page,
    Rejected,
    Row,
    View,
    claim_row,
    leaders_hidden_at,
)
from kip30.errors import InvalidNameError, StoreError
from kip30.names import (
    Key,
    begin_of_keys,
    check_id,
    escape,
    keys_at,
    parse_key,
    unescape,
)
from kip30_backends.etcd.client.messages import PUT, Event, KeyRange, KeyValue, below


class ScanView(ABC):
    """The keys of a view.

    Attributes:
        prefix: The prefix of all of them.
        ranges: Which they are, in order.
    """

    prefix: str
    ranges: Sequence[KeyRange]

    @property
    def hull(self) -> KeyRange:
        """The least range that has all of `ranges`."""
        return KeyRange(self.ranges[0].start, self.ranges[-1].end)

    def page(self, found: Sequence[KeyValue]) -> Page:
        """Return the records that were found, and the rejected ones."""
        rows: list[Row] = []
        rejected: list[Rejected] = []
        for one in found:
            try:
                self.add(one, rows)
            except (InvalidNameError, StoreError) as error:
                rejected.append(self._rejected(one, error))
        return Page.of(rows, rejected)

    def _rejected(self, found: KeyValue, error: Exception) -> Rejected:
        """Return that *found* was not read as a record because of *error*."""
        try:
            record = self.key(found)
        except InvalidNameError:
            record = None
        return Rejected(found.key, f"foreign: {error}", record)

    @abstractmethod
    def add(self, found: KeyValue, rows: list[Row]) -> None:
        """Append the records that a key has.

        Raises:
            InvalidNameError: It is not one of kip30's keys.
            StoreError: It has no record of kip30's.
        """

    def changes(self, events: Iterable[Event]) -> list[Change]:
        """Return the changes in the view: of records, and of keys that can be none."""
        return [self._change(event) for event in events if self._has(event.kv.key)]

    def _change(self, event: Event) -> Change:
        found = event.kv
        row, rejected = self._state(found) if event.type == PUT else (None, None)
        try:
            return Change(self.key(found), row, found.mod_revision, rejected)
        except InvalidNameError:
            return Change(found.key, None, found.mod_revision, rejected, is_record=False)

    @abstractmethod
    def key(self, found: KeyValue) -> bytes:
        """Return the key of the record in *found*, if it is one.

        Raises:
            InvalidNameError: It is not one of kip30's keys.
        """

    def _state(self, found: KeyValue) -> tuple[Row | None, Rejected | None]:
        """Return the record in *found*, or why it was not read as one."""
        rows: list[Row] = []
        try:
            self.add(found, rows)
        except (InvalidNameError, StoreError) as error:
            return None, self._rejected(found, error)
        return (rows[0] if rows else None), None

    def _has(self, key: bytes) -> bool:
        return any(start <= key and (key < end or end == b"\0") for start, end in self.ranges)


class ValueView(ScanView):
    """The values of kip30's storage, by the keys of their users.

    A view of everything covers the keys below the namespace of the configuration that are of no
    group or service, so that foreign keys there are found.
    """

    def __init__(self, paths: Paths, under: str) -> None:
        """Cover *under* and all namespaces below, or everything if that is empty."""
        root = self.prefix = f"{paths.root}/"
        self._values = f"{root}kv/".encode()
        if under:
            own = paths.namespace(under).encode()
            self.ranges = [below(own + b"/"), below(own + escape("/").encode())]
        else:
            # All but the two folders of claims, so that foreign keys beside them are found.
            groups, services = _claims(root)
            everything = below(root.encode())
            self.ranges = [
                KeyRange(everything.start, groups.start),
                KeyRange(groups.end, services.start),
                KeyRange(services.end, everything.end),
            ]

    @override
    def page(self, found: Sequence[KeyValue]) -> Page:
        return self._page_of_plain(found) or super().page(found)

    def _page_of_plain(self, found: Sequence[KeyValue]) -> Page | None:
        """Return the page if no name is escaped and nothing is foreign, as in most pages."""
        records = list(found)  # each access to an answer creates a new object
        keys = keys_at([one.key for one in records], self._values)
        data = unseal_all([one.value for one in records])
        return None if keys is None or data is None else _page(keys, data, records)

    @override
    def add(self, found: KeyValue, rows: list[Row]) -> None:
        data = unseal(found.value, _shown(found.key)).data
        rows.append(_row(self.key(found), data, found))

    @override
    def key(self, found: KeyValue) -> bytes:
        parent, _, name = found.key.rpartition(b"/")
        return begin_of_keys(self._values, parent) + _name(name)


class RawView(ScanView):
    """All keys, as they are."""

    def __init__(self, under: str) -> None:
        """Cover all keys of the cluster that begin with *under*."""
        self.prefix = under
        self.ranges = [below(_encoded(under))]

    @override
    def page(self, found: Sequence[KeyValue]) -> Page:
        records = list(found)
        return _page([one.key for one in records], [one.value for one in records], records)

    @override
    def add(self, found: KeyValue, rows: list[Row]) -> None:
        rows.append(_row(found.key, found.value, found))

    @override
    def key(self, found: KeyValue) -> bytes:
        return found.key


class ClaimView(ScanView):
    """Members, leaders and epochs. The epoch of a service is that of its leader, or unknown."""

    def __init__(self, paths: Paths, under: str) -> None:
        """Cover the claims whose rows have keys that begin with *under*."""
        self.prefix = f"{paths.root}/"
        self.ranges = _claims(self.prefix)
        self._under = _encoded(under)

    @override
    def add(self, found: KeyValue, rows: list[Row]) -> None:
        kind, *segments = found.key[len(self.prefix.encode()) :].split(b"/")
        match kind, segments:
            case b"group", [group, member]:
                claims = _member(found, group, member)
            case b"service", [service, b"leader"]:
                claims = _leader(found, service)
            case _:
                raise _no_key(found.key)
        rows += [row for row in claims if row.key.startswith(self._under)]

    @override
    def _rejected(self, found: KeyValue, error: Exception) -> Rejected:
        path = _shown(found.key[len(self.prefix.encode()) :])
        return super()._rejected(found, error)._replace(prefix=leaders_hidden_at(path))

    @override
    def key(self, found: KeyValue) -> bytes:
        return found.key


def reading(namespace: str, view: View) -> ScanView:
    """Return what *view* covers, given ``plugin.namespace``.

    Raises:
        InvalidNameError: Its *under* cannot be a name.
    """
    paths = Paths(namespace)
    match view.layout:
        case Layout.KIP30:
            return ValueView(paths, view.under)
        case Layout.RAW:
            return RawView(view.under)
        case Layout.CLAIMS:
            return ClaimView(paths, view.under)


def _claims(root: str) -> list[KeyRange]:
    return [below(f"{root}{kind}/".encode()) for kind in ("group", "service")]


def _member(found: KeyValue, group: bytes, member: bytes) -> list[Row]:
    names = check_id(_unescaped(group), "group"), check_id(_unescaped(member), "member")
    data = unseal(found.value, _shown(found.key)).data
    version = Version(found.create_revision)
    owner = _owner(found.lease) if found.lease else None
    return [claim_row("member", *names, data=data, version=version, owner=owner)]


def _leader(found: KeyValue, segment: bytes) -> list[Row]:
    _, candidate, data = unseal(found.value, _shown(found.key))
    service = check_id(_unescaped(segment), "service")
    names = service, check_id(candidate, "candidate")
    version = Version(found.create_revision)
    owner = _owner(found.lease) if found.lease else None
    return [
        claim_row("epoch", service, data=None, version=version, owner=None),
        claim_row("leader", *names, data=data, version=version, owner=owner),
    ]


def _page(keys: Sequence[bytes], data: Sequence[bytes], records: Sequence[KeyValue]) -> Page:
    changed = [one.mod_revision for one in records]
    return Page(
        keys,
        data,
        changed,
        (0,) * len(records),
        [one.create_revision for one in records],
        changed,
        [_owner(one.lease) if one.lease else None for one in records],
    )


def _row(key: bytes, data: bytes, found: KeyValue) -> Row:
    changed, lease = found.mod_revision, found.lease
    return Row(
        key, data, changed, 0, found.create_revision, changed, _owner(lease) if lease else None
    )


def _name(segment: bytes) -> bytes:
    name = _unescaped(segment)
    if parse_key(name) != Key("", name):
        raise _no_key(segment)
    return name.encode()


def _unescaped(segment: bytes) -> str:
    return unescape(_shown(segment))


def _shown(key: bytes) -> str:
    return key.decode("ascii", "backslashreplace")


def _no_key(key: bytes) -> InvalidNameError:
    return InvalidNameError(f"{_shown(key)!r} is not a key of kip30")


def _owner(lease: int) -> str:
    """Return a lease as etcd's own tools write it."""
    return f"{lease:x}"


def _encoded(prefix: str) -> bytes:
    try:
        return prefix.encode()
    except UnicodeEncodeError as error:
        raise InvalidNameError(
            f"{prefix!r} cannot be encoded: it holds a lone surrogate"
        ) from error

"""Decoding rows: which keys a view covers, and what row each becomes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial

from kip30.driver.key_layout import Paths
from kip30.driver.record_format import unseal_all
from kip30.driver.records import Version
from kip30.driver.scanning import Layout, Page, Rejected, Row, View, claim_row, leaders_hidden_at
from kip30.errors import InvalidNameError, StoreError
from kip30.names import Key, check_id, escape, keys_at, parse_key, unescape
from kip30_backends.consul.transactions import UNREADABLE, KVColumns, KVPair, key_of

_NOT_UTF_8 = "the key is not UTF-8, and Consul's answers do not say what it is"
_CLAIMS = {"group": ("member/",), "service": ("leader/", "epoch/")}
"""Prefixes of the rows of claims, by the folder that they are in."""


@dataclass(frozen=True, slots=True)
class ScanView:
    """One view of one cluster.

    Attributes:
        place: What all its keys begin with.
        prefixes: The beginnings of its keys, if they are to be cut into spans.
        rows: The rows of one record; raises `StoreError` or `InvalidNameError` if it has none.
        plain: The page of many records, or None if each has to be read by itself.
        record: The key of the record whose place a key of the store is; raises `InvalidNameError`
            if it is none's.
        trees: The beginnings of its keys, if all of them are one span.
        claims: What the keys of claims begin with, if all others below *place* are in the view.
        hidden: `Rejected.prefix` of a key that cannot be read.
    """

    place: str
    prefixes: tuple[str, ...]
    rows: Callable[[KVPair], Iterable[Row]]
    plain: Callable[[KVColumns], Page | None] = lambda _: None
    record: Callable[[str], bytes] = str.encode
    trees: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    hidden: Callable[[str], bytes | None] = lambda _: None

    def page(self, records: KVColumns) -> Page:
        """Return the rows of *records*, and the keys that have none."""
        return self.plain(records) or self._page(records)

    def _page(self, records: KVColumns) -> Page:
        rows: list[Row] = []
        rejected: list[Rejected] = []
        for record in records.each():
            if UNREADABLE in record.key:
                rejected.append(unreadable(record.key))
                continue
            try:
                rows += self.rows(record)
            except (StoreError, InvalidNameError) as error:
                rejected.append(self._rejected(record, error))
        return Page.of(rows, rejected)

    def _rejected(self, found: KVPair, error: Exception) -> Rejected:
        """Return that *found* was not read as a record because of *error*."""
        try:
            record = self.record(found.key)
        except InvalidNameError:
            record = None
        # What no session holds hides no claim.
        hidden = self.hidden(found.key) if found.session else None
        return Rejected(found.key.encode(), f"foreign: {error}", record, hidden)


def unreadable(key: str) -> Rejected:
    """Return a rejection: *key* gives the value no name."""
    return Rejected(key.replace(UNREADABLE, "\ufffd").encode(), _NOT_UTF_8)


def reading_of(namespace: str, view: View) -> ScanView:
    """Return how *view* is read, given ``plugin.namespace``.

    Raises:
        InvalidNameError: What it covers is no text, or cannot be a namespace.
    """
    try:
        view.under.encode()
    except UnicodeEncodeError as error:
        raise InvalidNameError(f"{view.under!r} cannot be encoded: {error}") from error
    root = f"{key_of(Paths(namespace).root)}/"
    match view.layout:
        case Layout.KIP30:
            return _values(root, view.under)
        case Layout.CLAIMS:
            return _claims(root, view.under)
        case Layout.RAW:
            return ScanView(view.under, (view.under,), _raw)


def _raw(record: KVPair) -> tuple[Row]:
    return (_row(record, record.key.encode(), record.sealed),)


def _row(record: KVPair, key: bytes, data: bytes) -> Row:
    modified = record.modified
    return Row(key, data, modified, 0, record.created, modified, record.session or None)


def _values(root: str, under: str) -> ScanView:
    base = f"{root}kv/"

    def key_at(place: str) -> bytes:
        if not place.startswith(base):
            raise InvalidNameError(f"{place} is no place of kip30's")
        return _key(place[len(base) :])

    def rows(record: KVPair) -> tuple[Row]:
        return (_row(record, key_at(record.key), record.unsealed().data),)

    plain = partial(_plain, base.encode())
    if not under:
        claims = tuple(f"{root}{folder}/" for folder in _CLAIMS)
        return ScanView(root, (base,), rows, plain, key_at, claims=claims)
    own, below = escape(under), escape(f"{under}/")
    return ScanView(root, (f"{base}{own}/", f"{base}{below}"), rows, plain, key_at)


def _plain(base: bytes, records: KVColumns) -> Page | None:
    """Return the page if no name is escaped and nothing is foreign, as in most pages."""
    # A surrogate stands for bytes that are not text, and is in no name.
    paths = [key.encode("utf-8", "surrogatepass") for key in records.keys]
    keys, data = keys_at(paths, base), unseal_all(records.sealed)
    if keys is None or data is None:
        return None
    zeros, modified = (0,) * len(keys), records.modified
    owners = [session or None for session in records.sessions]
    return Page(keys, data, modified, zeros, records.created, modified, owners)


def _key(path: str) -> bytes:
    """Return the key whose value is at *path*, as its user wrote it."""
    namespace, _, name = path.partition("/")
    key = Key(_namespace(namespace), unescape(name))
    text = str(key)
    if parse_key(text) != key:
        raise InvalidNameError(f"{path!r} is the place of no key")
    return text.encode()


@lru_cache(maxsize=1024)
def _namespace(segment: str) -> str:
    return unescape(segment)


def _claims(root: str, under: str) -> ScanView:
    def rows(record: KVPair) -> list[Row]:
        found = _claim(record, record.key[len(root) :])
        return [row for row in found if row.key.decode().startswith(under)]

    trees = [
        f"{root}{folder}/"
        for folder, begin in _CLAIMS.items()
        if any(one.startswith(under) or under.startswith(one) for one in begin)
    ]
    return ScanView(
        root, (), rows, trees=tuple(trees), hidden=lambda key: leaders_hidden_at(key[len(root) :])
    )


def _claim(record: KVPair, path: str) -> list[Row]:
    if not record.session:
        raise StoreError(f"{record.key} is held by no session")
    version, owner = Version(record.created), record.session
    _, label, data = record.unsealed()
    match path.split("/"):
        case ["group", group, member]:
            names = (_name(group), _name(member))
            return [claim_row("member", *names, data=data, version=version, owner=owner)]
        case ["service", service, "leader"]:
            names = (_name(service), check_id(label, "candidate"))
            return [
                claim_row("leader", *names, data=data, version=version, owner=owner),
                claim_row("epoch", names[0], data=None, version=version, owner=None),
            ]
        case _:
            raise StoreError(f"{record.key} is no place of kip30's")


def _name(segment: str) -> str:
    return check_id(unescape(segment), "name")

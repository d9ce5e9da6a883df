"""All keys of a namespace and of those below it, with their values and versions."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from kip30.driver.records import Version
from kip30.errors import InvalidNameError, StoreError
from kip30.names import INTERNAL, unescape
from kip30.operations.scanned_pages import StoreScan, pages_of
from kip30.runtime.resolution import Configuration
from kip30.scanning import Page, Rejected, View

T = TypeVar("T")


class StoredKey(NamedTuple):
    """A key as it was found."""

    key: str
    value: bytes
    version: Version


class KeyScan:
    """Reads keys in bulk, without a session: iterate over it once.

    How far all of it shows one moment is the store's: see `kip30.scanning.Consistency`.

    Attributes:
        unreadable: Records that could not be read, so that keys may be missing. Complete when
            the iteration has ended.
    """

    def __init__(
        self, config: Configuration = None, namespace: str = "", *, internal: bool = False
    ) -> None:
        """Read *namespace* and all below it, everything if it is empty, from the store of *config*.

        Namespaces of kip30 itself are left out, unless *internal* is set or one of them is meant.

        Raises:
            InvalidNameError: *namespace* cannot be one. Nothing was opened.
        """
        self.unreadable: list[Rejected] = []
        self._config = config
        self._view = View(under=namespace)
        self._hidden = b"" if internal or namespace.startswith(INTERNAL) else INTERNAL.encode()

    def __iter__(self) -> Iterator[StoredKey]:
        """Yield the keys in the store's order; `kip30.scanning.scanner` says what raises."""
        yield from keys_of(pages_of(self._config, self._view), self.unreadable, self._hidden)


def named_records(
    scan: StoreScan, namespace: str, unreadable: list[Rejected]
) -> Iterator[tuple[str, StoredKey]]:
    """Yield each record in *namespace*, with the service or group that it is about.

    What cannot be read is added to *unreadable*, as are keys that are about none.
    """
    for one in keys_of(scan.pages(View(under=namespace)), unreadable):
        try:
            name = unescape(one.key.removeprefix(f"{namespace}/"))
        except InvalidNameError:
            reason = "its name is none that kip30 writes; the key has no effect: delete it"
            unreadable.append(Rejected(one.key.encode(), reason))
            continue
        yield name, one


def decoded_records(
    scan: StoreScan, namespace: str, decode: Callable[[str, bytes], T], unreadable: list[Rejected]
) -> Iterator[tuple[str, T]]:
    """Yield as `named_records`, but each record as *decode* returns it.

    One for which *decode* raises `StoreError` is added to *unreadable*, too.
    """
    for name, one in named_records(scan, namespace, unreadable):
        try:
            found = decode(name, one.value)
        except StoreError as error:
            unreadable.append(Rejected(one.key.encode(), str(error)))
            continue
        yield name, found


def keys_of(
    pages: Iterable[Page], unreadable: list[Rejected], hidden: bytes = b""
) -> Iterator[StoredKey]:
    """Yield the keys of *pages*, without those that begin with *hidden*, if that is not empty.

    What cannot be read is added to *unreadable*.
    """
    for page in pages:
        unreadable += page.rejected
        columns = zip(page.keys, page.data, page.majors, page.minors, strict=True)
        for key, data, major, minor in columns:
            if not (hidden and key.startswith(hidden)):
                yield StoredKey(key.decode(), data or b"", Version(major, minor))

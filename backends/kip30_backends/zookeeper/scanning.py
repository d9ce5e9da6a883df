"""Reading the store in bulk: the names of children, then the nodes, hundreds a request.

ZooKeeper has no reads of the past, so a scan is fuzzy. Every row has the time of its last change.
"""

import os
from collections.abc import Iterator, Sequence

from typing_extensions import override

from kip30.driver import Context
from kip30.driver.kit.lifecycle import close_when_dropped
from kip30.driver.scanning import (
    Change,
    Consistency,
    Layout,
    Page,
    PageSize,
    Position,
    Rejected,
    Row,
    ScanDriver,
    Span,
    View,
    check_rows,
)
from kip30.errors import (
    AuthenticationError,
    ClosedError,
    LifecycleError,
    PositionLostError,
    UnsupportedError,
)
from kip30_backends.zookeeper.errors import NoAuth
from kip30_backends.zookeeper.resources import Resources, check_not_reserved
from kip30_backends.zookeeper.row_decoding import ScanView, nodes_of
from kip30_backends.zookeeper.scan_reader import (
    MOST_NODES,
    Found,
    Listings,
    NodeRange,
    Reader,
    TreeTraversal,
    place_of,
    spans,
)
from kip30_backends.zookeeper.settings import Connect, ZookeeperSettings

_UNREADABLE = "the access list of the node does not allow reading it, nor what is below it"


class ZookeeperScanner(ScanDriver):
    """One ensemble, in a session of its own: a session is the only way to ask ZooKeeper anything.

    No node is created, changed or deleted.
    """

    consistency = Consistency.FUZZY
    is_tree = True

    def __init__(self, context: Context, settings: ZookeeperSettings, view: View) -> None:
        """Connect.

        Raises:
            ConfigError: The settings cannot be used. Nothing was sent.
            InvalidNameError: The view is below what is no namespace or no path. Nothing was sent.
            UnavailableError: No server answered within the connect timeout.
            AuthenticationError: The servers reject the credentials.
        """
        self._context = context
        self._settings = settings
        self._choose(view)
        self._store = _identity(settings.connect)
        self._pid = os.getpid()
        self._closed = False
        self._listings = Listings()
        resources = self._resources = Resources(context, settings)
        self._drop = close_when_dropped(self, resources.drop)

    @override
    def position(self) -> Position:
        self._check_open()
        return Position(self._store, str(self._reader_from(0).newest()))

    @override
    def turn_to(self, view: View, at: Position) -> Position:
        self._choose(view)
        return at

    @override
    def plan(self, at: Position, rows: int) -> Iterator[Span]:
        check_rows(rows)
        reader = self._reader(at)
        is_raw = self._layout is Layout.RAW
        stops = _all_places(reader, self._view) if is_raw else _scopes(reader, self._view, rows)
        for span in spans(stops, rows):
            yield span
            self._check_open()

    @override
    def scan(self, span: Span, at: Position) -> Iterator[Page]:
        reader, part = self._reader(at), NodeRange.of_token(span.token)
        visit = _VisitResults(self._view, part)
        walk = TreeTraversal(reader, self._view.tops, self._view.covers, part)
        size = PageSize(MOST_NODES)
        while paths := walk.take(size.rows):
            visit.take(paths, reader.nodes(paths))
            visit.refuse(walk.go_below(visit.parents))
            if page := visit.page():
                yield page
                size.adapt(page)
                self._check_open()

    @override
    def changed_since(self, page: Page, at: Position) -> Sequence[bool]:
        newest = int(at.at)
        return [modified is None or modified > newest for modified in page.modified]

    @override
    def changes(self, after: Position, until: Position) -> Iterator[Sequence[Change]]:
        raise UnsupportedError("ZooKeeper keeps no log of changes that clients can read")

    @override
    def close(self) -> None:
        """End the session, and forget the names."""
        self._closed = True
        self._listings.clear()
        self._drop.detach()
        self._resources.close()

    def _choose(self, view: View) -> None:
        if view.layout is not Layout.RAW:
            check_not_reserved(self._context, self._settings)
        self._view = nodes_of(view, self._settings.connect.chroot, self._context.namespace)
        self._layout = view.layout

    def _check_open(self) -> None:
        if os.getpid() != self._pid:
            raise LifecycleError("this scanner belongs to a parent process: open one here")
        if self._closed:
            raise ClosedError("this scanner is closed: open another one")

    def _reader(self, at: Position) -> Reader:
        self._check_open()
        if at.store != self._store:
            raise PositionLostError(f"the position is of {at.store}, and this is {self._store}")
        return self._reader_from(int(at.at))

    def _reader_from(self, not_before: int) -> Reader:
        return Reader(self._resources, self._listings, self._view.tops[0], not_before)


class _VisitResults:
    """The results for the nodes that are visited for one part of the tree.

    Attributes:
        parents: Those of the present page that have children, and how many.
    """

    def __init__(self, nodes: ScanView, part: NodeRange) -> None:
        self.parents: list[tuple[str, int]] = []
        self._view = nodes
        self._range = part
        self._rows: list[Row] = []
        self._rejected: list[Rejected] = []

    def take(self, paths: Sequence[str], found: Sequence[Found]) -> None:
        """Sort the nodes of a new page into rows, rejected ones and parents."""
        self.parents, self._rows, self._rejected = [], [], []
        for path, node in zip(paths, found, strict=True):
            if isinstance(node, NoAuth):
                self.refuse([path])
            elif node is not None:
                record = self._view.read(path, node)
                if isinstance(record, Rejected) and self._hides(path):
                    self._rejected.append(record)
                elif isinstance(record, Row) and self._range.has(path):
                    self._rows.append(record)
                if node.stat.children and not isinstance(record, Rejected):
                    self.parents.append((path, node.stat.children))

    def refuse(self, paths: Sequence[str]) -> None:
        """Record that *paths* cannot be read.

        Raises:
            AuthenticationError: One of them is all of the view.
        """
        _require_readable(paths, self._view)
        self._rejected += [
            self._view.reject(path, _UNREADABLE) for path in paths if self._hides(path)
        ]

    def page(self) -> Page | None:
        """Return the present page, if there is anything on it."""
        return Page.of(self._rows, self._rejected) if self._rows or self._rejected else None

    def _hides(self, path: str) -> bool:
        """Return whether *path*, which is not visited further, or anything below is in this part.

        A part may begin below a node that could be read when the part before was scanned.
        """
        return self._range.has(path) or self._range.begins_below(path)


def _all_places(reader: Reader, nodes: ScanView) -> Iterator[tuple[str, int]]:
    """Yield the places of all nodes, in order; they are in memory together."""
    places: list[str] = []
    walk = TreeTraversal(reader, nodes.tops, nodes.covers)
    while paths := walk.take():
        places += map(place_of, paths)
        # Only reading all nodes shows which have children: so does their data, but nothing else.
        _require_readable(walk.go_below([(path, 0) for path in paths]), nodes)
    places.sort()
    return ((place, 1) for place in places)


def _scopes(reader: Reader, nodes: ScanView, rows: int) -> Iterator[tuple[str, int]]:
    """Yield the places of namespaces, groups or services, and of names in those with many."""
    for top in nodes.tops:
        walk = TreeTraversal(reader, (), nodes.covers)
        _require_readable(walk.go_below([(top, 0)]), nodes)
        while paths := walk.take():
            for path, node in zip(paths, reader.nodes(paths), strict=True):
                count = 0 if node is None or isinstance(node, NoAuth) else node.stat.children
                # An empty one counts, so that there is a span in which it can be rejected.
                yield place_of(path), max(1, count if count <= rows else 0)
                if count > rows:
                    yield from _names(reader, path)


def _names(reader: Reader, path: str) -> Iterator[tuple[str, int]]:
    (names,) = reader.names([path])
    if names is not None and not isinstance(names, NoAuth):
        yield from ((place_of(f"{path}/{name}"), 1) for name in names)


def _require_readable(refused: Sequence[str], nodes: ScanView) -> None:
    if not set(refused).isdisjoint(nodes.tops):
        raise AuthenticationError(
            f"ZooKeeper does not let this user read {refused[0] or '/'}: check the credentials"
        )


def _identity(connect: Connect) -> str:
    return ",".join(sorted(map(str, connect.servers))) + connect.chroot

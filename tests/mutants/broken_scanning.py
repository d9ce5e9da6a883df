"""Embedded stores whose scans lose, repeat or invent records."""

from collections.abc import Iterator

from typing_extensions import override

from kip30.driver import Context
from kip30.driver.scanning import Page, Position, Span, View
from kip30_backends.embedded import EmbeddedBackend, EmbeddedSettings
from kip30_backends.embedded.scanning import EmbeddedScanner, _claims


class _Broken(EmbeddedBackend):
    scanner_class: type[EmbeddedScanner]

    @override
    @classmethod
    def scanner(cls, context: Context, settings: EmbeddedSettings, view: View) -> EmbeddedScanner:
        return cls.scanner_class(context, settings, view)


class _SkippingScanner(EmbeddedScanner):
    @override
    def scan(self, span: Span, at: Position) -> Iterator[Page]:
        pages = list(super().scan(span, at))
        yield from pages[:-1]
        yield Page.of(pages[-1].rows[: max(1, span.rows - 1)])


class SkipsCuts(_Broken):
    """Leaves out the key at which a span ends."""

    scanner_class = _SkippingScanner


class _RepeatingScanner(EmbeddedScanner):
    @override
    def plan(self, at: Position, rows: int) -> Iterator[Span]:
        spans = list(super().plan(at, rows))
        yield from (*spans, *spans[-1:])


class RepeatsSpans(_Broken):
    """Plans the last span twice."""

    scanner_class = _RepeatingScanner


class _OnePageScanner(EmbeddedScanner):
    @override
    def scan(self, span: Span, at: Position) -> Iterator[Page]:
        pages = super().scan(span, at)
        yield next(pages)
        pages.close()  # type: ignore[attr-defined]


class ReadsOnePage(_Broken):
    """Takes the first page of a span for all of it."""

    scanner_class = _OnePageScanner


class _NewestScanner(EmbeddedScanner):
    @override
    def scan(self, span: Span, at: Position) -> Iterator[Page]:
        return super().scan(span, self.position())


class ShowsNewest(_Broken):
    """Reads what is there now, at any position."""

    scanner_class = _NewestScanner


class _FirstScanner(EmbeddedScanner):
    first: Position | None = None

    @override
    def position(self) -> Position:
        self.first = self.first or super().position()
        return self.first


class PositionStands(_Broken):
    """Answers the first position for ever."""

    scanner_class = _FirstScanner


class _PrefixScanner(EmbeddedScanner):
    def __init__(self, context: Context, settings: EmbeddedSettings, view: View) -> None:
        super().__init__(context, settings, View(layout=view.layout, scratch=view.scratch))
        self._prefix = view.under.encode()

    @override
    def scan(self, span: Span, at: Position) -> Iterator[Page]:
        for page in super().scan(span, at):
            yield Page.of(row for row in page.rows if row.key.startswith(self._prefix))


class TakesPrefixForNamespace(_Broken):
    """Shows ``ab/k`` in a view of ``a``."""

    scanner_class = _PrefixScanner


class _LenientScanner(EmbeddedScanner):
    @override
    def scan(self, span: Span, at: Position) -> Iterator[Page]:
        return super().scan(span, at._replace(store=self.position().store))


class AcceptsForeignPositions(_Broken):
    """Reads at a position of another store."""

    scanner_class = _LenientScanner


class _LeakingScanner(EmbeddedScanner):
    @override
    def close(self) -> None:
        self._closed = True


class KeepsCopiesOpen(_Broken):
    """Leaves descriptors open when a scan is closed half way."""

    scanner_class = _LeakingScanner


class _MixingScanner(EmbeddedScanner):
    @override
    def scan(self, span: Span, at: Position) -> Iterator[Page]:
        yield from super().scan(span, at)
        with self._reading(at) as copy:
            yield _claims(copy, self._root(copy), b"")


class MixesClaimsIn(_Broken):
    """Shows members and leaders among the values."""

    scanner_class = _MixingScanner

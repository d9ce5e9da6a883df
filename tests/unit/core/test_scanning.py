"""Bulk reading, as all stores share it: pages, their size, and opening a scanner."""

from pathlib import Path

import pytest

from kip30.driver import Context
from kip30.driver.records import Version
from kip30.driver.scanning import Layout, Page, PageSize, Rejected, Row, View, claim_row
from kip30.errors import ConfigError, InvalidNameError, UsageError
from kip30.runtime.resolution import resolve, scanner

MIB = 1024 * 1024


def page(rows: int, size: int) -> Page:
    return Page.of(Row(b"k", b"v" * size, 1, 0, None, None, None) for _ in range(rows))


def test_a_page_is_its_rows() -> None:
    rows = [Row(b"a", b"1", 1, 0, 1, 2, None), Row(b"b", None, 2, 3, None, None, "owner")]
    rejected = [Rejected(b"c", "why")]
    whole = Page.of(rows, rejected)
    assert whole.rows == rows
    assert (list(whole.keys), list(whole.owners)) == ([b"a", b"b"], [None, "owner"])
    assert whole.rejected == rejected


def test_a_page_may_have_rejected_keys_only() -> None:
    empty = Page.of([], [Rejected(b"c", "why")])
    assert empty.rows == []
    assert len(empty.rejected) == 1


def test_pages_of_small_rows_double_up_to_a_limit() -> None:
    size, sizes = PageSize(), list[int]()
    for _ in range(12):
        sizes.append(size.rows)
        size.adapt(page(size.rows, 10))
    assert sizes == [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 5000, 5000]


def test_pages_of_large_rows_have_four_mebibytes() -> None:
    size = PageSize()
    size.adapt(page(8, MIB))
    assert size.rows == 4
    size.adapt(page(4, 16 * MIB))
    assert size.rows == 1
    size.adapt(page(0, 0))
    assert size.rows == 1
    size.adapt(page(1, 0))
    assert size.rows == 2


def test_a_store_may_set_a_lower_limit() -> None:
    size = PageSize(most=10)
    size.adapt(page(8, 1))
    assert size.rows == 10
    assert PageSize(most=5).rows == 5


def test_the_key_of_a_claim_has_escaped_names() -> None:
    row = claim_row("member", "a g", "m/1", data=b"d", version=Version(7, 1), owner="s")
    assert row == Row(b"member/a=20g/m=2F1", b"d", 7, 1, None, None, "s")


def test_a_mistake_in_the_configuration_opens_nothing(tmp_path: Path) -> None:
    config = {"plugin.backend": "embedded", "plugin.embedded.directory": str(tmp_path / "state")}
    with pytest.raises(ConfigError, match=r"plugin\.embedded\.nonsense"):
        scanner({**config, "plugin.embedded.nonsense": "1"})
    assert not (tmp_path / "state").exists()


def test_requests_have_the_time_that_the_caller_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"plugin.backend": "embedded", "plugin.embedded.directory": str(tmp_path)}
    seen: list[tuple[Context, View]] = []
    store = resolve(config).choice.backend
    monkeypatch.setattr(store, "scanner", lambda context, _, view: seen.append((context, view)))
    scanner(config, request_seconds=42.5)
    scanner(config, View(under="n"))
    assert [context.operation_timeout_seconds for context, _ in seen] == [
        42.5,
        resolve(config).context.operation_timeout_seconds,
    ]
    assert [view.under for _, view in seen] == ["", "n"]


@pytest.mark.parametrize("seconds", [0, -1.5, float("inf"), float("nan")])
def test_a_request_needs_time(tmp_path: Path, seconds: float) -> None:
    config = {"plugin.backend": "embedded", "plugin.embedded.directory": str(tmp_path / "state")}
    with pytest.raises(UsageError, match="give more than 0"):
        scanner(config, request_seconds=seconds)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("under", ["n/", "/n", "\ud800"], ids=ascii)
def test_a_view_refuses_an_invalid_namespace_unless_its_layout_is_raw(under: str) -> None:
    with pytest.raises(InvalidNameError):
        View(under=under)
    assert View(layout=Layout.RAW, under=under).under == under

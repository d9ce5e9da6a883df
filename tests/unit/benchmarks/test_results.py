"""The kept results, the page that is made of them, and the subjects that fill them."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import subjects
from benchmarks.report.results import merge, read
from benchmarks.report.tables import fill, parts
from benchmarks.store_address import STORES, StoreAddress

ROOT = Path(__file__).parents[3]
KEPT = ROOT / "benchmarks" / "results.json"
PAGE = ROOT / "docs" / "benchmarks.md"


def test_the_page_shows_the_kept_results() -> None:
    page = PAGE.read_text()
    assert fill(page, parts(read(KEPT))) == page


def test_measuring_a_subject_again_changes_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    results = read(KEPT)
    for one in results:
        merge(file, {}, one)
    merge(file, {}, results[0])
    assert read(file) == results


def test_each_kept_result_is_of_a_subject() -> None:
    assert all(one.subject in subjects.names(one.store) for one in read(KEPT))


@pytest.mark.parametrize("store", STORES)
def test_each_subject_has_a_module(store: str) -> None:
    assert [one for one in subjects.names(store).values() if find_spec(one) is None] == []


@pytest.mark.parametrize("text", ["etcd=127.0.0.1:2379", "embedded=/tmp/a=b"])
def test_an_address_can_be_sent_as_text(text: str) -> None:
    assert str(StoreAddress.parse(text)) == text


def test_the_embedded_store_has_a_directory_for_each_subject(tmp_path: Path) -> None:
    address = StoreAddress("embedded", str(tmp_path))
    with address.fresh() as one, address.fresh() as other:
        assert len({address, one, other}) == 3
    assert list(tmp_path.iterdir()) == []


def test_subjects_share_a_server() -> None:
    address = StoreAddress("etcd", "127.0.0.1:2379")
    with address.fresh() as one:
        assert one == address

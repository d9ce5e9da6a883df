import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30.driver.record_format import OVERHEAD_BYTES, EnvelopeContent, seal, unseal, unseal_all
from kip30.driver.records import new_nonce
from kip30.errors import StoreError

texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.binary(), texts)
def test_a_sealed_record_is_unsealed_unchanged(data: bytes, name: str) -> None:
    nonce = new_nonce()
    assert unseal(seal(nonce, data, name=name), "/k") == EnvelopeContent(nonce, name, data)


def test_overhead() -> None:
    assert len(seal(new_nonce(), b"")) == OVERHEAD_BYTES


@pytest.mark.parametrize("stored", [b"", b"plain text of somebody", seal("00" * 8, b"")[:-1]])
def test_foreign_record_is_refused(stored: bytes) -> None:
    with pytest.raises(StoreError, match="/k holds no record"):
        unseal(stored, "/k")


@given(st.lists(st.binary()))
def test_many_are_unsealed_together(many: list[bytes]) -> None:
    assert unseal_all([seal(new_nonce(), data) for data in many]) == many


@pytest.mark.parametrize(
    "other",
    [
        b"",
        b"\1",
        seal("00" * 8, b"")[:-1],
        b"\2" + seal("00" * 8, b"data")[1:],
        seal("00" * 8, b"data", name="n"),
        seal("00" * 8, b"data", name="n" * 256),
    ],
)
def test_others_are_to_be_unsealed_by_themselves(other: bytes) -> None:
    ours = seal("ff" * 8, b"\0" * OVERHEAD_BYTES)
    assert unseal_all([ours, other]) is None
    assert unseal_all([other, ours]) is None

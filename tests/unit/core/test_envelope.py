import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30.envelope import OVERHEAD_BYTES, Unsealed, seal, unseal
from kip30.errors import StoreError
from kip30.records import new_nonce

texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.binary(), texts)
def test_what_is_sealed_comes_back(data: bytes, name: str) -> None:
    nonce = new_nonce()
    assert unseal(seal(nonce, data, name=name), "/k") == Unsealed(nonce, name, data)


def test_overhead() -> None:
    assert len(seal(new_nonce(), b"")) == OVERHEAD_BYTES


@pytest.mark.parametrize("stored", [b"", b"plain text of somebody", seal("00" * 8, b"")[:-1]])
def test_foreign_record_is_refused(stored: bytes) -> None:
    with pytest.raises(StoreError, match="/k holds no record"):
        unseal(stored, "/k")

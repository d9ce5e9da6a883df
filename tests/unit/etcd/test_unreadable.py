"""Records of other programs in etcd."""

import pytest

from tests.unit.clients import PATIENT, Open
from tests.unit.unreadable import (
    Case,
    cases,
    expect_good_ones_beside_bad,
    expect_named_and_left_out,
    expect_no_claim_in_their_place,
    kind_of,
)

from .admin import Admin


@pytest.mark.parametrize("case", cases("%2F.."), ids=kind_of)
def test_unreadable_records_are_named_and_left_out(
    open_client: Open,
    namespace: str,
    admin: Admin,
    caplog: pytest.LogCaptureFixture,
    case: Case,
) -> None:
    client = open_client(**PATIENT)
    expect_named_and_left_out(client, admin, f"/{namespace}", case, caplog)


def test_good_records_beside_bad_ones(open_client: Open, namespace: str, admin: Admin) -> None:
    expect_good_ones_beside_bad(open_client(**PATIENT), admin, f"/{namespace}")


def test_a_foreign_record_where_one_is_claimed(
    open_client: Open, namespace: str, admin: Admin
) -> None:
    expect_no_claim_in_their_place(open_client(**PATIENT), admin, f"/{namespace}")

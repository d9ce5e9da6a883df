"""Many records, large ones, and such as kip30 did not write; and the sessions of their members."""

from contextlib import suppress

import pytest

from kip30 import Member, OutcomeUnknownError, UnavailableError
from kip30_conformance.polling import eventually
from tests.unit.clients import Open
from tests.unit.stores.records import LARGE, RecordCases


class TestRecords(RecordCases):
    names = 30_000
    members = 60  # more than ten megabytes
    member_bytes = LARGE
    before_namespace = "/"


@pytest.mark.parametrize(("asked_ms", "granted"), [(100, 2.0), (2000, 2.0), (2001, 3.0)])
def test_leases_are_whole_seconds_and_two_at_least(
    open_client: Open, asked_ms: int, granted: float
) -> None:
    client = open_client(
        **{"plugin.session.timeout.ms": asked_ms, "plugin.operation.timeout.ms": 100}
    )
    group = client.group_membership("g")

    def joined() -> Member | None:
        # A tenth of a second is too short for a request to a busy server.
        with suppress(UnavailableError, OutcomeUnknownError):
            return group.join("m", "")
        return None

    assert eventually(joined).timeout_seconds == granted
    assert client.backend.describe()["session timeout"] == f"{granted:g} s"

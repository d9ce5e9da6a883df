"""A server whose space quota is exceeded by transactions that it has accepted already.

etcd checks the quota before it accepts a transaction, and again when it applies it: then it does
the transaction and still answers "database space exceeded".
"""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from kip30 import Kip30Error, OutcomeUnknownError, PluginLocator, StoreError
from kip30.driver.records import Condition, Write, new_nonce
from kip30.names import Key
from kip30_conformance.polling import eventually
from kip30_conformance.servers import start
from tests.unit.clients import PATIENT

_QUOTA_BYTES = 16 * 1024 * 1024
_CALLS = 192
"""Together they write three times the quota."""
_DATA = "x" * 256 * 1024
_NAMES = [str(number) for number in range(_CALLS)]


_ATTEMPTS = 5


@contextmanager
def client_of_small_server(folder: Path) -> Generator[PluginLocator]:
    """Yield a client of a server with little space."""
    # It commits after each transaction, so the ones that it has accepted queue, and use space up.
    quota = [f"--quota-backend-bytes={_QUOTA_BYTES}", "--backend-batch-limit=1"]
    with (
        start("etcd", folder=folder, extra=quota) as servers,
        PluginLocator().startup({**servers.settings(), **PATIENT}) as client,
    ):
        yield client


def errors_of_done_writes(client: PluginLocator) -> list[BaseException]:
    """Write until the quota is exceeded; return the errors of writes that were done."""
    data = _DATA.encode()
    writes = [Write(Key("n", name), new_nonce(), data, Condition.ABSENT) for name in _NAMES]
    errors = [future.exception() for future in client.backend.storage.write_many(writes)]
    failed = {str(one.key): error for one, error in zip(writes, errors, strict=True) if error}
    return [failed[key] for key in client.storage().list("n") if key in failed]


def test_a_write_that_exceeds_the_quota_may_have_been_done(tmp_path: Path) -> None:
    errors = list[BaseException]()
    for attempt in range(_ATTEMPTS):  # a server that is slow to accept may apply each one at once
        if not errors:
            with client_of_small_server(tmp_path / str(attempt)) as client:
                errors = errors_of_done_writes(client)
    assert errors, "no transaction was accepted before the quota was exceeded"
    assert all(isinstance(error, OutcomeUnknownError) for error in errors)
    assert "compact and defragment" in str(errors[0])


def test_no_member_that_exceeds_the_quota_stays_without_a_handle(tmp_path: Path) -> None:
    with client_of_small_server(tmp_path / "server") as client:
        _expect_only_members_with_a_handle(client)


def _expect_only_members_with_a_handle(client: PluginLocator) -> None:
    group = client.group_membership("g")

    def join(name: str) -> Kip30Error | None:
        try:
            group.join(name, _DATA)
        except Kip30Error as error:
            return error
        return None

    with ThreadPoolExecutor(64) as threads:
        errors = list(threads.map(join, _NAMES))
    joined = {name for name, error in zip(_NAMES, errors, strict=True) if error is None}
    assert len(joined) < _CALLS
    eventually(lambda: set(group.membership()) == joined, what="only members with a handle")
    # No claim is in doubt, and members can leave.
    with pytest.raises(StoreError, match="nothing is held"):
        group.join("later", _DATA)
    with pytest.raises(StoreError, match="nothing is held"):
        client.leader_election("s").nominate("c", _DATA)
    group.leave(min(joined))
    assert set(group.membership()) == joined - {min(joined)}

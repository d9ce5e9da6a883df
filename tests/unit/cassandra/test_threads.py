"""A system that has no thread to spare, but those that the driver asks for while it is open."""

import threading

import pytest

from kip30 import ClosedError, UnavailableError
from kip30_conformance.polling import eventually
from tests.unit.clients import Open, timeouts
from tests.unit.threads import no_threads

from .admin import Admin
from .conftest import is_set


def test_nothing_is_opened(open_client: Open) -> None:
    before = threading.active_count()
    with no_threads(), pytest.raises(UnavailableError, match="no thread to spare"):
        open_client()
    eventually(lambda: threading.active_count() <= before, what="none was left over")
    assert open_client().storage().put("k", "v")


def test_tables_are_created_again_once_a_thread_can_start(open_client: Open, admin: Admin) -> None:
    # No answer comes without a thread: until then two writes wait as long as this.
    client = open_client(**timeouts(1.5), **{"plugin.cassandra.keyspace": "threads"})
    client.storage().put("k", "old")
    admin.tell("DROP KEYSPACE threads")
    with no_threads("kip30"):
        for _ in range(2):
            assert not is_set(client)
    eventually(lambda: is_set(client), what="it can be written again")


def test_all_is_closed(open_client: Open) -> None:
    before = threading.active_count()
    client = open_client()
    with no_threads("kip30"):
        client.close()
    eventually(lambda: threading.active_count() <= before, what="all threads have ended")
    with pytest.raises(ClosedError):
        client.storage()

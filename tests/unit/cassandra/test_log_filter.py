"""The log records that a program sees without a logging setup, or with a simple one."""

import logging
from collections import Counter
from collections.abc import Iterator

import pytest
from typing_extensions import override

from kip30 import PluginLocator, UnavailableError
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Link
from tests.unit.clients import Open

DRIVER = "cassandra.pool"
RECONNECTION = "Error attempting to reconnect"


class Attempts(logging.Filter):
    """Counts the driver's failures to reconnect, before any other filter drops their records."""

    count = 0

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        self.count += str(record.msg).startswith(RECONNECTION)
        return True


@pytest.fixture
def attempts() -> Iterator[Attempts]:
    logger, seen = logging.getLogger(DRIVER), Attempts()
    logger.addFilter(seen)
    yield seen
    logger.removeFilter(seen)


def test_an_unreachable_node_is_logged_once(
    link: Link, attempts: Attempts, open_client: Open, caplog: pytest.LogCaptureFixture
) -> None:
    client = open_client(**link.settings())
    client.storage().put("k", "v")
    link.refuse()
    eventually(lambda: attempts.count >= 5, what="attempts to reconnect")
    records = [one for one in caplog.records if one.name.startswith("cassandra")]
    link.heal()
    heard = Counter(record.msg for record in records)
    assert sum(str(text).startswith(RECONNECTION) for text in heard.elements()) == 1
    assert set(heard.values()) == {1}
    eventually(lambda: client.storage().get("k"), what="it goes on")


def test_a_log_for_debugging_has_all_of_it(
    link: Link, attempts: Attempts, open_client: Open, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, DRIVER):
        open_client(**link.settings())
        link.refuse()
        eventually(lambda: attempts.count >= 3, what="attempts to reconnect")
        count = attempts.count

        def heard() -> int:
            return sum(str(record.msg).startswith(RECONNECTION) for record in caplog.records)

        eventually(lambda: heard() >= count, what="all of them are in the log")


def test_close_removes_the_log_filter(open_client: Open) -> None:
    logger = logging.getLogger(DRIVER)
    before = list(logger.filters)
    client = open_client()
    assert len(logger.filters) == len(before) + 1
    client.close()
    assert logger.filters == before


def test_a_failed_start_is_raised_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    nowhere = {"plugin.backend": "cassandra", "plugin.cassandra.contact.points": "127.0.0.1:1"}
    with pytest.raises(UnavailableError, match="Connection refused"):
        PluginLocator().startup(nowhere)
    assert [one.msg for one in caplog.records if one.levelno >= logging.WARNING] == []

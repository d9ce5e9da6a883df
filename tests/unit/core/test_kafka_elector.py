import logging
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager

import pytest

from kip30 import Leadership, NotElectedError, PluginLocator
from kip30.codecs import BYTES
from kip30.kafka_elector import NOBODY, LeaderElectorAdapter
from kip30_conformance.polling import eventually

from .conftest import OpenClient

pytestmark = pytest.mark.virtual_time


def make(client: PluginLocator, broker_id: int, calls: list[str]) -> LeaderElectorAdapter:
    return LeaderElectorAdapter(
        lambda: calls.append(f"{broker_id} leads"),
        lambda: calls.append(f"{broker_id} resigns"),
        broker_id,
        client.leader_election("controller"),
    )


def test_the_leadership_is_that_of_the_term_announced_last(open_client: OpenClient) -> None:
    one, other = open_client(), open_client().leader_election("controller")
    terms: list[Leadership] = []
    adapter = LeaderElectorAdapter(
        lambda: terms.append(adapter.leadership), lambda: None, 1, one.leader_election("controller")
    )
    with pytest.raises(NotElectedError, match="broker 1"):
        _ = adapter.leadership
    with adapter:
        eventually(lambda: terms)
        assert (terms[0].candidate, terms[0].is_valid()) == ("1", True)
        adapter.resign()
        assert adapter.leadership is terms[0]
        assert not adapter.leadership.is_valid()
        with other.lead("other", "") as between:
            adapter.elect()
        eventually(lambda: len(terms) == 2)
        assert adapter.leadership is terms[1]
        assert terms[0].epoch < between.epoch < terms[1].epoch


@pytest.mark.parametrize(
    ("record", "broker"),
    [
        ('{"brokerid": 7}', 7),
        ('{"version": 1, "brokerid": "7", "timestamp": "1"}', 7),
        ('{"version": 1, "brokerid": 0, "timestamp": 1}', 0),
    ],
)
def test_the_broker_id_is_read_as_number_and_as_text(
    client: PluginLocator, caplog: pytest.LogCaptureFixture, record: str, broker: int
) -> None:
    with observing(client) as adapter, led_by_stranger(client, record.encode()):
        eventually(lambda: adapter.leader_id == broker)
    assert "names no broker" not in caplog.text


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"not JSON",
        b"[1]",
        b"7",
        b"{}",
        b'{"brokerid": null}',
        b'{"brokerid": true}',
        b'{"brokerid": 7.5}',
        b'{"brokerid": -1}',
        b'{"brokerid": "-1"}',
        b'{"brokerid": " 7"}',
        b'{"brokerid": "' + "\u0667".encode() + b'"}',
        b'{"brokerid": "' + b"7" * 5000 + b'"}',
        b"[" * 50_000,
    ],
    ids=lambda record: repr(record[:20]),
)
def test_a_foreign_record_is_logged_and_names_no_broker(
    client: PluginLocator, caplog: pytest.LogCaptureFixture, record: bytes
) -> None:
    lines = expect_nobody(client, caplog, record)
    assert len(lines) == 1
    assert "names no broker" in lines[0]
    assert len(lines[0]) < 250


def test_an_undecodable_record_is_logged_and_names_no_broker(
    client: PluginLocator, caplog: pytest.LogCaptureFixture
) -> None:
    lines = expect_nobody(client, caplog, b"\xff")
    assert len(lines) == 1
    assert "cannot decode" in lines[0]


def expect_nobody(
    client: PluginLocator, caplog: pytest.LogCaptureFixture, record: bytes
) -> list[str]:
    """Let a broker, a stranger with *record* and a broker lead; return what is logged of it."""
    with observing(client) as adapter:
        with led_by_stranger(client, b'{"brokerid": 7}'):
            eventually(lambda: adapter.leader_id == 7)
        with led_by_stranger(client, record):
            eventually(lambda: warnings_of_stranger(caplog))
            eventually(lambda: adapter.leader_id == NOBODY)
        with led_by_stranger(client, b'{"brokerid": 8}'):
            eventually(lambda: adapter.leader_id == 8)
    assert "raised" not in caplog.text
    return warnings_of_stranger(caplog)


def warnings_of_stranger(caplog: pytest.LogCaptureFixture) -> list[str]:
    warnings = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    return [text for text in warnings if "'stranger'" in text]


@contextmanager
def observing(client: PluginLocator) -> Generator[LeaderElectorAdapter]:
    """Yield an adapter that has resigned, and has heard that no broker leads."""
    with make(client, 1, []) as adapter:
        eventually(lambda: adapter.leader_id == 1)
        adapter.resign()
        eventually(lambda: adapter.leader_id == NOBODY)
        yield adapter


def led_by_stranger(client: PluginLocator, record: bytes) -> AbstractContextManager[Leadership]:
    """Lead as a candidate that is no adapter, with *record*."""
    return client.leader_election("controller", BYTES).lead("stranger", record)

"""Messages of the suite when an expectation fails."""

import logging
import os
import threading

import pytest

from kip30_conformance import polling
from kip30_conformance.process_resources import expect_no_more_than, resources_held


def test_leaked_threads_and_descriptors_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIP30_TIME_SCALE", "0.01")
    before, end = resources_held(), threading.Event()
    thread = threading.Thread(target=end.wait, name="lost-thread")
    thread.start()
    reading, writing = os.pipe()
    try:
        with pytest.raises(AssertionError) as raised:
            expect_no_more_than(before)
    finally:
        end.set()
        thread.join()
        os.close(reading)
        os.close(writing)
    wanted = len(before.descriptors)
    assert "thread 'lost-thread': 1 instead of 0" in str(raised.value)
    assert f"{wanted + 2} descriptors instead of {wanted}, among them" in str(raised.value)
    assert f"{reading} (pipe:[" in str(raised.value)
    expect_no_more_than(before)


def test_another_descriptor_is_not_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIP30_TIME_SCALE", "0.01")
    old = os.open(os.devnull, os.O_RDONLY)
    before = resources_held()
    new = os.open("/", os.O_RDONLY)
    os.close(old)
    try:
        expect_no_more_than(before)
    finally:
        os.close(new)


def test_a_wait_in_vain_ends_with_what_was_logged_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KIP30_TIME_SCALE", "0.01")
    campaign, other = logging.getLogger("kip30.runtime.campaign"), logging.getLogger("kazoo")
    before = list(logging.getLogger().handlers)
    campaign.warning("before the wait")

    def nobody_leads() -> None:
        campaign.info("retrying campaign for %r after: %s", "s", "no rights")
        other.warning("noise")

    with pytest.raises(AssertionError) as raised:
        polling.eventually(nobody_leads, within=1, what="one leads")
    assert str(raised.value) == (
        "not within 1 s: one leads: None; last logged by kip30.runtime.campaign:"
        " retrying campaign for 's' after: no rights"
    )
    with pytest.raises(AssertionError, match=r"one leads: None$"):
        polling.eventually(lambda: None, within=1, what="one leads")
    assert logging.getLogger().handlers == before

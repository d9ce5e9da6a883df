"""Reasons of ended terms and failed calls: the cause is named where it is met, and logged once."""

import logging
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from kip30 import PluginLocator, SessionLost
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually, time_scale
from tests.unit.clients import PATIENT
from tests.unit.stores.descriptor_limit import expect_named_limit

# Opens a store, uses up all descriptors, and prints the error of a write of a new thread, which
# needs a connection of its own.
WITHOUT_DESCRIPTORS = """
import os, resource, sys
from concurrent.futures import ThreadPoolExecutor
from kip30 import PluginLocator

with PluginLocator().startup(eval(sys.argv[1])) as locator:
    storage = locator.storage()
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    with ThreadPoolExecutor() as pool:
        print(pool.submit(storage.set, "a/b", "1").exception())
    for one in held:
        os.close(one)
"""


def settings(folder: Path) -> dict[str, str]:
    return {
        "plugin.backend": "embedded",
        "plugin.embedded.directory": str(folder / "store"),
        "plugin.session.timeout.ms": str(round(1000 * time_scale())),
    }


@pytest.mark.medium
def test_the_reason_of_a_lost_session_is_reported_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="kip30")
    lost = Recorder[SessionLost]()
    with PluginLocator().startup(settings(tmp_path)) as locator:
        locator.add_session_listener(lost)
        assert locator.leader_election("s").nominate("n", "")
        with closing(sqlite3.connect(tmp_path / "store" / "kip30.db")) as other:
            other.execute("BEGIN EXCLUSIVE")
            eventually(lambda: lost.events, within=60, what="the session is lost")
    cause = "kip30.db stayed locked by another program"
    assert cause in lost.events[0].reason
    warnings = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert [one for one in warnings if cause in one] == [f"session lost: {lost.events[0].reason}"]
    (session,) = [one for one in caplog.records if one.name == "kip30.sessions"]
    assert cause in vars(session)["kip30_renewal_error"]
    terms = [one.getMessage() for one in caplog.records if one.name == "kip30.terms"]
    assert terms == [
        "'n' leads 's', epoch 1",
        f"'n' no longer leads 's', epoch 1: {lost.events[0].reason}",
    ]


@pytest.mark.medium
def test_a_lack_of_descriptors_is_named(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT_DESCRIPTORS, repr(settings(tmp_path))],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "too few file descriptors left of its 64: raise `ulimit -n`" in told.stdout


@pytest.mark.medium
def test_a_store_that_is_opened_without_descriptors_names_that(tmp_path: Path) -> None:
    expect_named_limit({**settings(tmp_path), **PATIENT})

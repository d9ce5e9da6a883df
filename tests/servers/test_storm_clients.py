"""The clients of a storm: one that dies is replaced, and one that was told to close is not."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble
from kip30_conformance.servers.needing import needed
from kip30_conformance.storm.client_faults import Expired
from kip30_conformance.storm.clients import Clients
from kip30_conformance.storm.final_state import prepare
from kip30_conformance.storm.timing import Timing


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[Clients]:
    for name in ("history", "journals", "terms", "directed-terms", "work"):
        (tmp_path / name).mkdir()
    with needed("etcd") as ensemble:
        yield from _running(ensemble, tmp_path)


def _running(ensemble: Ensemble, folder: Path) -> Iterator[Clients]:
    timing = Timing()
    settings = {"plugin.namespace": "clients", **timing.properties()}
    prepare({**ensemble.settings(), **settings}, folder / "history")
    clients = Clients([ensemble.link() for _ in range(2)], folder, settings, timing)
    eventually(lambda: clients.have_said("running"), within=30, what="they run")
    yield clients
    clients.end()


def test_one_that_dies_is_replaced(clients: Clients) -> None:
    first = clients.processes[0]
    pid = first.pid
    assert first._process is not None
    first._process.kill()
    first._process.wait()
    clients.look()
    assert first.pid != pid
    assert clients.deaths() == ["c0.1 ended with -9"]


def test_a_session_that_was_ended_without_an_answer_is_recorded(clients: Clients) -> None:
    """Its holder cannot know of the end: the store may have ended it all the same."""
    client = clients.processes[0]
    eventually(lambda: any(row["what"] == "joined" for row in client.journal()), within=30)
    client.link.swallow_answers()
    client.tell("expire")
    rows = eventually(
        lambda: [row for row in client.journal() if row["what"] == "expired"], within=30
    )
    client.link.heal()
    assert [row["error"] for row in rows] != [""]


def test_the_end_of_an_earlier_session_is_no_evidence(clients: Clients) -> None:
    scene: Any = SimpleNamespace(clients=clients)
    first, second = (Expired(scene, Random(1)) for _ in range(2))  # noqa: S311  the same client
    client = first.client
    eventually(lambda: any(row["what"] == "joined" for row in client.journal()), within=30)
    first.begin()
    eventually(lambda: any(row["what"] == "expired" for row in client.journal()), within=30)
    first.end()
    client.stop()
    second.begin()
    second.end()
    client.resume()
    assert first.evidence.startswith("expired")
    assert second.evidence == ""


def test_a_client_that_was_asked_to_close_is_not_replaced(clients: Clients) -> None:
    """It ends before the other one does: no new process may write when all is judged."""
    first = clients.processes[0]
    first.tell("quiet")
    eventually(lambda: first.has_said("quiet"), within=30, what="it writes no more")
    first.tell("close")
    assert first._process is not None
    first._process.wait(60)
    clients.look()
    assert first.has_said("over")
    assert (len(first.pids), clients.deaths()) == (1, [])

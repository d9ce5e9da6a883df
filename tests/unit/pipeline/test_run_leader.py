"""One driver for a run: refused, superseded, and fenced."""

from pathlib import Path

import pytest

from kip30 import (
    Fence,
    NotElectedError,
    PluginLocator,
    UnavailableError,
    UnsupportedError,
)
from kip30.driver import Capability
from kip30.driver.scanning import View
from kip30.pipeline.stores.config import StoreConfig
from kip30.pipeline.stores.identity import identity_of
from kip30.pipeline.write.applier import Applier, NewRecord, WriteOutcome
from kip30.pipeline.write.run_leader import RunLeader, drive, service_of
from kip30.runtime.resolution import scanner
from kip30_conformance.polling import eventually
from tests.unit.core.trouble import faults

from .conftest import OpenClient


def test_the_driver_has_a_fence(client: PluginLocator) -> None:
    election = client.leader_election(service_of("r"))
    with RunLeader(client, "r") as driver:
        fence = driver.fence()
        leader = election.get_leader()
        assert leader is not None
        assert fence == Fence("pipeline/r", leader.epoch)
        assert driver.fence() == fence
    assert election.get_leader() is None


@pytest.mark.case("P08")
def test_a_second_driver_is_refused(client: PluginLocator, open_client: OpenClient) -> None:
    other = open_client()
    with RunLeader(client, "r") as first, RunLeader(other, "another") as another:
        first.fence()
        another.fence()
        for place in (client, other):
            with (
                RunLeader(place, "r") as second,
                pytest.raises(NotElectedError, match=r"run 'r' is driven by process .*, epoch 1"),
            ):
                second.fence(timeout_seconds=0)
    with RunLeader(other, "r") as third:
        assert third.fence().epoch == 2


def test_a_successor_waits_until_the_driver_is_gone(
    client: PluginLocator, open_client: OpenClient
) -> None:
    with RunLeader(client, "r") as first, RunLeader(open_client(), "r") as second:
        epoch = first.fence().epoch
        first.close()
        assert second.fence().epoch > epoch


def test_a_lost_term_is_followed_by_another_one(client: PluginLocator) -> None:
    with RunLeader(client, "r") as driver:
        fence = driver.fence()
        faults(client).expire_session()
        eventually(lambda: driver.fence() != fence, what="another term has begun")
        outcomes = [
            Applier(client.backend, "r", seconds=10, fence=one).create([NewRecord("k", b"", "1")])
            for one in (fence, driver.fence())
        ]
        assert [one.outcome for (one,) in outcomes] == [WriteOutcome.FENCED, WriteOutcome.WRITTEN]


def test_a_late_write_of_a_term_that_was_ended_is_refused(client: PluginLocator) -> None:
    with RunLeader(client, "r") as driver:
        with pytest.raises(UnavailableError), driver.writing() as fence:
            raise UnavailableError("no answer")
        following = driver.fence()
        assert following.epoch > fence.epoch
        outcomes = [
            Applier(client.backend, "r", seconds=10, fence=one).create([NewRecord("k", b"", "1")])
            for one in (fence, following)
        ]
        assert [one.outcome for (one,) in outcomes] == [WriteOutcome.FENCED, WriteOutcome.WRITTEN]


def test_a_term_is_ended_while_no_answer_comes(client: PluginLocator) -> None:
    with RunLeader(client, "r") as driver:
        faults(client).lose_answers("election.release", times=2)
        with pytest.raises(UnavailableError), driver.writing() as fence:
            raise UnavailableError("no answer")
        assert driver.fence().epoch > fence.epoch


def test_a_term_goes_on_after_writes_that_were_answered(client: PluginLocator) -> None:
    with RunLeader(client, "r") as driver:
        with driver.writing() as fence:
            pass
        assert driver.fence() == fence


def test_a_store_without_fences_is_refused(
    client: PluginLocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.backend, "capabilities", frozenset[Capability]())
    with pytest.raises(UnsupportedError, match="fencing"):
        RunLeader(client, "r")


def test_a_driver_leaves_no_key_at_its_target(tmp_path: Path) -> None:
    """Also if programs note their terms there: a diff would find it, and no repair remove it."""
    file = tmp_path / "target.properties"
    lines = ("plugin.backend = embedded", "plugin.operations = true", "plugin.priority = 5")
    file.write_text("\n".join([*lines, f"plugin.embedded.directory = {tmp_path / 'state'}"]))
    target = StoreConfig.of_file(file)
    with drive(target, "r", identity_of(target)) as driver:
        assert driver.fence() == Fence(service_of("r"), 1)
    with scanner(file, View()) as store:
        at = store.position()
        assert [page for span in store.plan(at, 10) for page in store.scan(span, at)] == []

"""One driver for a run: refused, superseded, and fenced."""

import pytest

from kip30 import Fence, LeadershipLostError, NotElectedError, PluginLocator, UnsupportedError
from kip30.driver import Capability
from kip30.pipeline.applier import Applier, Outcome, Record
from kip30.pipeline.run_lock import drive_run, service_of
from tests.unit.core.trouble import faults

from .conftest import OpenClient


def test_the_driver_has_a_fence(client: PluginLocator) -> None:
    with drive_run(client, "r") as lock:
        leader = client.leader_election(service_of("r")).get_leader()
        assert leader is not None
        assert lock.fence == Fence("pipeline/r", leader.epoch)
        assert not lock.is_lost()
        lock.check()
    assert lock.is_lost()
    assert client.leader_election(service_of("r")).get_leader() is None


@pytest.mark.case("P08")
def test_a_second_driver_is_refused(client: PluginLocator, open_client: OpenClient) -> None:
    other = open_client()
    with drive_run(client, "r"), drive_run(other, "another"):
        with pytest.raises(NotElectedError, match=r"run 'r' is driven by process .*, epoch 1"):
            drive_run(other, "r").__enter__()
        with pytest.raises(NotElectedError, match="'r'"):
            drive_run(client, "r").__enter__()
    with drive_run(other, "r") as lock:
        assert lock.fence.epoch == 2


def test_the_error_of_the_block_is_passed_on(client: PluginLocator) -> None:
    with pytest.raises(NotElectedError, match="mine"), drive_run(client, "r"):
        raise NotElectedError("mine")


def test_a_lost_right_is_known(client: PluginLocator) -> None:
    with drive_run(client, "r") as lock:
        faults(client).expire_session()
        assert lock.leadership.lost.wait(30)
        assert lock.is_lost()
        with pytest.raises(LeadershipLostError):
            lock.check()
        applied = Applier(client.backend, "r", seconds=10, fence=lock.fence).create(
            [Record("k", b"", "1")]
        )
        assert [one.outcome for one in applied] == [Outcome.FENCED]


def test_a_store_without_fences_is_refused(
    client: PluginLocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.backend, "capabilities", frozenset[Capability]())
    with pytest.raises(UnsupportedError, match="fencing"):
        drive_run(client, "r").__enter__()

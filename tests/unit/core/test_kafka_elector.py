import json

from kip30 import PluginLocator
from kip30.kafka_elector import NOBODY, LeaderElectorAdapter
from kip30_conformance.polling import eventually

from .conftest import OpenClient
from .trouble import faults


def make(client: PluginLocator, broker_id: int, calls: list[str]) -> LeaderElectorAdapter:
    return LeaderElectorAdapter(
        lambda: calls.append(f"{broker_id} leads"),
        lambda: calls.append(f"{broker_id} resigns"),
        broker_id,
        client.leader_election("controller"),
    )


def test_leadership_goes_from_broker_to_broker(open_client: OpenClient) -> None:
    calls: list[str] = []
    one, two = make(open_client(), 1, calls), make(open_client(), 2, calls)
    with one, two:
        eventually(lambda: calls == ["1 leads"])
        eventually(lambda: (one.leader_id, two.leader_id) == (1, 1))
        assert one.am_i_leader()
        assert not two.elect()
        one.resign()
        eventually(lambda: calls == ["1 leads", "1 resigns", "2 leads"])
        assert two.am_i_leader()
        assert not one.elect()
    assert [call for call in calls if call.startswith("2")] == ["2 leads", "2 resigns"]
    assert calls.count("1 leads") == calls.count("1 resigns")


def test_the_record_is_that_of_kafkas_controller(client: PluginLocator) -> None:
    with make(client, 7, []) as adapter:
        eventually(adapter.am_i_leader)
        leader = client.leader_election("controller").get_leader()
        assert leader is not None
        record = json.loads(leader.data)
        assert (record["version"], record["brokerid"]) == (1, 7)
        assert record["timestamp"].isdecimal()


def test_a_new_term_of_the_same_broker_is_a_resignation_and_a_start(client: PluginLocator) -> None:
    calls: list[str] = []
    with make(client, 1, calls):
        eventually(lambda: calls == ["1 leads"])
        faults(client).expire_session()
        eventually(lambda: calls == ["1 leads", "1 resigns", "1 leads"])


def test_nobody_leads_after_the_last_one_closes(open_client: OpenClient) -> None:
    watcher = make(open_client(), 1, [])
    watcher.startup()
    watcher.resign()
    eventually(lambda: watcher.leader_id == NOBODY)
    watcher.resign()
    watcher.close()

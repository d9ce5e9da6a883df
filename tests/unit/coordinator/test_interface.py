"""The interface is KIP-795's, method by method."""

from kip30.coordinator.interface import Coordinator, MemberState


def test_all_but_on_leave_prepare_is_abstract() -> None:
    assert Coordinator.__abstractmethods__ == {
        "protocol_type",
        "metadata",
        "on_join_prepare",
        "perform_assignment",
        "on_join_complete",
        "close",
    }


def test_the_states_are_those_of_kafka_s_clients() -> None:
    assert [state.name for state in MemberState] == [
        "UNJOINED",
        "PREPARING_REBALANCE",
        "COMPLETING_REBALANCE",
        "STABLE",
    ]

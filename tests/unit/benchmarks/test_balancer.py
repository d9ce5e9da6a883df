"""What the measurement of failovers behind a balancer counts."""

from benchmarks.balancer.failovers import late_writes
from benchmarks.balancer.haproxy import state_change
from benchmarks.balancer.machines import Answer
from kip30.driver.records import Version


def answer(epoch: int, version: int | None, arrived: float = 0.0) -> Answer:
    if version is None:
        return Answer(epoch, 409, None, arrived)
    return Answer(epoch, 200, Version(version), arrived)


def test_a_write_after_one_of_a_newer_epoch_is_late_whenever_its_request_arrived() -> None:
    late = answer(1, 12, arrived=5.0)
    written = [answer(2, 11, arrived=9.0), late, answer(1, 10), answer(2, 13), answer(1, None)]
    assert late_writes(written) == [late]
    assert late_writes([one for one in written if one is not late]) == []


def test_states_of_servers_are_read_from_the_output_of_haproxy() -> None:
    up = "[WARNING]  (7) : Server reports/n1 is UP, reason: Layer7 check passed, code: 200"
    down = "[WARNING]  (7) : Server reports/n2 is DOWN, reason: Layer4 connection problem"
    assert [state_change(line, 5.0) for line in (up, down)] == [
        ("n1", True, 5.0),
        ("n2", False, 5.0),
    ]
    assert state_change("[ALERT]    (7) : backend 'reports' has no server available!", 5.0) is None

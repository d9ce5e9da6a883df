"""Reads that travel together and yet are answered each for itself."""

import pytest

from kip30 import UnavailableError
from kip30_backends.consul import ConsulBackend
from kip30_backends.consul.calls import Read, _read
from tests.unit.clients import Open


@pytest.mark.parametrize("place", [0, 5, 9])
def test_a_read_whose_time_is_up_takes_none_from_the_others(open_client: Open, place: int) -> None:
    backend = open_client().backend
    assert isinstance(backend, ConsulBackend)
    calls = backend._resources.calls
    seconds = [0.0 if number == place else calls.seconds for number in range(10)]
    reads = [Read(calls._batches, calls.requests(left), f"batch/{left}") for left in seconds]
    assert all(read._unsent.acquire(blocking=False) for read in reads)
    _read(reads)
    late = reads.pop(place)
    assert type(late.exception()) is UnavailableError
    assert [read.result() for read in reads] == [[None]] * 9

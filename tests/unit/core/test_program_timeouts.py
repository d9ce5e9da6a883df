"""A signal handler that raises `TimeoutError` while a call waits for the store."""

import signal
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from kip30 import OutcomeUnknownError, PluginLocator, UnavailableError

from .trouble import faults

SOON = 0.05
CALLS: dict[str, Callable[[PluginLocator], object]] = {
    "storage.read": lambda client: client.storage().get("k"),
    "storage.write": lambda client: client.storage().put("k", "v"),
}
NO_ANSWER = {"storage.read": UnavailableError, "storage.write": OutcomeUnknownError}


class AlarmError(TimeoutError):
    """Error that the program raises."""


@pytest.fixture
def set_alarm() -> Iterator[Callable[[], object]]:
    def ring(_number: int, _frame: FrameType | None) -> None:
        raise AlarmError

    before = signal.signal(signal.SIGALRM, ring)
    yield lambda: signal.setitimer(signal.ITIMER_REAL, SOON)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("operation", CALLS)
def test_it_is_not_taken_for_a_store_that_does_not_answer(
    client: PluginLocator, set_alarm: Callable[[], object], operation: str
) -> None:
    faults(client).delay(operation, 1_000)
    set_alarm()
    with pytest.raises(AlarmError):
        CALLS[operation](client)


@pytest.mark.parametrize("operation", CALLS)
def test_a_store_that_does_not_answer_is_named(client: PluginLocator, operation: str) -> None:
    faults(client).delay(operation, 1_000)
    with pytest.raises(NO_ANSWER[operation]):
        CALLS[operation](client)

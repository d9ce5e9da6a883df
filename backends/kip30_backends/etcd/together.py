"""Many writes in few transactions, each of which is done or refused on its own.

Creations by one fence, or by none, travel as one flat transaction: if all keys are absent, it puts
them, else it says which are there. Those are refused, and the others follow in a second one. Other
writes travel as a transaction of transactions, which costs client and server several times as much.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial

from kip30.driver.kit.following import whatever
from kip30.driver.kit.futures import Completed, fail, succeed
from kip30.driver.records import Condition, Fence, Version
from kip30.errors import DefiniteError, KeyMissingError
from kip30_backends.etcd import requests
from kip30_backends.etcd.call import Ask
from kip30_backends.etcd.calls import Calls
from kip30_backends.etcd.channel import TXN
from kip30_backends.etcd.messages import TxnAnswer, only
from kip30_backends.etcd.orders import Mark
from kip30_backends.etcd.places import Place

_MOST = 100
"""How many writes in one transaction: what nested ones do counts against the same limit of 128."""

_MOST_BYTES = 1024 * 1024

_LEAST_SECONDS = 0.001

_Outcomes = list[Version | Exception]
_Alike = tuple[Fence | None] | None


def write_together(calls: Calls, places: Sequence[Place]) -> list[Future[Version]]:
    """Send all writes now, and return their answers in the order of *places*."""
    answers: dict[int, Future[Version]] = {}
    for alike, numbers in _by_kind(places).items():
        for part in _parts(places, numbers):
            writes = [places[number] for number in part]
            done = _nested(calls, writes) if alike is None else _created(calls, writes)
            answers |= zip(part, _each(done, len(part)), strict=True)
    return [answers[number] for number in range(len(places))]


def _by_kind(places: Sequence[Place]) -> dict[_Alike, list[int]]:
    """Return the numbers of all creations by fence, and of all other writes under None."""
    kinds = defaultdict[_Alike, list[int]](list)
    for number, place in enumerate(places):
        write = place.write
        creates = write.condition is Condition.ABSENT and write.data is not None
        kinds[(write.fence,) if creates else None].append(number)
    return kinds


def _parts(places: Sequence[Place], numbers: Sequence[int]) -> Iterator[list[int]]:
    """Cut *numbers* into parts of which each fits into one transaction, with no key twice."""
    part, keys, size = list[int](), set[bytes](), 0
    for number in numbers:
        place = places[number]
        bytes_more = len(place.write.data or b"")
        full = len(part) == _MOST or size + bytes_more > _MOST_BYTES
        if part and (full or place.key in keys):
            yield part
            part, keys, size = list[int](), set[bytes](), 0
        part.append(number)
        keys.add(place.key)
        size += bytes_more
    if part:
        yield part


def _nested(
    calls: Calls, places: Sequence[Place], seconds: float | None = None
) -> Future[_Outcomes]:
    """Do writes in one transaction of transactions, each of which decides for itself."""
    request = requests.txn([], [requests.nested(place.transaction()) for place in places])
    ask = Ask(TXN, request, partial(_each_outcome, places), writes=True)
    return calls.send(ask, seconds)


def _each_outcome(places: Sequence[Place], answer: TxnAnswer, _sent: Mark) -> _Outcomes:
    revision = answer.header.revision
    pairs = zip(places, answer.responses, strict=True)
    return [_outcome(place, one.response_txn, revision) for place, one in pairs]


def _outcome(place: Place, answer: TxnAnswer, revision: int) -> Version | Exception:
    try:
        return place.version(answer, revision)
    except DefiniteError as refused:
        return refused


def _created(calls: Calls, places: Sequence[Place]) -> Future[_Outcomes]:
    """Create all keys, or those that are absent if some are there."""
    fence = places[0].fence()
    leader = [requests.look_up(places[0].leader)] if fence else []
    request = requests.txn(
        [*fence, *(requests.is_absent(place.key) for place in places)],
        [put for place in places for put in place.success()],
        [*leader, *(requests.look_up(place.key) for place in places)],
    )
    until = time.monotonic() + calls.seconds
    return calls.send(
        Ask(TXN, request, partial(_after_creation, calls, places, until), writes=True)
    )


def _after_creation(
    calls: Calls, places: Sequence[Place], until: float, answer: TxnAnswer, _sent: Mark
) -> _Outcomes | Future[_Outcomes]:
    """Return what became of each creation; those that nothing speaks against are sent again."""
    if answer.succeeded:
        return [Version(answer.header.revision) for _ in places]
    refusals = _refusals(places, answer)
    left = [place for place in places if place.key not in refusals]
    if not left:
        return [refusals[place.key] for place in places]
    seconds = max(_LEAST_SECONDS, until - time.monotonic())
    return whatever(_nested(calls, left, seconds), partial(_merged, places, left, refusals))


def _refusals(places: Sequence[Place], answer: TxnAnswer) -> dict[bytes, DefiniteError]:
    """Return why each of *places* is refused that is, given the answer that nothing was done."""
    found = [only(one.response_range) for one in answer.responses]
    leader = found.pop(0) if len(found) > len(places) else None
    reasons = {
        place.key: place.refusal(leader, record)
        for place, record in zip(places, found, strict=True)
    }
    # A creation is not refused because its key is missing: it was in the company of a refused one.
    return {key: why for key, why in reasons.items() if not isinstance(why, KeyMissingError)}


def _merged(
    places: Sequence[Place],
    left: Sequence[Place],
    refusals: dict[bytes, DefiniteError],
    done: Future[_Outcomes],
) -> Future[_Outcomes]:
    error = done.exception()
    second: _Outcomes = [error] * len(left) if isinstance(error, Exception) else done.result()
    outcomes = refusals | dict(zip((place.key for place in left), second, strict=True))
    return Completed([outcomes[place.key] for place in places])


def _each(done: Future[_Outcomes], count: int) -> list[Future[Version]]:
    """Return a future of each outcome; one callback for all costs half of one for each."""
    answers: list[Future[Version]] = [Future() for _ in range(count)]
    done.add_done_callback(partial(_deal, answers))
    return answers


def _deal(answers: Sequence[Future[Version]], done: Future[_Outcomes]) -> None:
    error = CancelledError() if done.cancelled() else done.exception()
    outcomes = [error] * len(answers) if error else done.result()
    for answer, outcome in zip(answers, outcomes, strict=True):
        if isinstance(outcome, BaseException):
            fail(answer, outcome)
        else:
            succeed(answer, outcome)

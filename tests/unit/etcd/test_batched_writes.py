"""Many writes in one call: creations in one flat transaction, each on its own all the same."""

import time
from collections.abc import Sequence

import pytest

from kip30 import (
    Fence,
    FencedError,
    GuardError,
    KeyExistsError,
    KeyMissingError,
    OutcomeUnknownError,
    PluginLocator,
    Version,
)
from kip30.driver import StorageDriver
from kip30.driver.records import MOST_GUARDS, Condition, Guard, Write, new_nonce
from kip30.names import MAX_NAME_BYTES, Key
from kip30_backends.etcd.calls import Calls, TypedRequest
from kip30_backends.etcd.client.channel import TXN
from kip30_conformance.polling import time_scale
from kip30_conformance.servers import Ensemble
from tests.unit.clients import PATIENT, Open

ABSENT = Condition.ABSENT
LONG = "n" * MAX_NAME_BYTES


@pytest.fixture
def client(open_client: Open) -> PluginLocator:
    return open_client(**PATIENT)


@pytest.fixture
def driver(client: PluginLocator) -> StorageDriver:
    return client.backend.storage


def creation(name: object, data: bytes = b"new", fence: Fence | None = None) -> Write:
    return Write(Key("n", str(name)), new_nonce(), data, ABSENT, fence)


def rewriting(key: Key) -> Write:
    return Write(key, new_nonce(), b"again", Condition.ANY)


def guards_of(driver: StorageDriver, count: int) -> tuple[Guard, ...]:
    """Write keys that guard others."""
    writes = [creation(f"guard-{number}") for number in range(count)]
    done = driver.write_many(writes)
    return tuple(Guard(write.key, one.result()) for write, one in zip(writes, done, strict=True))


def outcomes(driver: StorageDriver, writes: Sequence[Write]) -> list[Version | type]:
    told: list[Version | type] = []
    for future in driver.write_many(writes):
        error = future.exception()
        told.append(future.result() if error is None else type(error))
    return told


def check_states(driver: StorageDriver, writes: Sequence[Write], told: Sequence[object]) -> None:
    """Require that exactly the writes that have a version are there, under their nonces."""
    entries = driver.read([write.key for write in writes]).result()
    for write, version, entry in zip(writes, told, entries, strict=True):
        is_there = entry is not None and entry.nonce == write.nonce
        assert is_there == isinstance(version, Version)
        if is_there:
            assert entry is not None
            assert (entry.version, entry.data) == (version, write.data)


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of operations of each transaction that writes, as they are sent."""
    sent: list[int] = []
    send = Calls.send

    def noted(calls: Calls, ask: TypedRequest[object], seconds: float | None = None) -> object:
        if ask.path == TXN and ask.writes:
            sent.append(len(ask.request.success))
        return send(calls, ask, seconds)

    monkeypatch.setattr(Calls, "send", noted)
    return sent


def test_absent_keys_are_one_flat_transaction(
    driver: StorageDriver, transactions: list[int]
) -> None:
    writes = [creation(number) for number in range(250)]
    told = outcomes(driver, writes)
    assert transactions == [100, 100, 50]
    assert len(set(told)) == 3
    check_states(driver, writes, told)


def test_creations_with_the_same_guards_are_one_flat_transaction(
    driver: StorageDriver, transactions: list[int]
) -> None:
    guards = guards_of(driver, MOST_GUARDS)
    writes = [creation(number)._replace(guards=guards) for number in range(100)]
    transactions.clear()
    told = outcomes(driver, [*writes, creation("free")])
    assert transactions == [100, 1]
    check_states(driver, writes, told[:-1])
    outcomes(driver, [rewriting(guards[-1].key)])
    more = [creation(f"more-{number}")._replace(guards=guards) for number in range(100)]
    transactions.clear()
    assert outcomes(driver, more) == [GuardError] * 100
    assert transactions == [100]
    check_states(driver, more, [GuardError] * 100)


def test_as_many_guards_as_there_can_be_fit_into_a_transaction(
    client: PluginLocator, driver: StorageDriver, transactions: list[int]
) -> None:
    guards = guards_of(driver, MOST_GUARDS)
    keys = [write.key for write in (creation(number) for number in range(100))]
    outcomes(driver, [rewriting(key) for key in keys])
    with client.leader_election("s").lead("c", "") as term:
        fence = Fence("s", term.epoch)
        transactions.clear()
        writes = [Write(key, new_nonce(), None, Condition.PRESENT, fence, guards) for key in keys]
        assert {*map(type, outcomes(driver, writes))} == {Version}
        assert transactions == [100]


@pytest.mark.parametrize("last", ["guarded", "guard"])
def test_a_change_of_a_guard_key_and_a_guarded_write_take_two_transactions(
    driver: StorageDriver, transactions: list[int], last: str
) -> None:
    (guard,) = guards_of(driver, 1)
    writes = [rewriting(guard.key), rewriting(Key("n", "k"))._replace(guards=(guard,))]
    transactions.clear()
    told = outcomes(driver, writes if last == "guarded" else writes[::-1])
    assert transactions == [1, 1]
    # They are sent at the same moment: the server may do either of them first.
    changed, guarded = told if last == "guarded" else told[::-1]
    assert isinstance(changed, Version)
    assert guarded is GuardError or (isinstance(guarded, Version) and guarded < changed)


def test_keys_that_are_all_there_take_one_transaction(
    driver: StorageDriver, transactions: list[int]
) -> None:
    writes = [creation(number) for number in range(100)]
    outcomes(driver, writes)
    again = [creation(number, b"other") for number in range(100)]
    transactions.clear()
    assert outcomes(driver, again) == [KeyExistsError] * 100
    assert transactions == [100]
    check_states(driver, again, [KeyExistsError] * 100)


def test_existing_keys_do_not_fail_the_other_creations(
    driver: StorageDriver, transactions: list[int]
) -> None:
    outcomes(driver, [creation(number) for number in (0, 7, 99)])
    writes = [creation(number, b"other") for number in range(100)]
    transactions.clear()
    told = outcomes(driver, writes)
    assert transactions == [100, 97]
    assert [at for at, one in enumerate(told) if one is KeyExistsError] == [0, 7, 99]
    check_states(driver, writes, told)


def test_a_fence_that_is_over_refuses_all(
    client: PluginLocator, driver: StorageDriver, transactions: list[int]
) -> None:
    with client.leader_election("s") as election, election.lead("c", "") as leadership:
        fence = Fence("s", leadership.epoch)
        writes = [creation(number, fence=fence) for number in range(101)]
        told = outcomes(driver, writes)
        check_states(driver, writes, told)
        assert all(isinstance(one, Version) for one in told)
    with client.leader_election("s") as election, election.lead("c", ""):
        late = [creation(number, fence=fence) for number in (*range(50), *range(200, 250))]
        transactions.clear()
        assert outcomes(driver, late) == [FencedError] * 100
        assert transactions == [100]
        check_states(driver, late, [FencedError] * 100)


@pytest.mark.parametrize("epoch", [0, -1, 2**62])
def test_an_epoch_that_never_was_refuses_all(driver: StorageDriver, epoch: int) -> None:
    writes = [creation(number, fence=Fence("nobody", epoch)) for number in range(3)]
    assert outcomes(driver, writes) == [FencedError] * 3


def test_fences_do_not_mix(client: PluginLocator, driver: StorageDriver) -> None:
    with client.leader_election("s") as election, election.lead("c", "") as leadership:
        fences = [Fence("s", leadership.epoch), None, Fence("s", leadership.epoch + 1)]
        writes = [creation(number, fence=fences[number % 3]) for number in range(30)]
        told = outcomes(driver, writes)
    assert [at for at, one in enumerate(told) if one is FencedError] == list(range(2, 30, 3))
    check_states(driver, writes, told)


def test_creations_between_other_writes(driver: StorageDriver, transactions: list[int]) -> None:
    (version,) = outcomes(driver, [creation("there", b"old")])
    assert isinstance(version, Version)
    transactions.clear()
    told = outcomes(
        driver,
        [
            creation("a"),
            Write(Key("n", "there"), new_nonce(), b"2", version),
            creation("there"),
            Write(Key("n", "none"), new_nonce(), b"", Condition.PRESENT),
            creation("b"),
            Write(Key("n", "c"), new_nonce(), None, Condition.ABSENT),
            Write(Key("n", "d"), new_nonce(), b"", Condition.ANY),
        ],
    )
    kinds = [one if isinstance(one, type) else Version for one in told]
    assert kinds == [
        *(Version, Version, KeyExistsError, KeyMissingError, Version, KeyMissingError, Version)
    ]
    assert sorted(transactions) == [2, 3, 4]


def test_a_key_that_is_given_twice_is_created_once(driver: StorageDriver) -> None:
    writes = [creation("k", b"%d" % number) for number in range(5)]
    told = outcomes(driver, writes)
    assert told.count(KeyExistsError) == 4
    check_states(driver, writes, told)


def test_only_the_rest_is_unknown_if_the_second_answer_is_lost(
    open_client: Open, ensemble: Ensemble, transactions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = open_client().backend.storage
    outcomes(driver, [creation(number) for number in (0, 9)])
    transactions.clear()
    send = Calls.send

    def stop_before_second(
        calls: Calls, ask: TypedRequest[object], seconds: float | None = None
    ) -> object:
        if ask.path == TXN and transactions:
            ensemble.nodes[0].stop()
        return send(calls, ask, seconds)

    monkeypatch.setattr(Calls, "send", stop_before_second)
    begun = time.monotonic()
    try:
        told = outcomes(driver, [creation(number) for number in range(10)])
    finally:
        ensemble.nodes[0].resume()
    assert time.monotonic() - begun < 1.5 + 2 * time_scale()
    assert told == [KeyExistsError, *[OutcomeUnknownError] * 8, KeyExistsError]
    assert transactions == [10, 8]


def test_the_longest_names_fit_into_a_batch_with_large_values(driver: StorageDriver) -> None:
    """A creation beside a refused one travels with the names of its key, fence and guards."""
    names = [f"{number:03}".ljust(MAX_NAME_BYTES, "n") for number in range(100)]
    guarding = [Write(Key(LONG, f"g{name}"[:-1]), new_nonce(), b"", ABSENT) for name in names[:4]]
    done = [one.result() for one in driver.write_many(guarding)]
    guards = tuple(Guard(one.key, version) for one, version in zip(guarding, done, strict=True))
    writes = [
        Write(Key(LONG, name), new_nonce(), b"x" * 10_000, ABSENT, guards=guards) for name in names
    ]
    driver.write(writes[0]._replace(nonce=new_nonce())).result()
    told = outcomes(driver, writes)
    assert told[0] is KeyExistsError
    check_states(driver, writes[1:], told[1:])
    assert all(isinstance(one, Version) for one in told[1:])

"""Rules that only the driver, or many keys at once, can show: S45-47, L33-34, M32-34, G27-29."""

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from kip30 import (
    FencedError,
    KeyExistsError,
    Kip30Error,
    MemberExistsError,
    MembershipChange,
    OutcomeUnknownError,
    PartialWriteError,
    PluginLocator,
    Storage,
    UnavailableError,
    UnsupportedError,
    Version,
)
from kip30.driver import Backend, Capability, StorageDriver
from kip30.driver.records import (
    Claim,
    Condition,
    Entry,
    Fence,
    HeldByOther,
    Kind,
    Snapshot,
    Target,
    Write,
    new_nonce,
)
from kip30.names import Key
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.suite import OpenClient, OpenPeer, Suite, needing, supported

_MANY = 10_321
_AT_ONCE = 200
_WRITERS = 4
_ANSWER_SECONDS = 20.0
_BEFORE_CLOSE = 10
_AFTER_CLOSE = 5
_TOO_MANY_BYTES = 8
"""As many times what a store declares to take: servers refuse it, or the library does."""

Change = Callable[[Backend], object]


def _create(storage: Storage[str], keys: Sequence[str]) -> None:
    """Create *keys*; repeat what a busy store does not take in time."""
    try:
        storage.put_many(dict.fromkeys(keys, ""))
    except PartialWriteError as error:
        if not all(isinstance(one, UnavailableError) for one in error.failed.values()):
            raise
        _create(storage, [*error.failed])


def _read(backend: Backend, name: str) -> Future[Any]:
    return backend.storage.read([Key("n", name)])


def _write(backend: Backend, name: str) -> Future[Any]:
    return backend.storage.write(Write(Key("n", name), new_nonce(), b"", Condition.ABSENT))


def _claim(backend: Backend, name: str) -> Future[Any]:
    return backend.membership.claim("g", name, new_nonce(), b"")


def _take(backend: Backend, name: str) -> Future[Any]:
    return backend.election.claim(name, "c", new_nonce(), b"")


def _look(backend: Backend, name: str) -> Future[Any]:
    return backend.observe.snapshot(Target(Kind.VALUE, "n", name))


_CALLS: dict[str, Callable[[Backend, str], Future[Any]]] = {
    "read": _read,
    "write": _write,
    "claim of an id": _claim,
    "claim of a service": _take,
    "snapshot": _look,
}


class DriverTests(Suite):
    """Calls of several keys keep the rules of single ones, and the driver distinguishes claims."""

    def test_S45_put_many_existing(self, client: PluginLocator) -> None:
        """Of many puts those of keys that are there fail and change nothing; others are done."""
        storage = client.storage()
        kept = {key: storage.put(key, "kept") for key in ("n/b", "n/d")}
        with pytest.raises(PartialWriteError) as caught:
            storage.put_many(dict.fromkeys(("n/a", "n/b", "n/c", "n/d"), "new"))
        assert {key: type(error) for key, error in caught.value.failed.items()} == dict.fromkeys(
            kept, KeyExistsError
        )
        found = {key: storage.get(key) for key in ("n/a", "n/b", "n/c", "n/d")}
        assert {key: one and one.value for key, one in found.items()} == {
            "n/a": "new",
            "n/b": "kept",
            "n/c": "new",
            "n/d": "kept",
        }
        assert {key: one.version for key, one in found.items() if one and key in kept} == kept

    def test_S46_fetch_many_is_fresh(self, open_client: OpenClient) -> None:
        """Once A's writes are acknowledged, B's next read of several keys shows all of them."""
        writer, reader = open_client().storage(), open_client().storage()
        keys = [f"n/{number}" for number in range(5)]
        writer.put_many(dict.fromkeys(keys, "0"))
        for turn in range(1, 50):
            written = keys[turn % len(keys)]
            expected = dict(reader.fetch_many(keys).result())
            writer.update(written, str(turn))
            assert reader.fetch_many(keys).result() == {**expected, written: str(turn)}
        writer.delete(keys[0])
        assert set(reader.fetch_many(keys).result()) == set(keys[1:])

    def test_S47_list_beyond_a_bound(self, client: PluginLocator) -> None:
        """A listing does not end at a round number of names."""
        storage = client.storage()
        keys = [f"n/{number:05}" for number in range(_MANY)]
        for first in range(0, _MANY, _AT_ONCE):
            _create(storage, keys[first : first + _AT_ONCE])
        with needing(client, Capability.LISTING):
            assert list(storage.list("n")) == keys

    @pytest.mark.parametrize("ahead", [1, 2, 1000])
    def test_L33_epoch_to_come(self, client: PluginLocator, ahead: int) -> None:
        """A fence of an epoch just after the newest one allows nothing, led or not."""
        storage, election = client.storage(), client.leader_election("s")
        with election.lead("c", "") as term:
            fence = Fence("s", term.epoch + ahead)
            with pytest.raises((FencedError, UnsupportedError)):
                storage.put("key", "written", fence=fence)
        with pytest.raises((FencedError, UnsupportedError)):
            storage.put("key", "written", fence=fence)
        assert storage.get("key") is None

    @pytest.mark.parametrize("successor", ["same", "other"])
    def test_L34_release_of_a_former_claim(self, open_client: OpenClient, successor: str) -> None:
        """Releasing a former claim does not affect a later claim of the same candidate."""
        first = open_client().backend
        other = first if successor == "same" else open_client().backend
        former = _led(first)
        first.election.release("s", former).result()
        present = _led(other)
        first.election.release("s", former).result()
        shown = first.observe.snapshot(Target(Kind.SERVICE, "s")).result()
        assert shown.entries == {"c": present.entry}
        other.election.release("s", present).result()

    def test_M32_claim_again(self, client: PluginLocator) -> None:
        """Claiming an id again with the same nonce answers the claim; another nonce is refused."""
        driver, nonce = client.backend.membership, new_nonce()
        claim = driver.claim("g", "m", nonce, b"data").result()
        repeated = driver.claim("g", "m", nonce, b"data")
        assert repeated.exception() is None
        again = repeated.result()
        assert (again.name, again.entry) == (claim.name, claim.entry)
        with pytest.raises(MemberExistsError):
            driver.claim("g", "m", new_nonce(), b"data").result()
        driver.release("g", again).result()
        assert not _members(client.backend).entries

    def test_M33_incarnation_stays(self, client: PluginLocator) -> None:
        """A member keeps its version while its data is replaced; the next member has another."""
        driver = client.backend.membership
        first = claim = driver.claim("g", "m", new_nonce(), b"0").result()
        for number in range(1, 4):
            nonce, data = new_nonce(), str(number).encode()
            claim = driver.replace("g", claim, nonce, data).result()
            assert claim.entry == Entry(first.entry.version, nonce, data)
            assert _members(client.backend).entries == {"m": claim.entry}
        driver.release("g", claim).result()
        assert driver.claim("g", "m", new_nonce(), b"").result().entry.version != (
            first.entry.version
        )

    @pytest.mark.parametrize("kind", [Kind.VALUE, Kind.NAMESPACE, Kind.GROUP, Kind.SERVICE])
    def test_G27_order_moves(self, open_client: OpenClient, kind: Kind) -> None:
        """Of two states of a target that differ, the later read has the greater order."""
        backend, other = open_client().backend, open_client().backend
        target, changes = _changing(kind)
        states = [backend.observe.snapshot(target).result()]
        for change in changes:
            change(other)
            state = backend.observe.snapshot(target).result()
            assert set(state.entries) != set(states[-1].entries)
            assert state.order > states[-1].order
            states.append(state)

    def test_G28_errors_while_closing(self, open_client: OpenClient) -> None:
        """Writes that a close meets fail with errors of kip30, which say what was done.

        Below the core, which would hide errors of the store's client library.
        """
        client, reader = open_client(), open_client().storage()
        driver, answers, is_closed = client.backend.storage, _Answers(), threading.Event()

        def write(writer: int) -> None:
            after = 0
            for number in itertools.count():
                after += is_closed.is_set()
                if after > _AFTER_CLOSE:
                    return
                answers.take(f"n/{writer}-{number}", _put_by(driver))

        with ThreadPoolExecutor(_WRITERS) as pool:
            writing = [pool.submit(write, writer) for writer in range(_WRITERS)]
            try:
                eventually(lambda: answers.count() >= _BEFORE_CLOSE, what="writes are answered")
                client.close()
            finally:
                is_closed.set()
        for one in writing:
            one.result()
        answers.expect_true(reader)

    def test_G28_errors_of_refusals(self, open_client: OpenClient) -> None:
        """A write that the server may refuse for its size fails with such an error, or is done."""
        client, reader, answers = open_client(), open_client().storage(), _Answers()
        data = bytes(_TOO_MANY_BYTES * client.backend.limits.value_bytes)
        answers.take("n/huge", _put_by(client.backend.storage, data))
        answers.take("n/small", _put_by(client.backend.storage))
        answers.expect_true(reader)

    @pytest.mark.parametrize("call", _CALLS)
    def test_G29_unwaited_future(self, client: PluginLocator, call: str) -> None:
        """A request ends in time also if no caller waits for it, but polls or adds a callback."""
        polled = _CALLS[call](client.backend, "polled")
        eventually(polled.done, within=_ANSWER_SECONDS, what=f"{call} is done")
        assert polled.exception() is None
        ended = threading.Event()
        called_back = _CALLS[call](client.backend, "called-back")
        called_back.add_done_callback(lambda _: ended.set())
        eventually(ended.is_set, within=_ANSWER_SECONDS, what=f"the callback of {call} is called")
        assert called_back.exception() is None

    @pytest.mark.parametrize("call", _CALLS)
    def test_G29_cancelled_future(self, client: PluginLocator, call: str) -> None:
        """A caller may cancel a request before it is sent, or under way; others are answered."""
        for moment in ("unsent", "under-way"):
            future = _CALLS[call](client.backend, moment)
            if moment == "under-way":
                future.done()
            future.cancel()
        answered = _CALLS[call](client.backend, "kept")
        assert answered.exception(_ANSWER_SECONDS * time_scale()) is None

    @pytest.mark.fault
    def test_M34_crash_after_update(
        self, client: PluginLocator, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """A member that was updated is gone within the timeout too when its process dies."""
        group, victim = client.group_membership("g"), peer()
        victim.call("join", group="g", member_id="m")
        victim.call("update_member", group="g", member_id="m", data="new")
        assert group.membership() == {"m": "new"}
        victim.kill()
        eventually(
            lambda: not group.membership_list(),
            within=harness.crash_patience,
            what="the group is empty",
        )
        evidence.saw("dead process", victim.pid)

    @pytest.mark.fault
    def test_R27_group_watch_outlives_session(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """After a member's session has ended its group's listener is still notified of others."""
        client, other = open_client(), open_client().group_membership("g")
        group, changes = client.group_membership("g"), Recorder[MembershipChange[str]]()
        group.add_listener(changes)
        first = group.join("m", "")
        changes.expect(lambda change: "m" in change.joined)
        faults = harness.faults(client)
        supported(faults.expire_session)
        evidence.saw("expired session", faults.counted())
        eventually(first.lost.is_set, what="the member learns that its session has ended")
        other.join("later", "")
        changes.expect(lambda change: "later" in change.members)


class _Answers:
    """The outcomes of writes, by key: ``None`` if done, else the error. Thread-safe."""

    def __init__(self) -> None:
        self._ends: dict[str, Exception | None] = {}

    def take(self, key: str, put: Callable[[str], object]) -> None:
        """Put *key*, and keep the outcome."""
        try:
            put(key)
        except Exception as error:  # noqa: BLE001  a foreign one is what this looks for
            self._ends[key] = error
        else:
            self._ends[key] = None

    def count(self) -> int:
        """Return how many writes have ended."""
        return len(self._ends)

    def expect_true(self, reader: Storage[str]) -> None:
        """Require each error to be kip30's, and the effect that it reports to be the stored one."""
        found = eventually(lambda: _found(reader, sorted(self._ends)), what="the store answers")[0]
        for key, error in self._ends.items():
            assert error is None or isinstance(error, Kip30Error), (
                f"the driver let an error through that is not kip30's: {error!r}"
            )
            if not isinstance(error, OutcomeUnknownError):
                assert (key in found) == (error is None), f"{key}: {error!r}"


def _found(reader: Storage[str], keys: Sequence[str]) -> tuple[Mapping[str, str]] | None:
    """Return which of *keys* exist; None if the store does not answer in time."""
    try:
        return (reader.fetch_many(keys).result(),)
    except UnavailableError:
        return None


def _put_by(driver: StorageDriver, data: bytes = b"v") -> Callable[[str], Version]:
    """Return a function that puts a key of namespace ``n`` by *driver* and waits for the answer."""

    def put(key: str) -> Version:
        write = Write(Key("n", key.removeprefix("n/")), new_nonce(), data, Condition.ABSENT)
        return driver.write(write).result(_ANSWER_SECONDS * time_scale())

    return put


def _led(backend: Backend) -> Claim:
    """Lead ``s`` as candidate ``c``, after a lock-delay if the store has one."""
    nonce = new_nonce()

    def claim() -> Claim | None:
        answer = backend.election.claim("s", "c", nonce, b"").result()
        return None if isinstance(answer, HeldByOther) else answer

    return eventually(claim, within=30, what="the service is free")


def _members(backend: Backend) -> Snapshot:
    return backend.observe.snapshot(Target(Kind.GROUP, "g")).result()


def _changing(kind: Kind) -> tuple[Target, list[Change]]:
    """Return a target of *kind*, and a function that changes its set of entries."""
    if kind is Kind.GROUP:
        return Target(kind, "g"), [_joins("a"), _joins("b")]
    if kind is Kind.SERVICE:
        return Target(kind, "s"), [_led]
    name = "k" if kind is Kind.VALUE else ""
    writes = [(b"v", Condition.ABSENT), (None, Condition.PRESENT), (b"w", Condition.ABSENT)]
    return Target(kind, "n", name), [_writes(data, condition) for data, condition in writes]


def _joins(member_id: str) -> Change:
    return lambda backend: backend.membership.claim("g", member_id, new_nonce(), b"").result()


def _writes(data: bytes | None, condition: Condition) -> Change:
    write = Write(Key("n", "k"), new_nonce(), data, condition)
    return lambda backend: backend.storage.write(write).result()

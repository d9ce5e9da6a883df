"""Guards of writes: a write is done only while other keys have the versions that it expects."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from kip30 import (
    DefiniteError,
    Fence,
    FencedError,
    GuardError,
    KeyExistsError,
    KeyMissingError,
    Kip30Error,
    OutcomeUnknownError,
    PartialWriteError,
    PluginLocator,
    Storage,
    UnsupportedError,
    UsageError,
    ValueChange,
    Version,
    VersionConflictError,
    Versioned,
)
from kip30.driver import Capability
from kip30.driver.records import MOST_GUARDS, Condition, Guard, Write, new_nonce
from kip30.names import Key
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.driver_faults import wrap
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.suite import OpenClient, Suite, needing

_Verb = Callable[[Storage[str], Version, Any], object]

_GUARDS = [f"n/guard-{number}" for number in range(MOST_GUARDS)]
_VERBS: dict[str, _Verb] = {
    "put": lambda storage, _, more: storage.put("n/new", "written", **more),
    "update": lambda storage, _, more: storage.update("n/key", "written", **more),
    "set": lambda storage, _, more: storage.set("n/key", "written", **more),
    "delete": lambda storage, _, more: storage.delete("n/key", **more),
    "compare_and_set": lambda storage, version, more: storage.compare_and_set(
        "n/key", version, "written", **more
    ),
    "put_many": lambda storage, _, more: storage.put_many(
        {"n/new": "written", "n/newer": "written"}, **more
    ),
}
_DOOMED: dict[str, tuple[_Verb, type[DefiniteError]]] = {
    "put": (lambda storage, _, more: storage.put("n/key", "", **more), KeyExistsError),
    "update": (lambda storage, _, more: storage.update("n/new", "", **more), KeyMissingError),
    "delete": (lambda storage, _, more: storage.delete("n/new", **more), KeyMissingError),
    "compare_and_set": (
        lambda storage, version, more: storage.compare_and_set(
            "n/key", Version(version.major + 1, version.minor), "", **more
        ),
        VersionConflictError,
    ),
    "put_many": (lambda storage, _, more: storage.put_many({"n/key": ""}, **more), KeyExistsError),
}
_CHANGED = {"put": "n/new", "put_many": "n/new"}
_MALFORMED: list[Any] = [
    *("n/guard-0", ["n/guard-0"], [("n/guard-0", Version(1))], 1, object(), Guard),
    *({"n/guard-0": one} for one in (None, 1, "1", (1, 0), Version(2**63), Version(1, 2**63))),
    *({one: Version(1)} for one in (None, 1, "", "n/", "/n", "n/\ud800", "n/" + "x" * 256)),
]


class GuardTests(Suite):
    """A write with guards is done if all of them hold, and changes nothing if one does not.

    A store that does not declare ``guards`` must refuse every guard.
    """

    @pytest.fixture
    def kept(self, open_client: OpenClient, harness: Harness) -> Versioned[str]:
        """Return the value at ``n/key``, which another client has put there."""
        return Versioned("kept", open_client(**harness.steady).storage().put("n/key", "kept"))

    @pytest.mark.parametrize("count", [1, MOST_GUARDS])
    @pytest.mark.parametrize("verb", _VERBS)
    def test_S33_guard_holds(
        self, client: PluginLocator, kept: Versioned[str], verb: str, count: int
    ) -> None:
        """A write whose guards hold is done, and leaves the guards as they are."""
        storage = client.storage()
        guards = _put_guards(storage, count)
        with needing(client, Capability.GUARDS):
            _VERBS[verb](storage, kept.version, {"guards": guards})
            found = storage.get(_CHANGED.get(verb, "n/key"))
            assert (found and found.value) == (None if verb == "delete" else "written")
            assert {key: storage.get(key) for key in guards} == {
                key: Versioned("guard", version) for key, version in guards.items()
            }

    def test_S33_guard_holds_for_long(self, client: PluginLocator) -> None:
        """A guard holds however often it is used and others change; its listeners get no events."""
        storage = client.storage()
        guards = _put_guards(storage, 1)
        changes: Recorder[ValueChange[str]] = Recorder()
        client.listener_registry().add_value_change_listener(_GUARDS[0], changes)
        with needing(client, Capability.GUARDS):
            for number in range(20):
                storage.put("n/key", str(number), guards=guards)
                version = storage.update("n/key", "", guards=guards)
                storage.compare_and_set("n/key", version, "", guards=guards)
                storage.delete("n/key", guards=guards)
            newer = storage.update(_GUARDS[0], "newer")
            assert changes.expect_count(1) == [ValueChange(_GUARDS[0], "newer", newer)]

    def test_S33_no_guards(self, client: PluginLocator) -> None:
        """An empty mapping guards nothing, on every store."""
        storage = client.storage()
        storage.put("n/key", "v", guards={})
        assert storage.put_many({"n/other": "v", "key": "v"}, guards={})

    @pytest.mark.parametrize("stale", [0, MOST_GUARDS - 1])
    @pytest.mark.parametrize("verb", _VERBS)
    def test_S34_stale_guard(
        self, open_client: OpenClient, kept: Versioned[str], verb: str, stale: int
    ) -> None:
        """If one guard has another version by now the write is refused and changes nothing."""
        client, other = open_client(), open_client().storage()
        storage = client.storage()
        guards = _put_guards(storage, MOST_GUARDS)
        other.update(_GUARDS[stale], "newer")
        with needing(client, Capability.GUARDS):
            assert _errors(_VERBS[verb], storage, kept.version, guards=guards) == {GuardError}
        assert (storage.get("n/key"), storage.get("n/new")) == (kept, None)

    @pytest.mark.parametrize("verb", _VERBS)
    def test_S34_version_never_issued(
        self, client: PluginLocator, kept: Versioned[str], verb: str
    ) -> None:
        """A guard at a version that its key never had, nor can have, holds for nothing."""
        storage = client.storage()
        (version,) = _put_guards(storage, 1).values()
        with needing(client, Capability.GUARDS):
            for wrong in _never_issued(version):
                guards = {_GUARDS[0]: wrong}
                assert _errors(_VERBS[verb], storage, kept.version, guards=guards) == {GuardError}
        assert (storage.get("n/key"), storage.get("n/new")) == (kept, None)

    def test_S34_put_many_each_for_itself(
        self, client: PluginLocator, kept: Versioned[str]
    ) -> None:
        """With a guard that holds, each of many puts is done or refused by its own condition."""
        storage = client.storage()
        guards = _put_guards(storage, 1)
        with needing(client, Capability.GUARDS):
            with pytest.raises(PartialWriteError) as caught:
                storage.put_many(dict.fromkeys(("n/a", "n/key", "n/b"), "new"), guards=guards)
            assert {key: type(one) for key, one in caught.value.failed.items()} == {
                "n/key": KeyExistsError
            }
            found = storage.fetch_many(("n/a", "n/b", "n/key")).result()
            assert found == {"n/a": "new", "n/b": "new", "n/key": kept.value}

    def test_S34_many_with_guards_of_their_own(self, client: PluginLocator) -> None:
        """Of writes in one batch each is refused by its own guards alone."""
        guards = _put_guards(client.storage(), 2)
        if Capability.GUARDS not in client.backend.capabilities:
            pytest.skip("this store has no guards, so its driver is given none")
        first, second = (Guard(Key("n", key[2:]), one) for key, one in guards.items())
        stale = Guard(first.key, Version(first.version.major + 1, first.version.minor))
        chosen = [(), (first,), (stale,), (second, first), (second, stale), (second,)]
        for condition in (Condition.ABSENT, Condition.ANY):
            writes = [_write(f"{condition}-{one}", condition, *chosen[one]) for one in range(6)]
            done = client.backend.storage.write_many(writes)
            errors = [type(one.exception()) for one in done]
            none = type(None)
            assert errors == [none, none, GuardError, none, GuardError, none]

    def test_S34_two_that_guard_each_other(self, client: PluginLocator) -> None:
        """Of two writes in one batch that guard each other's key only one is done."""
        guards = _put_guards(client.storage(), 2)
        if Capability.GUARDS not in client.backend.capabilities:
            pytest.skip("this store has no guards, so its driver is given none")
        first, second = (Guard(Key("n", key[2:]), one) for key, one in guards.items())
        writes = [
            _write("the others wait for this", Condition.ANY),
            _write(first.key.name, Condition.PRESENT, second),
            _write(second.key.name, Condition.PRESENT, first),
        ]
        _, *errors = [one.exception() for one in client.backend.storage.write_many(writes)]
        assert sorted(type(one).__name__ for one in errors) == ["GuardError", "NoneType"]

    def test_S34_refused_write_of_a_guard(self, client: PluginLocator) -> None:
        """A guard holds if a write of its key travels with the guarded one and is refused."""
        (version,) = _put_guards(client.storage(), 1).values()
        if not {Capability.GUARDS, Capability.COMPARE_AND_SET} <= client.backend.capabilities:
            pytest.skip("this store's driver is given no guards, or no expected versions")
        guard = Guard(Key("n", _GUARDS[0][2:]), version)
        stale = Version(version.major + 1, version.minor)
        for order in (1, -1):
            writes = [
                _write(guard.key.name, Condition.ANY)._replace(condition=stale),
                _write(f"k{order}", Condition.ANY, guard),
            ][::order]
            first = _write("the others wait for this", Condition.ANY)
            done = client.backend.storage.write_many([first, *writes])[1:][::order]
            errors = [type(one.exception()) for one in done]
            assert errors == [VersionConflictError, type(None)]

    @pytest.mark.parametrize("verb", _VERBS)
    def test_S35_guard_gone(self, open_client: OpenClient, kept: Versioned[str], verb: str) -> None:
        """A guard whose key was deleted refuses the write, and so does one that never was."""
        client, other = open_client(), open_client().storage()
        storage = client.storage()
        guards = _put_guards(storage, 1)
        other.delete(_GUARDS[0])
        with needing(client, Capability.GUARDS):
            for gone in (guards, {"n/never was": kept.version}):
                assert _errors(_VERBS[verb], storage, kept.version, guards=gone) == {GuardError}
        assert (storage.get("n/key"), storage.get("n/new")) == (kept, None)

    @pytest.mark.parametrize("verb", _VERBS)
    def test_S35_guard_made_again(
        self, open_client: OpenClient, kept: Versioned[str], verb: str
    ) -> None:
        """A guard whose key was created again refuses the write, even if used before."""
        client, other = open_client(), open_client().storage()
        storage = client.storage()
        guards = _put_guards(storage, 1)
        with needing(client, Capability.GUARDS):
            storage.put("n/before", "", guards=guards)
            other.delete(_GUARDS[0])
            other.put(_GUARDS[0], "guard")
            assert _errors(_VERBS[verb], storage, kept.version, guards=guards) == {GuardError}
        assert (storage.get("n/key"), storage.get("n/new")) == (kept, None)

    def test_S35_guard_in_a_namespace_of_none(self, client: PluginLocator) -> None:
        """A guard refuses a write to a namespace that has no key yet."""
        storage = client.storage()
        with needing(client, Capability.GUARDS), pytest.raises(GuardError):
            storage.put("fresh/key", "v", guards={"fresh/guard": Version(1)})
        assert storage.get("fresh/key") is None

    @pytest.mark.parametrize("verb", _VERBS)
    def test_S36_other_namespace_or_too_many(
        self, harness: Harness, client: PluginLocator, kept: Versioned[str], verb: str
    ) -> None:
        """An invalid guard is a usage error on every store, and nothing is sent."""
        faults = harness.faults(client)
        for operation in ("storage.write", "storage.write_many"):
            faults.fail(operation, times=None)
        written = _CHANGED.get(verb, "n/key")
        too_many = [*_GUARDS, "n/one more"]
        others = ("guard", "m/guard", "n/m/guard", written)
        wrong = [dict.fromkeys(too_many, Version(1)), *({one: Version(1)} for one in others)]
        for guards in (*wrong, *_MALFORMED):
            with pytest.raises(UsageError):
                _VERBS[verb](client.storage(), kept.version, {"guards": guards})
        assert not faults.counted()

    def test_S36_put_many_of_two_namespaces(self, harness: Harness, client: PluginLocator) -> None:
        """Many puts have one guard only if all are of its namespace, and none is of its key."""
        faults = harness.faults(client)
        faults.fail("storage.write_many", times=None)
        for keys in (("n/a", "m/a"), ("n/a", "n/guard-0")):
            with pytest.raises(UsageError):
                client.storage().put_many(dict.fromkeys(keys, ""), guards={"n/guard-0": Version(1)})
        assert not faults.counted()

    @pytest.mark.parametrize("verb", _DOOMED)
    def test_S37_guard_before_condition(
        self, client: PluginLocator, kept: Versioned[str], verb: str
    ) -> None:
        """A stale guard is what a write is refused for, also if its condition is not met."""
        call, cause = _DOOMED[verb]
        storage = client.storage()
        guards = _put_guards(storage, 2)
        with needing(client, Capability.GUARDS):
            assert _errors(call, storage, kept.version, guards=guards) == {cause}
            storage.update(_GUARDS[1], "newer")
            assert _errors(call, storage, kept.version, guards=guards) == {GuardError}
        assert (storage.get("n/key"), storage.get("n/new")) == (kept, None)

    @pytest.mark.parametrize("verb", _DOOMED)
    def test_S37_fence_guard_condition_order(
        self, open_client: OpenClient, kept: Versioned[str], verb: str
    ) -> None:
        """A write is refused for its fence first, then for its guards, then for its condition."""
        client, other = open_client(), open_client()
        storage, (call, cause) = client.storage(), _DOOMED[verb]
        guards = _put_guards(storage, 2)
        has_both = {Capability.FENCING, Capability.GUARDS} <= client.backend.capabilities
        with nullcontext() if has_both else pytest.raises(UnsupportedError):
            with client.leader_election("s").lead("a", "") as term:
                fence = Fence(term.service, term.epoch)
                more = {"fence": fence, "guards": guards}
                assert _errors(call, storage, kept.version, **more) == {cause}
                storage.update(_GUARDS[1], "newer")
                assert _errors(call, storage, kept.version, **more) == {GuardError}
            with other.leader_election("s").lead("b", ""):
                assert _errors(call, storage, kept.version, **more) == {FencedError}
        assert (storage.get("n/key"), storage.get("n/new")) == (kept, None)

    @pytest.mark.fault
    def test_S38_lost_answer_settled(
        self, harness: Harness, open_client: OpenClient, evidence: Evidence
    ) -> None:
        """A guarded write whose answer was lost, and that was done, succeeds."""
        client = open_client(**harness.patient)
        storage, faults = client.storage(), harness.faults(client)
        guards = _put_guards(storage, 2)
        with needing(client, Capability.GUARDS):
            for number in range(10):
                key = f"n/{number}"
                for operation in ("storage.write", "storage.write", "storage.write_many"):
                    faults.lose_answers(operation)
                version = storage.put(key, "", guards=guards)
                version = storage.compare_and_set(key, version, "mine", guards=guards)
                assert storage.get(key) == Versioned("mine", version)
                storage.put_many({f"n/more-{number}": "mine"}, guards=guards)
            evidence.saw("injected faults", faults.counted() == 30)

    @pytest.mark.fault
    @pytest.mark.parametrize("verb", ["put", "update", "set", "compare_and_set", "put_many"])
    def test_S38_lost_refusal(
        self,
        harness: Harness,
        client: PluginLocator,
        kept: Versioned[str],
        evidence: Evidence,
        verb: str,
    ) -> None:
        """A write that a guard refused, unheard, is not done later, nor said to have been done."""
        storage, faults = client.storage(), harness.faults(client)
        guards = _put_guards(storage, 1)
        storage.update(_GUARDS[0], "newer")
        with needing(client, Capability.GUARDS):
            faults.lose_answers(f"storage.{'write_many' if verb == 'put_many' else 'write'}")
            errors = _errors(_VERBS[verb], storage, kept.version, guards=guards)
            assert errors
            assert errors <= {GuardError, OutcomeUnknownError}
            evidence.saw("injected faults", faults.counted())
        assert (storage.get("n/key"), storage.get("n/new")) == (kept, None)

    @pytest.mark.fault
    def test_S38_guard_changed_before_the_repetition(
        self, harness: Harness, open_client: OpenClient, kept: Versioned[str], evidence: Evidence
    ) -> None:
        """A lost compare-and-set is not done by its repetition if a guard has changed meanwhile."""
        client, other = open_client(), open_client().storage()
        storage, faults = client.storage(), harness.faults(client)
        guards = _put_guards(storage, 1)
        if Capability.GUARDS not in client.backend.capabilities:
            pytest.skip("this store has no guards, so none can change")
        faults.arrive_late("storage.write", seconds=3600)

        def change_first(read: Callable[..., Any], keys: Sequence[Key]) -> Any:
            other.update(_GUARDS[0], "newer")
            return read(keys)

        wrap(client.backend.storage, "read", change_first)
        (kind,) = _errors(_VERBS["compare_and_set"], storage, kept.version, guards=guards)
        assert kind in {GuardError, OutcomeUnknownError}
        evidence.saw("injected faults", faults.counted())
        assert other.get("n/key") == kept


def _put_guards(storage: Storage[str], count: int) -> dict[str, Version]:
    return {key: storage.put(key, "guard") for key in _GUARDS[:count]}


def _write(name: str, condition: Condition, *guards: Guard) -> Write:
    return Write(Key("n", name), new_nonce(), b"", condition, guards=guards)


def _errors(
    verb: _Verb, storage: Storage[str], version: Version, **more: Any
) -> set[type[Kip30Error]]:
    """Return the kinds of errors that *verb* ends with: none if all that it writes is done."""
    try:
        verb(storage, version, more)
    except PartialWriteError as error:
        return {*map(type, error.failed.values())}
    except (DefiniteError, OutcomeUnknownError) as error:
        return {type(error)}
    return set()


def _never_issued(version: Version) -> Iterator[Version]:
    for major in (0, -1, -version.major, version.major + 2**31, 2**63 - 1, -(2**63)):
        yield Version(major, version.minor)
    for minor in (version.minor + 1, -1, -(2**31), 2**31, 2**32 + version.minor, 2**63 - 1):
        yield Version(version.major, minor)

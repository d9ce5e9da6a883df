"""Checks of listeners, lists and lost answers in a namespace and a group with many deletions."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from kip30 import KeySetChange, MembershipChange, PluginLocator, ValueChange
from kip30_conformance.driver_faults import Interposition
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Link

NAMESPACE = "jobs"
GROUP = "workers"

_WATCHED = f"{NAMESPACE}/watched"
_LOST_KEY = f"{NAMESPACE}/lost"
_LOST_ID = "lost"
_WITHIN_SECONDS = 20.0


class Notified:
    """The state that each listener of one client was called with last."""

    def __init__(self, client: PluginLocator) -> None:
        self.value: str | None = None
        self.keys = frozenset[str]()
        self.members = frozenset[str]()
        registry = client.listener_registry()
        registry.add_value_change_listener(_WATCHED, self._take_value)
        registry.add_key_set_change_listener(NAMESPACE, self._take_keys)
        client.group_membership(GROUP).add_listener(self._take_members)

    def _take_value(self, change: ValueChange[str]) -> None:
        self.value = change.value

    def _take_keys(self, change: KeySetChange) -> None:
        self.keys = frozenset(change.keys)

    def _take_members(self, change: MembershipChange[str]) -> None:
        self.members = frozenset(change.members)


class Checks:
    """The checks of two clients: *watching* has the listeners, *deaf* loses answers.

    The namespace has the watched key and one key for each run of the checks, the group one member
    for each.
    """

    def __init__(self, watching: PluginLocator, deaf: PluginLocator, link: Link) -> None:
        self._storage = watching.storage()
        self._group = watching.group_membership(GROUP)
        self._deaf_storage = deaf.storage()
        self._deaf_group = deaf.group_membership(GROUP)
        self._link = link
        self._faults = Interposition(deaf.backend)
        self._keys = {_WATCHED}
        self._members = set[str]()
        self._storage.put(_WATCHED, "")
        self._notified = Notified(watching)

    def run(self, name: str) -> tuple[dict[str, float], list[str]]:
        """Run all checks; new keys and members get names that begin with *name*.

        Returns:
            The seconds from the answer to each change until its listener was called, and the
            checks that failed.
        """
        delays, failures = dict[str, float](), list[str]()
        for check, change in self._changes(f"{name}-new").items():
            _attempted(check, failures, lambda: delays.update({check: change()}))  # noqa: B023
        for check, verify in self._verifications().items():
            _attempted(check, failures, verify)
        return delays, failures

    def _changes(self, name: str) -> Mapping[str, Callable[[], float]]:
        """Return the checks of listeners, which return the seconds until the call."""
        key, brief = f"{NAMESPACE}/{name}", f"{NAMESPACE}/{name}-brief"
        seen = self._notified
        self._keys.add(key)
        self._members.add(name)
        return {
            "value": lambda: _delay(
                lambda: self._storage.update(_WATCHED, name), lambda: seen.value == name
            ),
            "key put": lambda: _delay(
                lambda: self._storage.put_many({key: "", brief: ""}),
                lambda: {key, brief} <= seen.keys,
            ),
            "key deleted": lambda: _delay(
                lambda: self._storage.delete(brief), lambda: seen.keys == self._keys
            ),
            "member joined": lambda: _delay(
                lambda: self._join(name), lambda: {name, f"{name}-brief"} <= seen.members
            ),
            "member left": lambda: _delay(
                lambda: self._group.leave(f"{name}-brief"), lambda: seen.members == self._members
            ),
        }

    def _join(self, name: str) -> None:
        self._group.join(name, "")
        self._group.join(f"{name}-brief", "")

    def _verifications(self) -> Mapping[str, Callable[[], None]]:
        return {
            "list of keys": self._check_keys,
            "list of members": self._check_members,
            "lost answer to a put": self._lose_put,
            "lost answer to a join": self._lose_join,
            "put on a deaf connection": self._put_unheard,
            "join on a deaf connection": self._join_unheard,
        }

    def _check_keys(self) -> None:
        assert list(self._storage.list(NAMESPACE)) == sorted(self._keys), "other keys are listed"

    def _check_members(self) -> None:
        assert set(self._group.membership()) == self._members, "other members are listed"

    def _lose_put(self) -> None:
        """Lose the answer between the backend and the library, which then reads the record."""
        self._faults.lose_answers("storage.write")
        version = self._deaf_storage.put(_LOST_KEY, "mine")
        found = self._storage.get(_LOST_KEY)
        self._deaf_storage.delete(_LOST_KEY)
        assert not self._faults.armed, "no answer was lost"
        assert found is not None, "no such key"
        assert found.version == version, "another version"

    def _lose_join(self) -> None:
        self._faults.lose_answers("membership.claim")
        is_valid = self._deaf_group.join(_LOST_ID, "").is_valid()
        found = self._group.membership_list()
        self._deaf_group.leave(_LOST_ID)
        assert not self._faults.armed, "no answer was lost"
        assert is_valid, "the member does not believe in itself"
        assert _LOST_ID in found, "no such member"

    def _put_unheard(self) -> None:
        """Lose the answer on the way to the backend, which then reads the signature of the write.

        Nothing else proves the put, because another client deletes the key before the retry.
        """
        with ThreadPoolExecutor(1) as pool:
            self._link.swallow_answers()
            try:
                putting = pool.submit(self._deaf_storage.put, _LOST_KEY, "mine")
                seen = eventually(lambda: self._storage.get(_LOST_KEY), what="the put is done")
                self._storage.delete(_LOST_KEY)
            finally:
                self._link.heal()
            assert putting.result() == seen.version
        assert self._storage.get(_LOST_KEY) is None, "it was done twice"

    def _join_unheard(self) -> None:
        with ThreadPoolExecutor(1) as pool:
            self._link.swallow_answers()
            try:
                joining = pool.submit(self._deaf_group.join, _LOST_ID, "")
                eventually(
                    lambda: _LOST_ID in self._group.membership_list(), what="the join is done"
                )
            finally:
                self._link.heal()
            assert joining.result().is_valid()
        self._deaf_group.leave(_LOST_ID)
        assert _LOST_ID not in self._group.membership_list(), "it has not left"


def _delay(change: Callable[[], object], is_notified: Callable[[], bool]) -> float:
    change()
    began = time.monotonic()
    eventually(is_notified, within=_WITHIN_SECONDS, what="the listener is called")
    return time.monotonic() - began


def _attempted(name: str, failures: list[str], check: Callable[[], None]) -> None:
    try:
        check()
    except Exception as error:  # noqa: BLE001  after any error the other checks go on
        failures.append(f"{name}: {type(error).__name__}: {error}")

"""The checks of ``kip30 doctor`` on an open store.

It uses keys, members and candidates with names of its own, and removes them. A store may keep its
record of former ones: the newest epoch of the service ``kip30-doctor``, a history of changes.
"""

import secrets
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue

from kip30.driver.clock import SystemClock
from kip30.driver.records import Fence
from kip30.errors import FencedError, GuardError, Kip30Error, StoreError
from kip30.listeners import ValueChange
from kip30.locator import PluginLocator
from kip30.runtime.candidacy import Leadership

_NAME = "kip30-doctor"
_TRIPS = 20
_STEADY_SECONDS = 0.05

Step = tuple[str, Callable[[], str]]


class Checkup:
    """Steps to be taken in their order; each returns what it found, or raises what was wrong."""

    def __init__(self, locator: PluginLocator, patience_seconds: float) -> None:
        """Try things out on *locator*, waiting at most *patience_seconds* for each."""
        self._locator = locator
        self._patience = patience_seconds
        self._token = f"{_NAME}-{secrets.token_hex(8)}"
        self._key = f"{_NAME}/{self._token}"
        self._guard = f"{self._key}-guard"
        self._storage = locator.storage()
        self._began = (SystemClock().now(), time.time())

    def steps(self) -> list[Step]:
        """Return the steps by name."""
        return [
            ("store", self._describe),
            ("create a key", self._create),
            ("read, round trips", self._read),
            ("update, round trips", self._update),
            ("compare and set", self._compare_and_set),
            ("guard a write", self._guard_a_write),
            ("list a namespace", self._list),
            ("observe a change", self._listen),
            ("delete a key", self._delete),
            ("join a group", self._join),
            ("lead a service", self._lead),
            ("fence a write", self._be_fenced),
            ("clock", self._look_at_clock),
        ]

    def clean_up(self) -> None:
        """Remove the keys that an unfinished step may have left, if the store allows it."""
        for key in (self._key, self._guard):
            with suppress(Kip30Error):
                self._storage.delete(key)

    def _describe(self) -> str:
        described = self._locator.backend.describe()
        if "finding" in described:
            raise StoreError(described["finding"])
        return ", ".join(f"{name} {value}" for name, value in described.items())

    def _create(self) -> str:
        return f"version {self._storage.put(self._key, '')}"

    def _read(self) -> str:
        return _round_trips(lambda: self._storage.get(self._key))

    def _update(self) -> str:
        return _round_trips(lambda: self._storage.update(self._key, ""))

    def _compare_and_set(self) -> str:
        version = self._storage.update(self._key, "")
        return f"version {self._storage.compare_and_set(self._key, version, '')}"

    def _guard_a_write(self) -> str:
        guards = {self._guard: self._storage.put(self._guard, "")}
        self._storage.update(self._key, "", guards=guards)
        self._storage.update(self._guard, "")
        try:
            self._storage.update(self._key, "", guards=guards)
        except GuardError:
            self._storage.delete(self._guard)
            return "done while the guard held, refused after it had changed"
        raise StoreError("a write was done after the key that guards it had changed")

    def _list(self) -> str:
        if self._key not in self._storage.list(_NAME):
            raise StoreError(f"the key {self._key} is not among those listed")
        return "found"

    def _listen(self) -> str:
        heard = SimpleQueue[ValueChange[str]]()
        with self._locator.listener_registry() as registry:
            registry.add_value_change_listener(self._key, heard.put)
            began = time.perf_counter()
            self._storage.update(self._key, "")
            try:
                heard.get(timeout=self._patience)
            except Empty as error:
                raise StoreError(f"no notification within {self._patience:g} s") from error
        return f"after {_milliseconds(time.perf_counter() - began)}"

    def _delete(self) -> str:
        self._storage.delete(self._key)
        return "gone"

    def _join(self) -> str:
        with self._locator.group_membership(_NAME) as group:
            group.join(self._token, "")
            if self._token not in group.membership_list():
                raise StoreError("joined, but not among the members")
        return "joined and left"

    def _lead(self) -> str:
        with self._leading() as leadership:
            epoch = leadership.epoch
        return f"elected and resigned, epoch {epoch}"

    def _be_fenced(self) -> str:
        with self._leading() as leadership:
            self._storage.put(self._key, "", fence=leadership)
            self._be_refused(Fence(_NAME, leadership.epoch - 1))
            self._storage.delete(self._key, fence=leadership)
        return "the old epoch was refused, the new one not"

    @contextmanager
    def _leading(self) -> Generator[Leadership]:
        with (
            self._locator.leader_election(_NAME) as election,
            election.lead(self._token, "", timeout_seconds=self._patience) as leadership,
        ):
            yield leadership

    def _be_refused(self, fence: Fence) -> None:
        try:
            self._storage.update(self._key, "", fence=fence)
        except FencedError:
            return
        raise StoreError(f"a write fenced with the old epoch {fence.epoch} was done")

    def _look_at_clock(self) -> str:
        began, wall_began = self._began
        passed = SystemClock().now() - began
        apart = time.time() - wall_began - passed
        if abs(apart) < _STEADY_SECONDS:
            return f"steady: {_milliseconds(apart)} off the wall clock after {passed:.1f} s"
        return (
            f"the wall clock jumped by {_milliseconds(apart)}: this does not affect kip30,"
            " but may affect other programs"
        )


def _round_trips(call: Callable[[], object]) -> str:
    times = sorted(_timed(call) for _ in range(_TRIPS))
    median, worst = times[_TRIPS // 2], times[-1]
    return f"median {_milliseconds(median)}, worst {_milliseconds(worst)} of {_TRIPS}"


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"

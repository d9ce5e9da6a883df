"""`GuardedStorage`: the group's own data, written only while the share is the writer's."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from kip30.coordinator.keys import GroupKeys
from kip30.driver import Backend, Capability
from kip30.driver.clock import Clock
from kip30.driver.records import Version
from kip30.errors import GuardError, IllegalGenerationError, UnsupportedError
from kip30.storage import Guards, Storage, Versioned

T = TypeVar("T")
R = TypeVar("R")


def check_guards(backend: Backend) -> None:
    """Return if the store of *backend* can guard writes.

    Raises:
        UnsupportedError: It cannot. Nothing was sent.
    """
    if Capability.GUARDS not in backend.capabilities:
        raise UnsupportedError(f"store {backend.name!r} does not offer guards")


class GuardedStorage(Generic[T]):
    """Values of one group by name, each written only by a member with its share. Thread-safe.

    A write passes in the generation of the member, and while the next one is formed; it is refused
    from the commit on that gives the share to another member, decided by the store in the same
    operation. While a share stays the same, writes pass through later generations, too. It costs
    nothing beyond the write, except one read after a change of the group that is not known yet.

    Reads are open to every member. A name may be any text of up to about 200 bytes.

    Every write may raise `IllegalGenerationError` (the share is another member's, or there is
    none; nothing was written), `FencedInstanceError` (another process has the instance; nothing was
    written), and what `kip30.Storage` raises.
    """

    def __init__(
        self,
        storage: Storage[T],
        keys: GroupKeys,
        attempts: Callable[[], Iterator[Guards]],
        *,
        clock: Clock,
        patience: float,
    ) -> None:
        """Use `AbstractCoordinator.storage`, or `storage_of_share`.

        *attempts* yields, for one write, the guards of the first attempt, and after each refusal
        those of the next one; it raises once the share has ended.
        """
        self._storage = storage
        self._keys = keys
        self._attempts = attempts
        self._clock = clock
        self._patience = patience

    def get(self, name: str) -> Versioned[T] | None:
        """Return value and version of *name*, or None; as `kip30.Storage.get`."""
        return self._storage.get(self._keys.data(name))

    def put(self, name: str, value: T) -> Version:
        """Create *name*; as `kip30.Storage.put`."""
        key = self._keys.data(name)
        return self._guarded(lambda guards: self._storage.put(key, value, guards=guards))

    def update(self, name: str, value: T) -> Version:
        """Replace the value of *name*; as `kip30.Storage.update`."""
        key = self._keys.data(name)
        return self._guarded(lambda guards: self._storage.update(key, value, guards=guards))

    def set(self, name: str, value: T) -> Version:
        """Create *name* or replace its value; as `kip30.Storage.set`."""
        key = self._keys.data(name)
        return self._guarded(lambda guards: self._storage.set(key, value, guards=guards))

    def compare_and_set(self, name: str, expected: Version, value: T) -> Version:
        """Replace the value of *name* if its version is *expected*; as `kip30.Storage`."""
        key = self._keys.data(name)
        return self._guarded(
            lambda guards: self._storage.compare_and_set(key, expected, value, guards=guards)
        )

    def delete(self, name: str, *, expected: Version | None = None) -> None:
        """Delete *name*; as `kip30.Storage.delete`."""
        key = self._keys.data(name)
        self._guarded(lambda guards: self._storage.delete(key, expected=expected, guards=guards))

    def list(self) -> Iterator[str]:
        """Yield the names, in the order of their keys; as `kip30.Storage.list`."""
        yield from self._keys.data_names(self._storage.list(self._keys.group))

    def _guarded(self, write: Callable[[Guards], R]) -> R:
        """Do *write* with the guards of the share; retry with newer ones while the share stays."""
        until = self._clock.now() + self._patience
        for guards in self._attempts():
            try:
                return write(guards)
            except GuardError as error:
                if self._clock.now() >= until:
                    raise IllegalGenerationError("the group keeps rebalancing") from error
        raise IllegalGenerationError("the share has ended")

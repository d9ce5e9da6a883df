"""Work on the items of a member for as long as its share is valid, with all times."""

import threading
import time
from collections.abc import Callable

from kip30_conformance.clients.item_coordinator import ItemCoordinator

_PAUSE = 0.002


class ItemWork:
    """A thread that works on the items of a member whenever its share is valid."""

    def __init__(
        self,
        member: ItemCoordinator,
        *,
        pause_seconds: float = _PAUSE,
        note: Callable[[int, list[float]], object] | None = None,
    ) -> None:
        """Work for *member*, with a pause between two checks of its share.

        *note* is called with the number of a stretch, and with the stretch, whenever one begins or
        has become longer.
        """
        self.member = member
        self._pause = pause_seconds
        self._note = note
        self._stretches: list[list[float]] = []
        self._open: dict[int, int] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def stretches(self) -> list[list[float]]:
        """Return item, first and last moment of each stretch of work, on the system's boot clock.

        At all of these moments the member could be sure that its share was valid.
        """
        with self._lock:
            return [list(one) for one in self._stretches]

    def stop(self) -> None:
        """Stop working."""
        self._stopped.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stopped.is_set():
            held, since, now = self.member.held, self.member.since, self.member.clock.now()
            # Checked after the moment was read: valid now, it was valid then, if it is the same.
            is_valid = self.member.is_valid()
            is_same = self.member.held == held and self.member.since == since
            with self._lock:
                self._extend(held if is_valid and is_same else frozenset[int](), now)
            time.sleep(self._pause)

    def _extend(self, works: frozenset[int], now: float) -> None:
        for item in self._open.keys() - works:
            del self._open[item]
        for item in works:
            if item not in self._open:
                self._open[item] = len(self._stretches)
                self._stretches.append([item, now, now])
            number = self._open[item]
            self._stretches[number][2] = now
            if self._note is not None:
                self._note(number, self._stretches[number])


def overlaps(stretches: dict[str, list[list[float]]]) -> list[str]:
    """Return, in words, where two members worked on one item at once; by member, its stretches."""
    found: list[str] = []
    by_item: dict[float, list[tuple[float, float, str]]] = {}
    for member, worked in stretches.items():
        for item, first, last in worked:
            by_item.setdefault(item, []).append((first, last, member))
    for item, all_work in by_item.items():
        latest: tuple[float, float, str] | None = None
        for work in sorted(all_work):
            if latest is not None and work[0] < latest[1] and work[2] != latest[2]:
                found.append(f"item {item:g}: {latest} and {work}")
            if latest is None or work[1] > latest[1]:
                latest = work
    return found

"""Another program beside the clients of a storm, which writes records that kip30 cannot read."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from typing_extensions import override

from kip30 import UnsupportedError
from kip30.driver.records import Kind
from kip30_conformance.neighbour.base import Neighbour, Spot
from kip30_conformance.servers import Ensemble
from kip30_conformance.storm.names import FENCED_KEY, GROUP, KEY_SET, OBSERVED_KEY

_PAUSE_SECONDS = 0.1
_NAMES = 8
_NAMESPACES = tuple(key.rpartition("/")[0] for key in (OBSERVED_KEY, FENCED_KEY))
_HUGE_SHARE = 0.02
"""Of writes: a megabyte every time would be a flood, not a neighbour."""
_COUNTED = ("written", "removed", "failed")


class Rubbish:
    """Writes and removes records by names of its own, on a thread, until it is ended.

    They are values beside those of the clients, members of their group, invalid names in their set
    of keys, and leaders of a service of its own. It survives faults of the servers.
    """

    def __init__(self, open_neighbour: Callable[[int], Neighbour], seed: int) -> None:
        """Start at once; *open_neighbour* connects, and receives another number at each attempt."""
        self._open = open_neighbour
        self._chance = random.Random(seed)  # noqa: S311  to be repeated
        self._counted = Counter[str]()
        self._written = set[Spot]()
        self._attempts = 0
        self._removal_seconds = 0.0
        self._neighbour: Neighbour | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rubbish", daemon=True)
        self._thread.start()

    @override
    def __str__(self) -> str:
        """Return how many records were written and removed so far, and how many calls failed."""
        return ", ".join(f"{self._counted[what]} {what}" for what in _COUNTED)

    def end(self, within: float) -> None:
        """Remove all its records, for up to *seconds*, and end. Idempotent."""
        self._removal_seconds = within
        self._over.set()
        self._thread.join(within)

    def _run(self) -> None:
        while not self._over.wait(self._chance.uniform(0, 2 * _PAUSE_SECONDS)):
            self._try(self._act)
        until = time.monotonic() + self._removal_seconds
        while self._written and time.monotonic() < until:
            if not self._try(self._remove_one):
                time.sleep(_PAUSE_SECONDS)
        self._hang_up()

    def _try(self, act: Callable[[Neighbour], None]) -> bool:
        """Do *act*; if that fails, reconnect before the next one."""
        try:
            if self._neighbour is None:
                self._attempts += 1
                self._neighbour = self._open(self._attempts)
            act(self._neighbour)
        except Exception:  # noqa: BLE001  each vendor's client has errors of its own
            self._counted["failed"] += 1
            self._hang_up()
            return False
        return True

    def _hang_up(self) -> None:
        neighbour, self._neighbour = self._neighbour, None
        if neighbour is not None:
            with suppress(Exception):
                neighbour.close()

    def _act(self, neighbour: Neighbour) -> None:
        if len(self._written) > self._chance.randrange(2 * _NAMES):
            self._remove_one(neighbour)
        else:
            self._write_one(neighbour)

    def _write_one(self, neighbour: Neighbour) -> None:
        spot = self._spot(neighbour)
        stored = self._unreadable(neighbour, spot)
        self._written.add(spot)  # before: the answer may be lost
        neighbour.write(spot, stored)
        self._counted["written"] += 1

    def _remove_one(self, neighbour: Neighbour) -> None:
        spot = self._chance.choice(sorted(self._written, key=repr))
        neighbour.remove(spot)
        self._written.discard(spot)
        self._counted["removed"] += 1

    def _spot(self, neighbour: Neighbour) -> Spot:
        name = f"foreign{self._chance.randrange(_NAMES)}"
        spots = [
            Spot(Kind.VALUE, self._chance.choice(_NAMESPACES), name),
            Spot(Kind.MEMBER, GROUP, name),
            Spot(Kind.SERVICE, name),
        ]
        for stray in neighbour.stray_names:
            spots.append(Spot(Kind.VALUE, KEY_SET, stray, is_raw=True))
            spots.append(Spot(Kind.MEMBER, GROUP, stray, is_raw=True))
        return self._chance.choice(spots)

    def _unreadable(self, neighbour: Neighbour, spot: Spot) -> Any:
        """Return a record that kip30 cannot read; under an invalid name, any record is one."""
        beside = Spot(Kind.VALUE, spot.scope, "foreign")
        unreadable_forms = neighbour.unreadable_forms(neighbour.sound(beside, b"data"))
        is_huge = self._chance.random() < _HUGE_SHARE
        return self._chance.choice(
            [form for how, form in unreadable_forms.items() if ("huge" in how) == is_huge]
        )


def begun(ensemble: Ensemble, namespace: str, seed: int) -> Rubbish | None:
    """Let another program write in *namespace*; return None if the store has none."""

    def connect(attempt: int) -> Neighbour:
        return ensemble.neighbour(namespace, first=attempt)

    try:
        connect(0).close()
    except UnsupportedError:
        return None
    return Rubbish(connect, seed)

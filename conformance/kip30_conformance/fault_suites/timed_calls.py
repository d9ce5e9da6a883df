"""A call of every kind that needs the store, its outcome, and its duration."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from kip30 import Kip30Error, PartialWriteError, PluginLocator, Storage, UnsupportedError
from kip30_conformance.clients.crowd import together
from kip30_conformance.harness import Harness
from kip30_conformance.polling import time_scale
from kip30_conformance.stall_detector import StallDetector

_BUSY_SECONDS = 0.2

WRITTEN_KEYS = {
    "put": "put",
    "put_many": "put_many",
    "update": "updated",
    "set": "set",
    "compare_and_set": "swapped",
    "delete": "deleted",
}
"""The writes to keys, and which key each of them is about."""

_OLD = dict.fromkeys(["updated", "swapped", "deleted"], "old")

Call = Callable[[], object]


class Ended(NamedTuple):
    """Outcome of a call, its result or its error, and its duration in seconds.

    Seconds in which this process was stalled do not count: no call can end in them.
    """

    outcome: object
    seconds: float


class Caller:
    """Makes every kind of call for one client.

    Attributes:
        reads: Those that change nothing, by name.
        writes: Those that do; `done` returns which of them took effect.
    """

    def __init__(self, client: PluginLocator) -> None:
        """Write the records on which the calls work."""
        storage = client.storage()
        self._group = group = client.group_membership("calls")
        self._election = election = client.leader_election("calls")
        resigned = client.leader_election("resigned")
        version = storage.put_many(_OLD)["swapped"]
        group.join("leaver", "old")
        group.join("stayer", "old")
        resigned.nominate("c", "")
        self.reads: dict[str, Call] = {
            "get": lambda: storage.get("k"),
            "fetch": lambda: storage.fetch("k").result(),
            "fetch_many": lambda: storage.fetch_many(["k"]).result(),
            "list": lambda: list(storage.list("n")),
            "membership": group.membership,
            "membership_list": group.membership_list,
            "get_leader": election.get_leader,
        }
        self.writes: dict[str, Call] = {
            "put": lambda: storage.put("put", "new"),
            "put_many": lambda: storage.put_many({"put_many": "new"}),
            "update": lambda: storage.update("updated", "new"),
            "set": lambda: storage.set("set", "new"),
            "compare_and_set": lambda: storage.compare_and_set("swapped", version, "new"),
            "delete": lambda: storage.delete("deleted"),
            "join": lambda: group.join("joiner", ""),
            "update a member": lambda: group.update("stayer", "new"),
            "leave": lambda: group.leave("leaver"),
            "nominate": lambda: election.nominate("c", ""),
            "resign": lambda: resigned.resign("c"),
        }

    def make_all(self) -> dict[str, Ended]:
        """Make all calls at once, and return how each of them ended."""
        return make({**self.reads, **self.writes})

    def done(self, reader: Storage[str]) -> set[str]:
        """Return which of the `writes` to keys show in the store, as *reader* reads it."""
        keys = reader.fetch_many(WRITTEN_KEYS.values()).result()
        return {write for write, key in WRITTEN_KEYS.items() if keys.get(key) != _OLD.get(key)}


def make(calls: Mapping[str, Call]) -> dict[str, Ended]:
    """Make all *calls* at once, and return how each of them ended."""
    with StallDetector() as stalls:
        ended = together([partial(_timed, call, stalls) for call in calls.values()])
    return {
        name: one
        for name, one in zip(calls, ended, strict=True)
        if not isinstance(one.outcome, UnsupportedError)
    }


def late(ended: Mapping[str, Ended], harness: Harness) -> dict[str, float]:
    """Return the calls that took longer than the operation timeout and a tenth of it."""
    longest = 1.1 * harness.operation_seconds + _BUSY_SECONDS * time_scale()
    return {name: one.seconds for name, one in ended.items() if one.seconds > longest}


def _timed(call: Call, stalls: StallDetector) -> Ended:
    started = time.monotonic()
    try:
        outcome = call()
    except PartialWriteError as error:
        (outcome,) = error.failed.values()
    except Kip30Error as error:
        outcome = error
    return Ended(outcome, stalls.running_seconds(started))

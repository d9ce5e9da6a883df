"""The final content of the store, and the keys that must exist at the start."""

from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path

from kip30 import Kip30Error, PluginLocator, Storage
from kip30.driver.records import Version
from kip30.history.recorder import HistoryRecorder, read_rows
from kip30_conformance.storm.names import (
    DIRECTED_SERVICE,
    FENCED_KEY,
    GROUP,
    KEY_SET,
    OBSERVED_KEY,
    SERVICE,
)
from kip30_conformance.storm.storm_history import Final

_WHO = "storm"


def prepare(config: Mapping[str, str], history: Path) -> None:
    """Create the keys that are only updated later."""
    with (
        closing(HistoryRecorder(history)) as recorder,
        PluginLocator().startup(config) as locator,
    ):
        for key, value in ((OBSERVED_KEY, "first"), (FENCED_KEY, "0 first")):
            with recorder.call(_WHO, "put", key, value) as call:
                call.ok(version=locator.storage().put(key, value))


def read_final(config: Mapping[str, str], history: Path) -> Final | None:
    """Read everything that clients have worked on; None if the store cannot be read."""
    keys = sorted({row.key for row in read_rows(history)})
    with suppress(Kip30Error), PluginLocator().startup(config) as locator:
        leader = locator.leader_election(SERVICE).get_leader()
        directed = locator.leader_election(DIRECTED_SERVICE).get_leader()
        return Final(
            values=_values(locator.storage(), keys, history),
            members=sorted(locator.group_membership(GROUP).membership_list()),
            leader=None if leader is None else (leader.id, leader.epoch),
            keys=sorted(locator.storage().list(KEY_SET)),
            directed_leader=None if directed is None else directed.id,
        )
    return None


def _values(
    storage: Storage[str], keys: Iterable[str], history: Path
) -> dict[str, tuple[str, Version] | None]:
    values: dict[str, tuple[str, Version] | None] = {}
    with closing(HistoryRecorder(history)) as recorder:
        for key in keys:
            values[key] = _value(storage, key, recorder)
    return values


def _value(
    storage: Storage[str], key: str, recorder: HistoryRecorder
) -> tuple[str, Version] | None:
    with recorder.call(_WHO, "get", key) as call:
        found = storage.get(key)
        if found is None:
            call.ok()
            return None
        call.ok(found.value, version=found.version)
        return found.value, found.version

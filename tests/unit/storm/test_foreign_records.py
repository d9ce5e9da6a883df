from pathlib import Path

from kip30 import PluginLocator
from kip30_conformance.neighbour.base import Neighbour
from kip30_conformance.neighbour.embedded import EmbeddedNeighbour
from kip30_conformance.polling import eventually
from kip30_conformance.storm.foreign_records import Rubbish
from kip30_conformance.storm.names import GROUP, KEY_SET, OBSERVED_KEY

ROOT = "rubbish"
WITHIN = 10.0


def counts(rubbish: Rubbish) -> dict[str, int]:
    return {what: int(count) for count, what in map(str.split, str(rubbish).split(", "))}


def test_it_writes_beside_clients_and_removes_all_in_the_end(tmp_path: Path) -> None:
    settings = {
        "plugin.backend": "embedded",
        "plugin.embedded.directory": str(tmp_path / "state"),
        "plugin.namespace": ROOT,
    }
    with PluginLocator().startup(settings) as client:
        storage, group = client.storage(), client.group_membership(GROUP)
        storage.put(OBSERVED_KEY, "told")
        storage.put(f"{KEY_SET}/k0", "set")
        group.join("c0", "")
        file = tmp_path / "state" / "kip30.db"
        rubbish = Rubbish(lambda _: EmbeddedNeighbour(file, ROOT), seed=1)
        try:
            eventually(lambda: counts(rubbish)["written"] > 20, within=WITHIN)
        finally:
            rubbish.end(WITHIN)
        assert storage.get(OBSERVED_KEY)
        assert list(storage.list(KEY_SET)) == [f"{KEY_SET}/k0"]
        assert group.membership() == {"c0": ""}
        assert not group.membership().unreadable
    counted = counts(rubbish)
    assert counted["failed"] == 0
    assert counted["removed"] > 0


def test_it_connects_again_after_a_failure() -> None:
    attempts: list[int] = []

    def refuse(attempt: int) -> Neighbour:
        attempts.append(attempt)
        raise ConnectionRefusedError

    rubbish = Rubbish(refuse, seed=1)
    try:
        eventually(lambda: len(attempts) >= 3, within=WITHIN)
    finally:
        rubbish.end(WITHIN)
    assert attempts == list(range(1, len(attempts) + 1))
    assert counts(rubbish) == {"written": 0, "removed": 0, "failed": len(attempts)}

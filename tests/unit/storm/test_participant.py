"""One client of a storm on the embedded store."""

import time
from pathlib import Path

import pytest

from kip30 import PluginLocator
from kip30_conformance.polling import eventually
from kip30_conformance.storm.call_log import CallTimer
from kip30_conformance.storm.final_state import prepare
from kip30_conformance.storm.finding import Conclusion
from kip30_conformance.storm.history_files import Slices
from kip30_conformance.storm.liveness_check import calls_end
from kip30_conformance.storm.participant import Participant
from kip30_conformance.storm.process_journal import ProcessJournal, read_journals
from kip30_conformance.storm.storm_history import StormRecord
from kip30_conformance.storm.timing import Timing
from kip30_conformance.storm.workload import ActionContext

pytestmark = pytest.mark.medium


def test_an_error_that_ends_a_thread_is_a_violation(tmp_path: Path) -> None:
    """Without its folder no term is recorded, and I1 would judge what is left."""
    journals, history, timing = tmp_path / "journals", tmp_path / "history", Timing()
    for folder in (journals, history, tmp_path / "directed-terms"):
        folder.mkdir()
    config = {
        "plugin.backend": "embedded",
        "plugin.embedded.directory": str(tmp_path / "state"),
        "plugin.operations": "true",
        **timing.properties(),
    }
    prepare(config, history)
    with (
        ProcessJournal(journals, "c0.1") as journal,
        CallTimer(journal, timing.limit) as calls,
        PluginLocator().startup(config) as locator,
    ):
        context = ActionContext(
            process="c0.1",
            locator=locator,
            calls=calls,
            journal=journal,
            history=history,
            slices=Slices(time.monotonic(), timing.slice),
            clients=1,
        )
        participant = Participant(context, tmp_path)
        participant.start()

        def found() -> StormRecord | None:
            record = StormRecord(journals=read_journals(journals))
            return record if calls_end(record).conclusion is Conclusion.VIOLATION else None

        record = eventually(found, within=30.0)
        assert participant.end(3 * participant.longest_limit) == []
    (broken,) = calls_end(record).violations
    assert broken.startswith("c0.1: validity raised an error that is not one of kip30's")
    assert "FileNotFoundError" in broken

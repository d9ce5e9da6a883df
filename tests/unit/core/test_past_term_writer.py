"""Notes of terms whose store does not answer."""

import pytest

from kip30.operations import read_past_terms
from kip30.runtime import past_term_writer
from kip30.runtime.past_terms import PastTerm
from kip30_conformance.polling import eventually

from .conftest import OpenClient
from .trouble import faults

pytestmark = pytest.mark.virtual_time

OBEYS = {"plugin.operations": True}


def test_the_end_of_a_term_is_noted_after_an_outage(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a long one: these are the ends that operators look for."""
    monkeypatch.setattr(past_term_writer, "_PAUSE_SECONDS", 0.2)
    client, other = open_client(**OBEYS), open_client()
    election = client.leader_election("s")
    election.nominate("a", "")
    eventually(lambda: read_past_terms(other, "s"))
    faults(client).fail("storage.read", times=12)
    election.resign("a")

    def ended() -> list[PastTerm]:
        return [one for one in read_past_terms(other, "s") if one.until is not None]

    (term,) = eventually(ended, within=30)
    assert (term.candidate, term.ended) == ("a", "resigned")
    assert faults(client).counted() == 12
    assert election.nominate("a", "")
    eventually(lambda: len(read_past_terms(other, "s")) == 2)


def test_a_note_is_given_up_at_last(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(past_term_writer, "_OUTAGE_SECONDS", 1.0)
    monkeypatch.setattr(past_term_writer, "_PAUSE_SECONDS", 0.2)
    client = open_client(**OBEYS)
    failing = faults(client)
    failing.fail("storage.read", times=None)
    election = client.leader_election("s")
    election.nominate("a", "")
    eventually(lambda: "1 terms of 's' are not noted: " in caplog.text, within=30)
    failing.clear()
    election.resign("a")
    eventually(lambda: [one.ended for one in read_past_terms(client, "s")] == ["resigned"])

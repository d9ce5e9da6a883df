"""Secrets that are rotated while a client runs: one class for all stores."""

from abc import ABC, abstractmethod
from pathlib import Path

import pytest

from kip30 import Kip30Error, Leadership, PluginLocator, ValueChange
from kip30.config import Written
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually
from tests.unit.clients import PATIENT, Open


class Rotation(ABC):
    """A secret that a client takes from a file, and that the servers replace.

    Attributes:
        first: The one that is valid at the beginning.
    """

    first: str

    @abstractmethod
    def credentials(self, reference: str) -> dict[str, Written]:
        """Return the settings of a client, with *reference* in place of the secret."""

    def prepare(self) -> str:
        """Return a new secret; the first one stays valid."""
        return "geheim-neu"

    @abstractmethod
    def apply(self, secret: str) -> None:
        """Let the servers accept *secret*, and the first one no longer."""


class RotationCases:
    """A subclass has a fixture ``rotation``, and ``open_client`` of the same servers."""

    @pytest.mark.parametrize("is_file_first", [True, False], ids=["file first", "server first"])
    def test_a_client_goes_on_after_a_rotation(
        self,
        open_client: Open,
        rotation: Rotation,
        tmp_path: Path,
        is_file_first: bool,  # noqa: FBT001  a parameter of the test
    ) -> None:
        file = tmp_path / "secret"
        _write(file, rotation.first)
        client = open_client(**{**PATIENT, **rotation.credentials(f"${{file:{file}}}")})
        heard, lost = Recorder[ValueChange[str]](), Recorder[Leadership]()
        client.listener_registry().add_value_change_listener("rotated/k", heard)
        group, election = client.group_membership("rotated"), client.leader_election("rotated")
        group.join("m", "")
        assert election.nominate("c", "", on_lost=lost)
        client.storage().set("rotated/k", "before")
        secret = rotation.prepare()
        if is_file_first:
            _write(file, secret)
            rotation.apply(secret)
        else:
            rotation.apply(secret)
            eventually(lambda: not _goes(client, "refused"), what="the old secret is refused")
            _write(file, secret)
        eventually(lambda: _goes(client, "after"), within=30, what="the new secret is used")
        eventually(
            lambda: heard.events and heard.events[-1].value == "after", what="the listener goes on"
        )
        group.update("m", "after")
        assert election.leadership("c")
        assert lost.events == []


def _write(file: Path, secret: str) -> None:
    """Replace *file* at once, as programs that rotate secrets do."""
    draft = file.with_suffix(".draft")
    draft.write_text(f"{secret}\n")
    draft.replace(file)


def _goes(client: PluginLocator, value: str) -> bool:
    try:
        client.storage().set("rotated/k", value)
    except Kip30Error:
        return False
    return True

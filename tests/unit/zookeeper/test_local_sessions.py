"""Servers whose sessions are known to one of them alone."""

import pytest

from kip30 import StoreError
from kip30_backends.zookeeper.errors import LocalSessionError, refusal, translate
from kip30_conformance.servers import start
from tests.unit.clients import PATIENT, Open


def test_a_local_session_error_names_the_server_setting_to_change() -> None:
    error = translate(refusal(-120), writes=True)
    assert isinstance(error, LocalSessionError)
    assert "set localSessionsUpgradingEnabled=true on all servers" in str(error)


@pytest.mark.parametrize("code", [-8, -108, -111, -116, -121])
def test_no_number_is_without_words(code: int) -> None:
    assert not str(refusal(code)).startswith("error ")


@pytest.mark.large
def test_a_local_session_can_hold_nothing(
    open_client: Open, tmp_path_factory: pytest.TempPathFactory
) -> None:
    words = ["localSessionsEnabled=true", "localSessionsUpgradingEnabled=false"]
    folder = tmp_path_factory.mktemp("local")
    with start("zookeeper", 3, folder=folder, extra=words) as servers:
        client = open_client(**PATIENT, **servers.settings())
        client.storage().put("n/k", "v")
        with pytest.raises(StoreError, match="localSessionsUpgradingEnabled=true"):
            client.group_membership("g").join("m", "")
        with pytest.raises(StoreError, match="localSessionsUpgradingEnabled=true"):
            client.leader_election("s").nominate("c", "")

"""The line store against the conformance suite, on a server that is killed, stopped and cut off."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stevedore import ExtensionManager

from kip30 import KeySetChange
from kip30_conformance.all_suites import suite_classes
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually, throughout, time_scale
from kip30_conformance.server_harness import ServerHarness
from kip30_conformance.servers import start
from tests.unit.threads import no_threads

pytestmark = pytest.mark.large


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Install the package, for its entry points, where this process and its children find it."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(folder), str(Path(__file__).parent)], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", str(folder), prepend=":")
        # Entry points that this process looked up before the installation lack this package.
        patch.setattr(ExtensionManager, "ENTRY_POINT_CACHE", {})
        yield folder


@pytest.fixture(scope="module")
def harness(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHarness]:
    assert installed.exists()
    with start("line", folder=tmp_path_factory.mktemp("line")) as ensemble:
        yield ServerHarness(ensemble)


# These check that the core survives faults, on any store; the five stores run them.
CORES_OWN = (
    *("TestElectionFault", "TestMembershipFault", "TestMembershipRejoin"),
    *("TestMembershipRemoval", "TestRecovery", "TestRunnerFault", "TestThreadFault"),
    *("TestCoordinatorFault", "TestRecipeFault", "TestVacancyFault"),
    *("TestControllerFault", "TestCoordinatorWrite", "TestShareFault"),
)

globals().update({name: suite for name, suite in suite_classes().items() if name not in CORES_OWN})


def test_names_are_listed_and_observed_without_the_values(harness: ServerHarness) -> None:
    big, heard = "x" * 50_000, Recorder[KeySetChange]()
    with harness.open(harness.unique_root()) as client:
        storage, link = client.storage(), harness.link(client)
        names = {f"n/{number}" for number in range(20)}
        storage.put_many(dict.fromkeys(names, big))
        before = link.counted().to_client
        assert set(storage.list("n")) == names
        client.listener_registry().add_key_set_change_listener("n", heard, initial=True)
        assert heard.expect_count(1)[0].keys == names
        storage.put("n/last", "")
        assert heard.expect_count(2)[1].added == {"n/last"}
        assert link.counted().to_client - before < len(big)


def test_renewals_need_no_thread_of_the_moment(harness: ServerHarness) -> None:
    seconds = 3.0 * time_scale()
    timeout: dict[str, Any] = {"plugin.session.timeout.ms": round(seconds * 1000)}
    with harness.open(harness.unique_root(), **timeout) as client:
        election = client.leader_election("s")
        assert election.nominate("c", "")
        eventually(lambda: election.leadership("c") is not None, what="it leads")
        term = election.leadership("c")
        assert term is not None
        with no_threads("kip30-line-renewal"):
            throughout(term.is_valid, seconds=1.3 * seconds, what="the leadership is renewed")

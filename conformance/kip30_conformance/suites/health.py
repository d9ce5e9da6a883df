"""Guarantees of `kip30 run --listen` on every store."""

from collections.abc import Mapping
from contextlib import ExitStack

from kip30.config import Written
from kip30_conformance.clients.health_probes import HealthProbe, start_listening
from kip30_conformance.clients.run_processes import Arena
from kip30_conformance.polling import eventually, throughout
from kip30_conformance.suite import Freeze
from kip30_conformance.suites.run_command import RunnerSuite


class HealthTests(RunnerSuite):
    """A runner answers probes, whatever the store does."""

    def test_O71_liveness_without_store(
        self, arena: Arena, freeze: Freeze, timeouts: Mapping[str, Written]
    ) -> None:
        """While the store does not answer, runners are alive, and none leads for long.

        One leads before, and again when the store answers; the other one may follow it.
        """
        session_seconds = float(str(timeouts["plugin.session.timeout.ms"])) / 1000

        def is_alive(probe: HealthProbe) -> bool:
            status, record = probe.ask("/liveness")
            return status == 200 and record["seconds_since_iteration"] < 2 * session_seconds

        runners = [start_listening(arena) for _ in range(2)]
        with ExitStack() as closing:
            probes = [closing.enter_context(HealthProbe.of(runner)) for runner in runners]

            def lead_and_follow() -> bool:
                paths = ("/leader", "/replica", "/readiness")
                told = [tuple(one.ask(path).status for path in paths) for one in probes]
                return sorted(told) == [(200, 503, 200), (503, 200, 200)]

            eventually(lead_and_follow, within=30, what="one leads, and the other may follow")
            with freeze():
                seconds = 2.2 * session_seconds
                throughout(lambda: all(map(is_alive, probes)), seconds=seconds, what="alive")
                assert [one.ask("/leader").status for one in probes] == [503, 503]
            eventually(lead_and_follow, within=30, what="one leads again")
            assert all(map(is_alive, probes))

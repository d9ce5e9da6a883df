"""HAProxy in front of three runners: requests reach the leader, and no former leader writes."""

import logging
from http import HTTPStatus
from pathlib import Path
from statistics import median

import pytest

from benchmarks.balancer.client import NO_ANSWER
from benchmarks.balancer.failovers import fail_over
from benchmarks.balancer.haproxy import Checks
from kip30_conformance.polling import time_scale
from tests.unit.haproxy import find_haproxy

from .shell import SESSION_SECONDS

log = logging.getLogger(__name__)

FAILOVERS = 100
STATUSES = {
    HTTPStatus.OK,
    HTTPStatus.CONFLICT,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
    NO_ANSWER,
}


@pytest.mark.large
@pytest.mark.timeout(1800)
@pytest.mark.case("O70")
def test_a_balancer_follows_the_leader_and_no_former_one_writes(tmp_path: Path) -> None:
    find_haproxy()
    settings = {
        "plugin.backend": "embedded",
        "plugin.embedded.directory": str(tmp_path / "store"),
        "plugin.session.timeout.ms": f"{SESSION_SECONDS * time_scale() * 1000:.0f}",
    }
    outcome = fail_over(settings, tmp_path, FAILOVERS, checks=Checks(seconds=0.1))
    assert outcome.late_writes == []
    assert len(outcome.writes) > FAILOVERS
    assert outcome.statuses.keys() <= STATUSES
    outages = [one.outage for one in outcome.failovers]
    log.info("no write for %.2f s, at most %.2f s", median(outages), max(outages))

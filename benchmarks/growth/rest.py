"""Cost of sessions and led services while nothing happens."""

import os
import time
from contextlib import ExitStack

from benchmarks.clients.library import VALUE
from benchmarks.process_use import calls_begun, requests_sent, segments_sent
from benchmarks.store_address import StoreAddress

SECONDS = 20.0
_SETTLE_SECONDS = 5.0
_KEEP_ALIVE = "LeaseKeepAlive"


def sessions(address: StoreAddress, size: int) -> dict[str, float]:
    """Return requests a second and CPU of each session, which has one member."""
    with ExitStack() as stack:
        kept = [stack.enter_context(address.open("rest")) for _ in range(size)]
        groups = [one.group_membership("rest") for one in kept]
        for number, group in enumerate(groups):
            group.join(f"member-{number}", VALUE)
        return {
            f"at rest, each session: {what}": value / size
            for what, value in _at_rest(address).items()
        }


def services(address: StoreAddress, size: int) -> dict[str, float]:
    """Return requests a second and CPU of one process that leads *size* services."""
    with address.open("services") as locator:
        elections = [locator.leader_election(f"service-{number}") for number in range(size)]
        for one in elections:
            assert one.nominate("candidate", VALUE)
        return {f"at rest, services led: {what}": one for what, one in _at_rest(address).items()}


def _at_rest(address: StoreAddress) -> dict[str, float]:
    time.sleep(_SETTLE_SECONDS)
    began, sent, spent = time.monotonic(), _sent(address), time.process_time_ns()
    time.sleep(SECONDS)
    took = time.monotonic() - began
    cpu = {"CPU": (time.process_time_ns() - spent) / 1e6 / took}
    return cpu | {what: (now - sent[what]) / took for what, now in _sent(address).items()}


def _sent(address: StoreAddress) -> dict[str, float]:
    """Return what this process, which is the only client, has sent so far."""
    if address.is_embedded:
        return {}
    process = [os.getpid()]
    sent = {"requests": requests_sent(address, process)}
    if address.store == "etcd":
        sent["keep-alives"] = calls_begun(address).get(_KEEP_ALIVE, 0)
        sent["segments"] = segments_sent(process)
    return sent

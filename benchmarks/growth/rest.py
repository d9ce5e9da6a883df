"""Cost of sessions and led services while nothing happens."""

import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterable, Mapping
from contextlib import ExitStack

from benchmarks.clients.library import VALUE
from benchmarks.store_address import StoreAddress

SECONDS = 20.0
_SETTLE_SECONDS = 5.0
_KEEP_ALIVE = "LeaseKeepAlive"
_CALLS = re.compile(r'^grpc_server_started_total{grpc_method="(\w+)".*} (\S+)$', re.MULTILINE)
_SEGMENTS = re.compile(r"\bdata_segs_out:(\d+)")


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
    """Return what this process has sent so far.

    On etcd a segment is no request: HTTP/2 answers pings, and opens windows. There the server says
    how many calls have begun; this process is its only client.
    """
    if address.is_embedded:
        return {}
    sent = segments(_sockets(), os.getpid())
    if address.store != "etcd":
        return {"requests": sent}
    methods = _begun(address)
    return {
        "requests": sum(methods.values()),
        "keep-alives": methods.get(_KEEP_ALIVE, 0),
        "segments": sent,
    }


def sent_by(address: StoreAddress, processes: Iterable[int]) -> float:
    """Return how many requests *processes* have sent so far, which are the only clients of etcd."""
    if address.is_embedded:
        return 0
    if address.store == "etcd":
        return sum(_begun(address).values())
    sockets = _sockets()
    return sum(segments(sockets, process) for process in processes)


def _begun(address: StoreAddress) -> Mapping[str, float]:
    with urllib.request.urlopen(f"http://{address.location}/metrics") as told:
        return calls(told.read().decode())


def calls(metrics: str) -> Mapping[str, float]:
    """Return how many calls of each method an etcd server says have begun."""
    return {method: float(number) for method, number in _CALLS.findall(metrics)}


def _sockets() -> str:
    # One line for each socket, with its process.
    return subprocess.run(["ss", "-tinpHO"], check=True, capture_output=True, text=True).stdout


def segments(sockets: str, process: int) -> int:
    """Add up what the sockets of *process* have sent, as ``ss -tinpHO`` reports it."""
    mine = (line for line in sockets.splitlines() if f"pid={process}," in line)
    return sum(int(found) for line in mine for found in _SEGMENTS.findall(line))

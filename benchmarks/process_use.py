"""Use of the machine by some processes: CPU time, and requests to a store."""

import re
import subprocess
import urllib.request
from collections.abc import Iterable, Mapping

import psutil

from benchmarks.store_address import StoreAddress

_CALLS = re.compile(r'^grpc_server_started_total{grpc_method="(\w+)".*} (\S+)$', re.MULTILINE)
_SEGMENTS = re.compile(r"\bdata_segs_out:(\d+)")


def cpu_milliseconds(processes: Iterable[int]) -> float:
    """Return the CPU time that *processes* have used so far."""
    times = [psutil.Process(one).cpu_times() for one in processes]
    return 1e3 * sum(one.user + one.system for one in times)


def requests_sent(address: StoreAddress, processes: Iterable[int]) -> float:
    """Return how many requests *processes* have sent so far, which are the only clients of etcd.

    On etcd a segment is no request: HTTP/2 answers pings, and opens windows. There the server says
    how many calls have begun.
    """
    if address.is_embedded:
        return 0
    return (
        sum(calls_begun(address).values()) if address.store == "etcd" else segments_sent(processes)
    )


def calls_begun(address: StoreAddress) -> Mapping[str, float]:
    """Return how many calls of each method have begun on an etcd server."""
    with urllib.request.urlopen(f"http://{address.location}/metrics") as answer:
        return calls(answer.read().decode())


def calls(metrics: str) -> Mapping[str, float]:
    """Return how many calls of each method an etcd server says have begun."""
    return {method: float(number) for method, number in _CALLS.findall(metrics)}


def segments_sent(processes: Iterable[int]) -> float:
    """Return how many segments with data the sockets of *processes* have sent so far."""
    # One line for each socket, with its process.
    command = ["ss", "-tinpHO"]
    sockets = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return sum(segments(sockets, process) for process in processes)


def segments(sockets: str, process: int) -> int:
    """Add up what the sockets of *process* have sent, as ``ss -tinpHO`` reports it."""
    mine = (line for line in sockets.splitlines() if f"pid={process}," in line)
    return sum(int(found) for line in mine for found in _SEGMENTS.findall(line))

"""Cost of polling while nothing happens: reads of the store, as its server counts them."""

import time
from contextlib import closing

from benchmarks.clients.cassandra import Client
from benchmarks.report.figure import Figure
from benchmarks.store_address import StoreAddress

SECONDS = 20.0
_EACH = 4
_AT_REST_SECONDS = 5.0
_COUNTED = "SELECT count, keyspace_name FROM system_views.coordinator_read_latency"


def measure(address: StoreAddress) -> list[Figure]:
    """Watch values in namespaces of their own, groups and services."""
    with address.open("looks") as locator, closing(Client(address)) as client:
        registry, kept = locator.listener_registry(), []
        for number in range(_EACH):
            registry.add_value_change_listener(f"looks-{number}/key", _ignore)
            group = locator.group_membership(f"looks-{number}")
            group.add_listener(_ignore)
            election = locator.leader_election(f"looks-{number}")
            election.add_listener(_ignore)
            kept += [group, election]
        time.sleep(_AT_REST_SECONDS)
        began, before = time.monotonic(), _reads(client)
        time.sleep(SECONDS)
        rate = (_reads(client) - before) / (time.monotonic() - began)
    return [
        Figure(
            name="reads at rest for each watched thing",
            value=rate / (3 * _EACH),
            unit="reads/s",
            at_most=2,
        )
    ]


def _reads(client: Client) -> int:
    return sum(row["count"] for row in client.query(_COUNTED) if row["keyspace_name"] == "kip30")


def _ignore(_change: object) -> None:
    """Ignore the change."""

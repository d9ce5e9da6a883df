"""The process whose members join and leave, while another process puts and deletes keys.

``python -m benchmarks.deletions.member_churn ADDRESS NAMESPACE GROUP`` prints ``ready``. At each
line of input, the number of the first member, the one after the last, and seconds, members join and
leave until all have, or that time is over. Then it prints ``left`` and how many did.
"""

import sys
import time
from collections.abc import Mapping

from benchmarks.processes import print_line
from benchmarks.store_address import StoreAddress
from kip30 import PluginLocator
from kip30.driver import MembershipDriver
from kip30.driver.records import new_nonce

_AT_ONCE = 32
_PATIENT = {
    "plugin.session.timeout.ms": "60000",
    "plugin.operation.timeout.ms": "30000",
    "plugin.connect.timeout.ms": "120000",
}


def patient(settings: Mapping[str, str], namespace: str) -> dict[str, str]:
    """Return *settings* with timeouts that a busy machine keeps."""
    return {**settings, **_PATIENT, "plugin.namespace": namespace}


def main(address: str, namespace: str, group: str) -> None:
    settings = StoreAddress("cassandra", address).settings()
    with PluginLocator().startup(patient(settings, namespace)) as locator:
        print_line("ready")
        for line in sys.stdin:
            first, end, seconds = map(int, line.split())
            until, one = time.monotonic() + seconds, first
            while one < end and time.monotonic() < until:
                numbers = range(one, min(one + _AT_ONCE, end))
                _come_and_go(locator.backend.membership, group, numbers)
                one = numbers.stop
                print_line("leaving")  # a reader gives up after a minute without a line
            print_line("left", one - first)


def _come_and_go(driver: MembershipDriver, group: str, numbers: range) -> None:
    """Join and leave by the driver, without the callbacks and watch of a `Member`."""
    claiming = [driver.claim(group, f"{one:09}", new_nonce(), b"") for one in numbers]
    for released in driver.release_many(group, [one.result() for one in claiming]):
        released.result()


if __name__ == "__main__":
    main(*sys.argv[1:])

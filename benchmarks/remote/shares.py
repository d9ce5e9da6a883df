"""From the kill -9 of one ``kip30 coordinate`` to the next command, in session timeouts."""

from benchmarks.remote.crash import lasting
from benchmarks.report.figure import Figure
from benchmarks.shares import takeovers
from benchmarks.store_address import StoreAddress

RUNNERS = 2
ROUNDS = 5


def measure(address: StoreAddress) -> list[Figure]:
    wait = lasting(address.store)
    chosen = address.settings("shares", wait.session_seconds)
    floor = 1000 * (wait.session_seconds + wait.later_seconds)
    shares = tuple(one / floor for one in takeovers(chosen, RUNNERS, ROUNDS))
    name = f"kill -9 of one of {RUNNERS} to the next command for its items"
    return [
        Figure(name=f"{name}, worst", value=max(shares), unit=wait.unit, samples=shares),
        Figure.median(f"{name}, median", shares, wait.unit),
    ]

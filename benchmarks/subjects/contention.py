"""Many processes that campaign for one service, and as many that join one group, all at once."""

import time
from contextlib import ExitStack

from benchmarks.processes import Child
from benchmarks.report.figure import Figure
from benchmarks.roles import role
from benchmarks.store_address import StoreAddress

EACH = 20
_AT_ONCE = 4
_KINDS = ("campaign", "join")
_AT_MOST_SECONDS = 10.0


def measure(address: StoreAddress) -> list[Figure]:
    """Measure until all processes are done; an error in one of them ends it, and this."""
    with ExitStack() as stack:
        contenders = _contenders(stack, address)
        began = time.monotonic_ns()
        for child in contenders:
            child.send("go")
        answers = [child.expect("done") for child in contenders]
    took = {
        kind: max(int(at) for _, one, at, _ in answers if one == kind) - began for kind in _KINDS
    }
    leaders = sum(leads == "True" for *_, leads in answers)
    return [
        _figure("all have joined", took["join"] / 1e9, "s", _AT_MOST_SECONDS),
        _figure("all are nominated", took["campaign"] / 1e9, "s", _AT_MOST_SECONDS),
        _figure("who leads", leaders, "leaders", 1),
    ]


def _contenders(stack: ExitStack, address: StoreAddress) -> list[Child]:
    """Return processes that are connected and wait for a word."""
    kinds = [(kind, number) for number in range(EACH) for kind in _KINDS]
    contenders: list[Child] = []
    for at in range(0, len(kinds), _AT_ONCE):
        some = [
            stack.enter_context(role("contender", address, *one))
            for one in kinds[at : at + _AT_ONCE]
        ]
        for child in some:
            child.expect("ready")
        contenders += some
    return contenders


def _figure(what: str, value: float, unit: str, at_most: float) -> Figure:
    name = f"{EACH} campaign and {EACH} join at once: {what}"
    return Figure(name=name, value=value, unit=unit, at_most=at_most)

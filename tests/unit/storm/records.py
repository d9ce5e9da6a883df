"""Records made by hand: of a sound storm, and of parts of one."""

from typing import Any

from kip30.driver.records import Version
from kip30.history.operations import Operation, Outcome
from kip30_conformance.storm.names import FENCED_KEY, OBSERVED_KEY
from kip30_conformance.storm.process_journal import Row
from kip30_conformance.storm.storm_history import Final, InjectedFault, StormRecord, Term, Window

NAMES = ("c0", "c1")


def write(
    key: str, value: str, version: int | None, at: int = 0, *, op: str = "update"
) -> Operation:
    """A write that took a second from the second *at*; without *version* it had no answer."""
    answer: dict[str, Any] = {}
    if version is not None:
        returned = (at + 1) * 10**9
        answer = {"returned_ns": returned, "outcome": Outcome.OK, "version": Version(version)}
    return Operation(key=key, process="c0.1", op=op, called_ns=at * 10**9, args=(value,), **answer)


def refusal(key: str, error: str, *, op: str = "update", at: int = 0) -> Operation:
    return Operation(
        key=key,
        process="c0.1 fenced",
        op=op,
        called_ns=at * 10**9,
        returned_ns=(at + 1) * 10**9,
        outcome=Outcome.FAIL,
        args=("1 x",),
        result=error,
    )


def delete(key: str, at: int) -> Operation:
    return Operation(
        key=key,
        process="c0.1",
        op="delete",
        called_ns=at * 10**9,
        returned_ns=(at + 1) * 10**9,
        outcome=Outcome.OK,
    )


def row(what: str, at: float = 0.0, **more: Any) -> Row:
    return {"what": what, "at": at, **more}


def final(**more: Any) -> Final:
    known: dict[str, Any] = {
        "values": {OBSERVED_KEY: ("b", Version(2))},
        "members": NAMES,
        "leader": ("c1", 2),
        "keys": ["set/k1"],
        **more,
    }
    return Final(**known)


def events() -> list[Row]:
    """The events of a listener of each kind from the beginning to that end."""
    return [
        row("value event", value="a", version="1"),
        row("value event", value=None, version=None),
        row("value event", value="b", version="2"),
        row("keys event", now=["set/k0"], added=["set/k0"], removed=[]),
        row("keys event", now=["set/k1"], added=["set/k1"], removed=["set/k0"]),
        row("keys event", now=[], added=[], removed=["set/k1"]),
        row("keys event", now=["set/k1"], added=["set/k1"], removed=[]),
        row("members event", now=["c0"], added=["c0"], removed=[]),
        row("members event", now=["c0", "c1"], added=["c1"], removed=[]),
        row("members event", now=["c0"], added=[], removed=["c1"]),
        row("members event", now=["c0", "c1"], added=["c1"], removed=[]),
        row("leader event", leader=["c0", 1]),
        row("leader event", leader=None),
        row("leader event", leader=["c1", 2]),
    ]


def window(*faults: InjectedFault) -> Window:
    return Window(10.0, 12.0, 15.0, 20.0, faults)


def record(**known: Any) -> StormRecord:
    return StormRecord(
        **{
            "names": NAMES,
            "operations": [write(OBSERVED_KEY, "a", 1), write(OBSERVED_KEY, "b", 2, at=2)],
            "journals": {"c0.1": events(), "c1.1": events()},
            "terms": [Term(1, 0.0, 5.0, "c0.1"), Term(2, 6.0, 9.0, "c1.1")],
            "windows": [window(InjectedFault("link cut", "c0", 2.0, "9 bytes lost"))],
            "final": final(),
            **known,
        }
    )


def fenced(epoch: int, version: int) -> Operation:
    return write(FENCED_KEY, f"{epoch} c0.1 fenced {version}", version)

"""The checker against trying every permutation, on histories small enough for that."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise, permutations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kip30.driver.records import Version
from kip30.history.cas_register import MISMATCH, CasRegister
from kip30.history.linearizability import check_key
from kip30.history.operations import Operation, Outcome
from kip30.history.storage_register import StorageRegister
from kip30.history.verdict import Verdict

from .histories import Asked, CasStore, KeyStore, played

Replay = Callable[[Sequence[Operation]], bool]

VALUES = st.sampled_from("ab")
VERSIONS = st.builds(Version, st.integers(1, 4))


def by_brute_force(rows: Sequence[Operation], replay: Replay) -> Verdict:
    """Try every order of the answered rows and every choice of the others."""
    fits = any(replay(order) for order in _orders(rows))
    return Verdict.OK if fits else Verdict.VIOLATION


def _orders(rows: Sequence[Operation]) -> Iterator[tuple[Operation, ...]]:
    answered = [row for row in rows if row.answered]
    lost = [row for row in rows if not row.answered]
    for count in range(len(lost) + 1):
        for chosen in combinations(lost, count):
            for order in permutations([*answered, *chosen]):
                if _in_time(order):
                    yield order


def _in_time(order: Sequence[Operation]) -> bool:
    ordered = enumerate(order)
    return all(row.ends_ns >= before.called_ns for at, row in ordered for before in order[:at])


def replay_cas(value: Any, order: Sequence[Operation]) -> bool:
    for row in order:
        if row.op == "read":
            if row.answered and row.result != value:
                return False
        elif row.op == "cas" and (row.args[0] == value) == row.refused:
            return False
        elif not row.refused:
            value = row.args[-1]
    return True


class Life:
    """The value of a key from one write to the next, and the known facts about its version."""

    def __init__(self, value: Any, version: Version | None) -> None:
        self.value = value
        self.versions: set[Version] = set() if version is None else {version}
        self.barred: set[Version] = set()

    def possible(self) -> bool:
        return len(self.versions) < 2 and not self.versions & self.barred


def replay_storage(order: Sequence[Operation]) -> bool:
    lives: list[Life] = []
    life: Life | None = None
    for row in order:
        if not _allowed(row, life):
            return False
        if row.op == "delete" and not row.refused:
            life = None
        elif row.op not in ("get", "delete") and not row.refused:
            life = Life(row.args[-1], row.version)
            lives.append(life)
    known = [version for life in lives for version in life.versions]
    return all(life.possible() for life in lives) and all(a < b for a, b in pairwise(known))


def _allowed(row: Operation, life: Life | None) -> bool:
    if row.op == "get":
        return not row.answered or _seen(row, life)
    if row.refused:
        return _rightly_refused(row, life)
    if row.op == "compare_and_set" and life is not None:
        life.versions.add(row.args[0])
    return (life is None) is (row.op == "put")


def _seen(row: Operation, life: Life | None) -> bool:
    if life is None or (row.result is None and row.version is None):
        return life is None and row.result is None and row.version is None
    if row.version is not None:
        life.versions.add(row.version)
    return bool(row.result == life.value)


def _rightly_refused(row: Operation, life: Life | None) -> bool:
    if row.result == "VersionConflictError" and life is not None:
        life.barred.add(row.args[0])
    return (life is None) is bool(row.result == "KeyMissingError")


def spread(calls: st.SearchStrategy[tuple[str, tuple[Any, ...]]]) -> st.SearchStrategy[list[Asked]]:
    few, seldom = st.integers(0, 3), st.integers(0, 3).map(lambda drawn: drawn == 0)
    drawn = st.tuples(calls, few, few, seldom, st.booleans())
    return st.lists(drawn.map(lambda one: Asked(*one[0], *one[1:])), max_size=6)


CAS_OPS = st.one_of(
    st.just(("read", ())),
    st.tuples(st.just("write"), st.tuples(VALUES)),
    st.tuples(st.just("cas"), st.tuples(VALUES, VALUES)),
)
STORAGE_OPS = st.one_of(
    st.sampled_from([("get", ()), ("delete", ())]),
    st.tuples(st.sampled_from(["put", "update"]), st.tuples(VALUES)),
    st.tuples(st.just("compare_and_set"), st.tuples(VERSIONS, VALUES)),
)


@settings(max_examples=400, deadline=None)
@given(
    initial=st.none() | VALUES,
    asked=spread(CAS_OPS),
    lies=st.dictionaries(st.integers(0, 5), VALUES, max_size=3),
)
def test_a_cas_register_is_judged_as_by_brute_force(
    initial: str | None, asked: list[Asked], lies: dict[int, str]
) -> None:
    rows = played(asked, CasStore(initial).answer)
    for place, row in enumerate(rows):
        if row.acknowledged and place in lies and row.op == "read":
            rows[place] = replace(row, result=lies[place])
        elif row.acknowledged and place in lies and row.op == "cas":
            rows[place] = replace(row, outcome=Outcome.FAIL, result=MISMATCH)
    wanted = by_brute_force(rows, partial(replay_cas, initial))
    assert check_key("k", rows, CasRegister(initial)).verdict is wanted


LIES = st.dictionaries(st.integers(0, 5), st.tuples(VALUES, st.none() | VERSIONS), max_size=3)


@settings(max_examples=600, deadline=None)
@given(asked=spread(STORAGE_OPS), lies=LIES, silent=st.sets(st.integers(0, 5), max_size=4))
def test_a_storage_key_is_judged_as_by_brute_force(
    asked: list[Asked], lies: dict[int, tuple[str, Version | None]], silent: set[int]
) -> None:
    rows = played(asked, KeyStore().answer)
    for place, row in enumerate(rows):
        if row.outcome is Outcome.OK and place in lies and row.op != "delete":
            value, version = lies[place]
            rows[place] = replace(row, result=value if row.op == "get" else None, version=version)
        elif row.outcome is Outcome.OK and place in silent:
            rows[place] = replace(row, version=None)
    assert check_key("k", rows, StorageRegister()).verdict is by_brute_force(rows, replay_storage)

"""Conclusions from answers of a storage, one small history each."""

from typing import Any

import pytest

from kip30.driver.records import Fence, Version
from kip30.history.linearizability import check_key
from kip30.history.operations import Operation, Outcome
from kip30.history.storage_register import StorageRegister
from kip30.history.terms import Term
from kip30.history.verdict import Verdict

OK, VIOLATION = Verdict.OK, Verdict.VIOLATION


def done(op: str, *args: Any, **answer: Any) -> dict[str, Any]:
    return {"op": op, "args": args, "outcome": Outcome.OK, **answer}


def refused(op: str, error: str, *args: Any) -> dict[str, Any]:
    return {"op": op, "args": args, "outcome": Outcome.FAIL, "result": error}


def lost(op: str, *args: Any) -> dict[str, Any]:
    return {"op": op, "args": args}


def got(value: str, version: int | None = None) -> dict[str, Any]:
    return done("get", result=value, version=None if version is None else Version(version))


def put(value: str, version: int | None = None) -> dict[str, Any]:
    return done("put", value, version=None if version is None else Version(version))


def one_after_another(*calls: dict[str, Any]) -> list[Operation]:
    return [
        Operation(
            key="k",
            process=str(place),
            called_ns=10 * place,
            returned_ns=10 * place + 5 if "outcome" in call else None,
            **call,
        )
        for place, call in enumerate(calls)
    ]


ABSENT = done("get")
V1, V2 = Version(1), Version(2)
TRUE: Any = True

HISTORIES = {
    "a read sees the write": ([put("a", 1), got("a", 1)], OK),
    "a fetch sees the write": ([put("a", 1), done("fetch", result="a")], OK),
    "a read sees another value": ([put("a", 1), got("b", 1)], VIOLATION),
    "a read sees another version": ([put("a", 1), got("a", 2)], VIOLATION),
    "an acknowledged write is not there": ([put("a", 1), ABSENT], VIOLATION),
    "put of a key that is there": ([put("a", 1), put("b", 2)], VIOLATION),
    "refused put of a key that is there": ([put("a"), refused("put", "KeyExistsError", "b")], OK),
    "refused put of an absent key": ([refused("put", "KeyExistsError", "b")], VIOLATION),
    "refused put after a lost one": ([lost("put", "a"), refused("put", "KeyExistsError", "b")], OK),
    "refused put after a lost update": (
        [lost("update", "a"), refused("put", "KeyExistsError", "b")], VIOLATION,
    ),
    "update of an absent key": ([done("update", "a", version=V1)], VIOLATION),
    "refused update of an absent key": ([refused("update", "KeyMissingError", "a")], OK),
    "refused update of a key that is there": (
        [put("a"), refused("update", "KeyMissingError", "b")], VIOLATION,
    ),
    "update after a delete": ([put("a", 1), done("delete"), done("update", "b")], VIOLATION),
    "delete of an absent key": ([done("delete")], VIOLATION),
    "delete at the wrong version": ([put("a", 1), done("delete", V2)], VIOLATION),
    "delete at the right version": ([put("a", 1), done("delete", V1), ABSENT], OK),
    "a version that was used before the delete": (
        [put("a", 1), done("delete"), put("b", 1)], VIOLATION,
    ),
    "a version that goes back": ([put("a", 2), done("update", "b", version=V1)], VIOLATION),
    "set at the right version": (
        [put("a", 1), done("compare_and_set", V1, "b", version=V2), got("b", 2)], OK,
    ),
    "set at the wrong version": (
        [put("a", 1), done("compare_and_set", V2, "b", version=Version(3))], VIOLATION,
    ),
    "conflict at the wrong version": (
        [put("a", 1), refused("compare_and_set", "VersionConflictError", V2, "b")], OK,
    ),
    "conflict at the right version": (
        [put("a", 1), refused("compare_and_set", "VersionConflictError", V1, "b")], VIOLATION,
    ),
    "conflict at a version that shows later": (
        [put("a"), refused("compare_and_set", "VersionConflictError", V1, "b"), got("a", 1)],
        VIOLATION,
    ),
    "conflict at a version that shows later, of a value written twice": (
        [
            put("a"), refused("compare_and_set", "VersionConflictError", V1, "b"), got("a", 1),
            done("delete"), put("a", 5),
        ],
        VIOLATION,
    ),
    "conflict of an absent key": (
        [refused("compare_and_set", "VersionConflictError", V1, "b")], VIOLATION,
    ),
    "a refusal for another reason proves nothing": (
        [refused("put", "UnavailableError", "a"), refused("update", "FencedError", "a"), ABSENT],
        OK,
    ),
    "what was refused is not there": ([refused("put", "FencedError", "a"), got("a")], VIOLATION),
    "a lost write may show late": ([lost("put", "a"), ABSENT, got("a", 1)], OK),
    "a lost write shows at one version": ([lost("put", "a"), got("a", 1), got("a", 2)], VIOLATION),
    "a lost write does not vanish": ([lost("put", "a"), got("a", 1), ABSENT], VIOLATION),
    "a lost read proves nothing": ([put("a", 1), lost("get")], OK),
    "two lost writes of one value": (
        [put("x", 1), lost("update", "a"), lost("update", "a"), got("a", 2), got("a", 3)], OK,
    ),
    "one lost write is not two": (
        [put("x", 1), lost("update", "a"), got("a", 2), got("a", 3)], VIOLATION,
    ),
    "a lost write shows at a version that was used": (
        [put("x", 3), lost("update", "a"), lost("update", "a"), got("a", 3)], VIOLATION,
    ),
    "a set creates and replaces": ([done("set", "a", version=V1), done("set", "b", version=V2),
        got("b", 2)], OK),
    "a set is seen": ([put("a", 1), done("set", "b", version=V2), got("a", 1)], VIOLATION),
    "a set takes a newer version": ([put("a", 2), done("set", "b", version=V1)], VIOLATION),
    "a lost set may show late": ([put("a", 1), lost("set", "b"), got("a", 1), got("b", 2)], OK),
    "a lost set does not show twice": (
        [lost("set", "b"), got("b", 1), done("delete"), got("b", 2)], VIOLATION,
    ),
    "a set that is refused for a reason that a set cannot have": (
        [put("a", 1), refused("set", "KeyExistsError", "b")], VIOLATION,
    ),
    "a set of an absent key that is refused": ([refused("set", "KeyMissingError", "b")], VIOLATION),
    "an update that is refused because the key is there": (
        [put("a", 1), refused("update", "KeyExistsError", "b")], VIOLATION,
    ),
    "an update that is refused for a version it did not expect": (
        [put("a", 1), refused("update", "VersionConflictError", "b")], VIOLATION,
    ),
    "a refused delete without a version": ([put("a", 1), done("delete", None), ABSENT,
        refused("delete", "KeyMissingError")], OK),
    "a delete without a version that is refused for its version": (
        [put("a", 1), refused("delete", "VersionConflictError")], VIOLATION,
    ),
    "a delete of no version that is refused for its version": (
        [put("a", 1), refused("delete", "VersionConflictError", None)], VIOLATION,
    ),
    "true is not 1": ([done("put", 1, version=V1), done("get", result=True, version=V1)],
        VIOLATION),
    "1.0 is not 1": ([done("put", 1, version=V1), done("fetch", result=1.0)], VIOLATION),
    "true is true": ([done("put", TRUE, version=V1), done("fetch", result=True)], OK),
    "true in a list is not 1": ([done("put", [1]), done("fetch", result=[True])], VIOLATION),
    "two lost writes of 1 and true are not alike": (
        [put("x", 1), lost("update", 1), lost("update", TRUE), done("fetch", result=1),
         done("fetch", result=True)], OK,
    ),
    "a dict is a value": ([done("put", {"a": [1], "b": {}}), done("fetch",
        result={"b": {}, "a": [1]})], OK),
    "another dict is another value": ([done("put", {"a": 1}), done("fetch", result={"a": True})],
        VIOLATION),
    "a stored null is fetched as None": ([done("put", None, version=V1), done("fetch")], OK),
    "a stored null is got at its version": (
        [done("put", None, version=V1), done("get", version=V1)], OK,
    ),
    "a stored null is there": ([done("put", None, version=V1), ABSENT], VIOLATION),
    "a null of a lost write is fetched as None": (
        [put("a", 1), lost("update", None), done("fetch")], OK,
    ),
    "a null of a lost write was fetched, and is there": (
        [put("a", 1), lost("update", None), done("fetch"), put("b", 3)], VIOLATION,
    ),
    "a fetch of None with a value stored": ([put("a", 1), done("fetch")], VIOLATION),
    "an empty value is not absence": ([put("", 1), ABSENT], VIOLATION),
}  # fmt: skip


@pytest.mark.case("X02")
@pytest.mark.parametrize(("calls", "verdict"), HISTORIES.values(), ids=HISTORIES)
def test_each_history_has_the_expected_verdict(
    calls: list[dict[str, Any]], verdict: Verdict
) -> None:
    assert check_key("k", one_after_another(*calls), StorageRegister()).verdict is verdict


FIRST, SECOND = Fence("s", 1), Fence("s", 2)
TERM = Term("s", 1, begun_ns=0, held_ns=20)
"""Held while the first two calls and the beginning of the third run."""

FENCED: dict[str, tuple[list[dict[str, Any]], Verdict]] = {
    "a refusal of the leader": (
        [put("a", 1), refused("set", "FencedError", "b") | {"fence": FIRST}], VIOLATION,
    ),
    "a refusal that may have come after the term": (
        [put("a"), ABSENT | {"outcome": Outcome.FAIL, "result": "UnavailableError"},
         refused("set", "FencedError", "b") | {"fence": FIRST}], OK,
    ),
    "a refusal of another epoch": (
        [put("a", 1), refused("set", "FencedError", "b") | {"fence": SECOND}], OK,
    ),
    "a refusal of another service": (
        [put("a", 1), refused("set", "FencedError", "b") | {"fence": Fence("t", 1)}], OK,
    ),
    "a refusal without its fence": ([put("a", 1), refused("set", "FencedError", "b")], OK),
    "what the leader was refused is not there": (
        [put("a"), got("a"), got("a"), refused("set", "FencedError", "b") | {"fence": FIRST},
         got("b")], VIOLATION,
    ),
    "a write of an epoch before": (
        [put("a", 1), done("set", "b", version=V2) | {"fence": Fence("s", 0)}], VIOLATION,
    ),
    "a lost write of an epoch before": (
        [put("a", 1), lost("set", "b") | {"fence": Fence("s", 0)}, got("a", 1)], OK,
    ),
    "a lost write of an epoch before that shows": (
        [put("a", 1), lost("set", "b") | {"fence": Fence("s", 0)}, got("b", 2)], VIOLATION,
    ),
    "a write of the leader": (
        [put("a", 1), done("set", "b", version=V2) | {"fence": FIRST}, got("b", 2)], OK,
    ),
}  # fmt: skip


@pytest.mark.case("X02")
@pytest.mark.parametrize(("calls", "verdict"), FENCED.values(), ids=FENCED)
def test_each_fenced_history_has_the_expected_verdict(
    calls: list[dict[str, Any]], verdict: Verdict
) -> None:
    model = StorageRegister(terms=[TERM])
    assert check_key("k", one_after_another(*calls), model).verdict is verdict


def test_a_key_may_be_there_at_first() -> None:
    model = StorageRegister("a", V1)
    assert check_key("k", one_after_another(got("a", 1)), model).verdict is OK
    assert check_key("k", one_after_another(put("b", 2)), model).verdict is VIOLATION


def test_the_value_at_first_may_come_back() -> None:
    rows = one_after_another(done("update", "b"), done("update", "a"), got("a"))
    assert check_key("k", rows, StorageRegister("a")).verdict is OK


def test_a_storage_has_no_other_operations() -> None:
    with pytest.raises(ValueError, match="no 'append'"):
        check_key("k", one_after_another(done("append", "a")), StorageRegister())

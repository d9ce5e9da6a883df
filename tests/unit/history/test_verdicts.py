"""X05: not knowing is no pass; and how verdicts on keys become one on the whole."""

import pytest

from kip30.history.cas_register import CasRegister
from kip30.history.linearizability import budget_for, check
from kip30.history.operations import Operation, Outcome
from kip30.history.verdict import Verdict, merged

pytestmark = pytest.mark.case("X05")

OK, VIOLATION, UNKNOWN = Verdict.OK, Verdict.VIOLATION, Verdict.UNKNOWN


def row(key: str, op: str, value: object, at: int, until: int) -> Operation:
    result, args = (value, ()) if op == "read" else (None, (value,))
    return Operation(
        key=key, process="p", op=op, called_ns=at, returned_ns=until, outcome=Outcome.OK,
        args=args, result=result,
    )  # fmt: skip


def fine(key: str, length: int) -> list[Operation]:
    return [row(key, "write", place % 2, 10 * place, 10 * place + 1) for place in range(length)]


def broken(key: str, length: int) -> list[Operation]:
    return [*fine(key, length), row(key, "read", "never written", 10 * length, 10 * length + 1)]


def test_a_spent_budget_leaves_the_verdict_unknown() -> None:
    report = check(fine("k", 50), CasRegister(), budget=10)
    assert report.verdict is UNKNOWN
    assert "undecided after 10 configurations" in str(report)


def test_a_spent_budget_is_no_violation_either() -> None:
    assert check(broken("k", 50), CasRegister(), budget=10).verdict is UNKNOWN
    assert check(broken("k", 50), CasRegister(), budget=100).verdict is VIOLATION


def test_the_budget_grows_with_the_rows() -> None:
    long = budget_for(0) + 1
    assert budget_for(long) > 10 * long
    assert check(fine("k", 2_000), CasRegister()).verdict is OK


def test_a_verdict_is_neither_true_nor_false() -> None:
    with pytest.raises(TypeError, match="three values"):
        assert UNKNOWN


def test_exit_statuses_differ() -> None:
    assert OK.exit_status == 0
    assert len({verdict.exit_status for verdict in Verdict}) == 3


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ([], OK),
        ([OK, OK], OK),
        ([OK, UNKNOWN], UNKNOWN),
        ([UNKNOWN, VIOLATION, OK], VIOLATION),
    ],
)
def test_a_violation_outweighs_not_knowing_and_that_outweighs_ok(
    parts: list[Verdict], whole: Verdict
) -> None:
    assert merged(parts) is whole


def test_small_keys_are_judged_first_and_a_violation_ends_it() -> None:
    rows = [*fine("long", 60), *broken("middle", 20), *fine("short", 5)]
    report = check(rows, CasRegister())
    assert [key.key for key in report.keys] == ["short", "middle"]
    assert report.left_out == ("long",)
    assert report.verdict is VIOLATION


def test_an_unknown_key_does_not_hide_the_violation_of_another() -> None:
    unexplained = [row("b", "read", "never written", place, place) for place in range(30)]
    report = check([*fine("a", 20), *unexplained], CasRegister(), budget=10)
    assert [key.verdict for key in report.keys] == [UNKNOWN, VIOLATION]
    assert report.verdict is VIOLATION


def test_an_operation_the_model_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="no 'increment'"):
        check([row("k", "increment", 1, 0, 1)], CasRegister())

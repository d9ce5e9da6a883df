"""Failures that no rule names are ambiguous; after one that a rule names nothing was done."""

import pytest

from kip30 import AuthenticationError, Kip30Error, OutcomeUnknownError, UnavailableError
from kip30.driver.kit.error_table import Rule, error_of, first

_RULES = (
    Rule("late", "before", UnavailableError, "wait"),
    Rule("late", "", AuthenticationError),
    Rule("other", "", UnavailableError),
    Rule("full", "", UnavailableError, "wait", OutcomeUnknownError),
)


@pytest.mark.parametrize(
    ("kind", "text", "number"),
    [("late", "just before it", 0), ("late", "after", 1), ("new", "", 9)],
)
def test_the_first_rule_that_fits_counts(kind: str, text: str, number: int) -> None:
    assert first(_RULES, text, kind) is (_RULES[number] if number < len(_RULES) else None)


@pytest.mark.parametrize(
    ("rule", "wrote", "expected", "text"),
    [
        (None, True, OutcomeUnknownError, "it failed"),
        (None, False, UnavailableError, "it failed"),
        (_RULES[0], True, UnavailableError, "it failed: wait"),
        (_RULES[1], True, AuthenticationError, "it failed: look"),
        (_RULES[3], True, OutcomeUnknownError, "it failed: wait"),
        (_RULES[3], False, UnavailableError, "it failed: wait"),
    ],
)
def test_only_a_rule_tells_that_nothing_was_done(
    rule: Rule[str] | None, *, wrote: bool, expected: type[Kip30Error], text: str
) -> None:
    error = error_of(rule, "it failed", wrote=wrote, advice="look")
    assert (type(error), str(error)) == (expected, text)

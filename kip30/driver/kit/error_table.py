"""Tables of failures: which prove that nothing was done, and which error each becomes."""

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from kip30.errors import DefiniteError, Kip30Error, OutcomeUnknownError, UnavailableError

K = TypeVar("K")


class Rule(NamedTuple, Generic[K]):
    """A failure after which nothing was done: its *kind*, a *part* of its text, and advice.

    A store may also report a failure after it has done a write: then *if_written* is the error of a
    write.
    """

    kind: K
    part: str
    error: type[DefiniteError]
    advice: str = ""
    if_written: type[OutcomeUnknownError] | None = None


def first(rules: Iterable[Rule[K]], text: str, *kinds: K) -> Rule[K] | None:
    """Return the first rule that is of one of *kinds*, and whose part is in *text*.

    So a rule with a part must come before one of the kind alone.
    """
    for rule in rules:
        if rule.kind in kinds and rule.part in text:
            return rule
    return None


def error_of(rule: Rule[K] | None, text: str, *, wrote: bool, advice: str = "") -> Kip30Error:
    """Return the error for a failure that *text* describes, given the *rule* it falls under.

    Without a rule it is ambiguous: a write may have been done, a read has no answer.

    Args:
        rule: None if no rule fits.
        text: What happened where.
        wrote: Whether the request would have changed anything.
        advice: What helps, if the rule does not say.
    """
    if rule is None:
        return OutcomeUnknownError(text) if wrote else UnavailableError(text)
    helps = rule.advice or advice
    error = (rule.if_written if wrote else None) or rule.error
    return error(f"{text}: {helps}" if helps else text)

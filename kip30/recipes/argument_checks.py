"""Checks of whole numbers that are passed to recipes."""

from kip30.errors import UsageError


def whole(number: object, what: str) -> int:
    """Return *number* if it is a whole one.

    Raises:
        UsageError: It is not; the message says *what* it is.
    """
    if not isinstance(number, int) or isinstance(number, bool):
        raise UsageError(f"{what} must be a whole number, not {number!r:.60}")
    return number


def positive(number: object, what: str) -> int:
    """Return *number* if it is a whole one from 1 on.

    Raises:
        UsageError: It is not; the message says *what* it is.
    """
    found = whole(number, what)
    if found < 1:
        raise UsageError(f"{what} must be 1 or more, not {found!r:.60}")
    return found

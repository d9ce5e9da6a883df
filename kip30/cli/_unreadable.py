"""The report of records that a scan could not read."""

from collections.abc import Sequence

from kip30.cli._failures import say
from kip30.driver.scanning import Rejected

_MOST = 10


def report_unreadable(rejected: Sequence[Rejected]) -> None:
    """Print on stderr which records are missing in the output, because they cannot be read."""
    for one in rejected[:_MOST]:
        say(f"{one.shown_key} is left out: {one.reason}")
    if len(rejected) > _MOST:
        say(f"{len(rejected) - _MOST} further records are left out, because they cannot be read")

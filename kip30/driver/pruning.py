"""Removing the remains of unused things: one call of the driver after the other."""

import math
from collections import Counter
from collections.abc import Mapping

from kip30.driver import Backend
from kip30.driver.records import Kind
from kip30.errors import UsageError


def prune(backend: Backend, unused_seconds: float, *, dry_run: bool) -> Mapping[Kind, int]:
    """Remove what is left of services, groups and namespaces, and count it by kind.

    Only of those without a leader, members or keys for at least *unused_seconds*, below the
    namespace that *backend* was opened with. A *dry_run* counts and changes nothing.

    Raises:
        UsageError: *unused_seconds* is negative or no number. Nothing was removed.
        Kip30Error: The store failed. Some may be removed already, which does no harm; call it
            again to continue.
    """
    if not 0 <= unused_seconds < math.inf:
        raise UsageError(f"{unused_seconds!r} is not a number of seconds, 0 or more")
    counts: Counter[Kind] = Counter()
    after = None
    while after != "":
        done = backend.prune(unused_seconds, dry_run=dry_run, after=after or "").result()
        counts.update(done.counts)
        after = done.after
    return counts

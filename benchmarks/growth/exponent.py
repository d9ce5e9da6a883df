"""Growth of a cost between two sizes."""

from collections.abc import Mapping
from math import log


def exponent(costs: Mapping[int, float]) -> float | None:
    """Return the slope of log(cost) over log(size) between the two largest sizes.

    None if there are not two sizes, or a cost was too small to be measured.
    """
    if len(costs) < 2:
        return None
    first, last = sorted(costs)[-2:]
    if costs[first] <= 0 or costs[last] <= 0:
        return None
    return log(costs[last] / costs[first]) / log(last / first)

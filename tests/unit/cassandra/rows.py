"""The row of a member in the store, and which ends first: the row, or the member's validity."""

import time
from collections.abc import Sequence

from kip30 import Member
from kip30_conformance.polling import time_scale

from .admin import Admin

ROW_SECONDS = 4
"""Seconds that rows live under the session timeout of the tests' clients."""


def row(admin: Admin, namespace: str) -> dict[str, object] | None:
    """Return the row of the member ``m`` of ``g``; None if there is none."""
    rows = admin.tell(
        "SELECT version, nonce, TTL(nonce) AS seconds FROM kip30.members"
        " WHERE root = %s AND in_group = 'g' AND id = 'm'",
        namespace,
    )
    return rows[0] if rows else None


def ends(member: Member, nodes: Sequence[Admin], namespace: str) -> tuple[float, float]:
    """Return when *member* was found invalid, and when one of *nodes* was found without its row.

    The member is checked after the nodes: if it is still valid when a row is gone, it never ended.
    """
    ended = float("inf")
    until = time.monotonic() + 3 * ROW_SECONDS * time_scale()
    while time.monotonic() < until:
        is_there = all(row(node, namespace) for node in nodes)
        now = time.monotonic()
        if not member.is_valid():
            ended = min(ended, now)
        if not is_there:
            return ended, time.monotonic()
    raise AssertionError("the row never ended")

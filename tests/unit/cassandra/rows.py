"""What the store has of a member, and which ends first: that, or the member's belief in itself."""

import time
from collections.abc import Sequence

from kip30 import Member

from .admin import Admin

ROW_SECONDS = 4
"""How long rows live under the session timeout of the tests' clients."""


def row(admin: Admin, namespace: str) -> dict[str, object] | None:
    """Return what the store has of the member ``m`` of ``g``."""
    rows = admin.tell(
        "SELECT nonce, TTL(nonce) AS seconds FROM kip30.members"
        " WHERE root = %s AND in_group = 'g' AND id = 'm'",
        namespace,
    )
    return rows[0] if rows else None


def ends(member: Member, nodes: Sequence[Admin], namespace: str) -> tuple[float, float]:
    """Return when *member* stopped believing in itself, and when all *nodes* last had its row."""
    ended = last_seen = 0.0
    until = time.monotonic() + 3 * ROW_SECONDS
    while time.monotonic() < until:
        if not ended and not member.is_valid():
            ended = time.monotonic()
        asked = time.monotonic()
        if not all(row(node, namespace) for node in nodes):
            return ended or float("inf"), last_seen
        last_seen = asked
    raise AssertionError("the row never ended")

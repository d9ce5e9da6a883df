"""Members: one key per id, held by the session."""

from kip30.driver.key_layout import Paths
from kip30.driver.kit.key_claims import KeyMembership
from kip30_backends.consul.claims import ClaimKey, Claims
from kip30_backends.consul.transactions import key_of


def group_key(paths: Paths, group: str) -> str:
    """Return what the keys of all members of *group* begin with."""
    return f"{key_of(paths.group(group))}/"


class ConsulMembership(KeyMembership[ClaimKey]):
    """Ids in groups."""

    def __init__(self, paths: Paths, claims: Claims) -> None:
        """Keep members where *paths* places them."""

        def key(group: str, name: str) -> ClaimKey:
            return ClaimKey(key_of(paths.member(group, name)), group_key(paths, group))

        super().__init__(claims, key)

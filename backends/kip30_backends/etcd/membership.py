"""Members: one key per id, tied to the lease."""

from kip30.driver.key_layout import Paths
from kip30.driver.kit.key_claims import KeyMembership
from kip30_backends.etcd.claims import Claims


class EtcdMembership(KeyMembership[bytes]):
    """Ids in groups."""

    def __init__(self, paths: Paths, claims: Claims) -> None:
        """Keep members where *paths* places them."""
        super().__init__(claims, lambda group, name: paths.member(group, name).encode())

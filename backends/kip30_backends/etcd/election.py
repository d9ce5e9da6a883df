"""Leaders: one key per service, tied to the lease; the revision it was created at is the epoch."""

from functools import partial

from kip30.driver.key_layout import Paths
from kip30.driver.kit.key_claims import KeyElection
from kip30_backends.etcd.claims import Claims
from kip30_backends.etcd.target_states import leader_key


class EtcdElection(KeyElection[bytes]):
    """Services and their leaders."""

    def __init__(self, paths: Paths, claims: Claims) -> None:
        """Keep leaders where *paths* places them."""
        super().__init__(claims, partial(leader_key, paths))

"""What is in the value of a key that kip30 wrote."""

from kip30.driver.record_format import Unsealed, unseal
from kip30_backends.etcd.messages import KeyValue


def unsealed(found: KeyValue) -> Unsealed:
    """Return the record in *found*.

    Raises:
        StoreError: It is another program's, a newer kip30's, or damaged. The text names the key.
    """
    return unseal(found.value, found.key.decode("utf-8", "backslashreplace"))

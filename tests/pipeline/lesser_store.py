"""An embedded store that does not declare all that it can do."""

from typing import ClassVar

from kip30.driver import Capability
from kip30_backends.embedded import EmbeddedBackend


class WithoutCompareAndSet(EmbeddedBackend):
    """Writes over what is there, or creates what is not."""

    capabilities: ClassVar[frozenset[Capability]] = EmbeddedBackend.capabilities - {
        Capability.COMPARE_AND_SET
    }

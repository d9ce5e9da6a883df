"""The driver contract, and what stores and core share to keep it."""

from kip30.driver.contract import (
    Backend,
    Capability,
    Context,
    ElectionDriver,
    LeaseSharing,
    Limits,
    MembershipDriver,
    ObserveDriver,
    StorageDriver,
    Watch,
)

__all__ = [
    "Backend",
    "Capability",
    "Context",
    "ElectionDriver",
    "LeaseSharing",
    "Limits",
    "MembershipDriver",
    "ObserveDriver",
    "StorageDriver",
    "Watch",
]

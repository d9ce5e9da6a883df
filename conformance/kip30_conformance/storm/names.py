"""The records that the clients of a storm share, and their names."""

from kip30.coordinator.keys import GroupKeys

GROUP = "crew"
SERVICE = "helm"
DIRECTED_SERVICE = "rudder"
"""The service whose candidates receive directives."""
OBSERVED_KEY = "observed/value"
EXPIRY = "session expired"
FENCED_KEY = "fenced/value"
KEY_SET = "set"
KEY_SET_KEYS = tuple(f"{KEY_SET}/k{number}" for number in range(6))
WORK_GROUP = "work"
ITEMS = 20
_REGISTERS = 3


def registers(slice_number: int) -> list[str]:
    """Return the keys for random work in one slice of time."""
    return [f"r{slice_number}/k{number}" for number in range(_REGISTERS)]


def is_register(key: str) -> bool:
    """Return whether *key* is one of those."""
    return key.startswith("r")


def is_guarded(key: str) -> bool:
    """Return whether *key* is the value of an item that the members divide."""
    return key.startswith(f"{GroupKeys(WORK_GROUP).group}/")


def client_name(number: int) -> str:
    """Return the name of a client, as a member and as a candidate."""
    return f"c{number}"


def client_of(process: str) -> str:
    """Return which client a process, or a thread of it, belongs to.

    The name stays the same when the process is killed and another one takes its place.
    """
    return process.partition(".")[0]

"""What the clients of a storm share, and what it is called."""

GROUP = "crew"
SERVICE = "helm"
TOLD_KEY = "told/value"
EXPIRY = "session expired"
FENCED_KEY = "fenced/value"
KEY_SET = "set"
KEY_SET_KEYS = tuple(f"{KEY_SET}/k{number}" for number in range(6))
_REGISTERS = 3


def registers(slice_number: int) -> list[str]:
    """Return the keys that are worked on at random in one slice of time."""
    return [f"r{slice_number}/k{number}" for number in range(_REGISTERS)]


def is_register(key: str) -> bool:
    """Say whether *key* is one of those."""
    return key.startswith("r")


def client_of(process: str) -> str:
    """Return which client a process, or a thread of it, belongs to.

    The name stays the same when the process is killed and another one takes its place.
    """
    return process.partition(".")[0]

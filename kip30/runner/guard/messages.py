"""The messages between a runner and its guard: one packet each, with a word and a number."""

START = "start"
"""To the guard: start a command. The descriptors that come along are the file with the order, as
`orders` writes it, and then the one that keeps the lease, if there is one."""
STOP = "stop"
"""To the guard: pass this signal on, and kill all remaining processes after the grace."""
FORWARD = "forward"
"""To the guard: pass this signal on; it does not ask to end."""
KILL = "kill"
"""To the guard: kill at once."""

ENDED = "ended"
"""From the guard: the command ended by itself, with this wait status."""
STOPPED = "stopped"
"""From the guard: the command ended with this wait status after the guard ended it."""
LAPSED = "lapsed"
"""From the guard: the same, because the lease ran out."""
UNSTARTED = "unstarted"
"""From the guard: it was too late to start the command."""
FAILED = "failed"
"""From the guard: the command could not be started; the number is the errno."""

MAX_BYTES = 64


def encode(word: str, number: int = 0) -> bytes:
    """Return the packet that says *word* with *number*."""
    return f"{word} {number}".encode()


def decode(packet: bytes) -> tuple[str, int]:
    """Return what *packet* says."""
    word, number = packet.decode().split()
    return word, int(number)

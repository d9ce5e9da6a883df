"""What a runner and its guard say to each other: one packet, a word and a number each."""

START = "start"
"""To the guard: start the command. The lease's shared descriptor comes along, if there is one."""
STOP = "stop"
"""To the guard: pass this signal on, and kill what is left after the grace."""
KILL = "kill"
"""To the guard: kill at once."""

ENDED = "ended"
"""From the guard: the command ended by itself, with this wait status."""
STOPPED = "stopped"
"""From the guard: the command ended with this wait status after it was told to."""
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
